"""What the audit knows of records that a killed process handled without an account, beside a ledger of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from multilane.audit.doubts import doubts_within
from multilane.audit.folder import AuditFolder
from multilane.audit.reading import read_files
from multilane.audit.spans import Span
from multilane.client.produce.producer import Producer
from multilane.types import TopicPartition

pytestmark = [pytest.mark.broker]
RECORDS = 8_000
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)  # a record each second: a window of time names records
PROGRAM = """
import asyncio, os
import multilane
app = multilane.App("multilane.yaml")
ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
@app.listener("orders")
async def handle(record: multilane.Record) -> None:
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
    os.write(ledger, b"%d %d\\n" % (record.partition, record.offset))
"""


def test_whatever_was_handled_twice_has_two_accounts_or_is_in_doubt(shop, eventually):
    accounts, ledger = run_with_kills(shop, eventually)
    group = f"{shop.main}.group"
    books = read_files(AuditFolder(str(accounts), group), group)
    assert books.are_complete
    spans = {TopicPartition(shop.main, n): Span(0, shop.committed()[f"{shop.main}-{n}"]) for n in (0, 1)}
    doubts = doubts_within(books.doubts, spans)
    times = Counter(handled(ledger))
    twice = {place for place, many in times.items() if many > 1}
    repeated = {place for place, many in accounted(accounts).items() if many > 1}
    unseen = twice - repeated
    in_doubt = {place for place in times if any(a <= place[1] <= b for a, b in doubts.get((shop.main, place[0]), ()))}
    assert len(times) == len(accounted(accounts)) == RECORDS
    assert unseen, "the kills came too early: nothing was handled without an account"
    assert unseen <= in_doubt
    assert len(in_doubt) < RECORDS / 2  # and not everything is


@pytest.mark.slow
@pytest.mark.long
def test_the_command_proves_nothing_of_what_ran_twice_nor_of_files_that_are_gone(shop, eventually):
    """It said "each once" of records that a killed process had handled too, and "Proved" of what was left of files."""
    accounts, ledger = run_with_kills(shop, eventually)
    times = Counter(handled(ledger))
    twice = {place for place, many in times.items() if many > 1}
    unseen = sorted(twice - {place for place, many in accounted(accounts).items() if many > 1})
    assert unseen, "the kills came too early: nothing was handled without an account"

    whole = audit(shop, "--examples", "10000", "--output", "json")
    found = json.loads(whole.stdout)
    assert found["verdict"].startswith(f"Proved: {RECORDS:,} read"), whole.stdout + whole.stderr
    assert "each once" not in found["verdict"]
    assert twice <= named(found["examples"]["repeated"]) | named(found["examples"]["doubtful"])

    window = audit(shop, "--exactly-once", *window_of(unseen[0]))
    assert window.returncode == 1, window.stdout + window.stderr
    assert "NOT PROVED: 1 read = 1 done" in window.stdout
    assert "each once" not in window.stdout

    last = audit(shop, "--exactly-once", *window_of((0, RECORDS // 2 - 5), seconds=10))  # nobody was killed after it
    assert last.returncode == 0, last.stdout + last.stderr
    assert "Proved: 10 read = 10 done" in last.stdout
    assert "each once" in last.stdout

    files = sorted((f for f in accounts.rglob("*") if f.is_file()), key=lambda file: file.stat().st_mtime_ns)
    for file in files[: len(files) // 3]:
        file.unlink()
    shrunk = audit(shop)
    assert shrunk.returncode == 1, shrunk.stdout + shrunk.stderr
    assert "Proved" not in shrunk.stdout
    assert f"NOT PROVED: {RECORDS:,} read" in shrunk.stdout, "the range is as it was"


def run_with_kills(shop, eventually) -> tuple[Path, Path]:
    """The directory of the accounts, and the ledger of the handlers."""
    shop.main = shop.make_topic(2)
    with Producer({"bootstrap.servers": shop.bootstrap}) as producer:
        rows = ((n, int((BEGIN + timedelta(seconds=n)).timestamp() * 1000)) for n in range(RECORDS))
        producer.send_many([(shop.main, b"v", b"k%d" % n, (), n % 2, at) for n, at in rows]).result(30)
    accounts, ledger = shop.folder / "accounts", shop.folder / "ledger"
    shop.app(audit=str(accounts), commitInterval="700ms")
    (shop.folder / "audited.py").write_text(PROGRAM)
    ledger.touch()
    command = [sys.executable, "-m", "multilane", "run", "audited:app", "--engine", "process"]
    for kill_at in (400, 1_100):  # some time after the last commit
        with subprocess.Popen(command, cwd=shop.folder, stderr=subprocess.PIPE) as child:
            eventually(lambda kill_at=kill_at: len(handled(ledger)) >= kill_at, 60)
            child.kill()
    with subprocess.Popen(command, cwd=shop.folder, stderr=subprocess.PIPE) as child:
        eventually(lambda: sum(shop.committed().values()) == RECORDS, 60)
        child.terminate()
        child.communicate(timeout=60)
    return accounts, ledger


def audit(shop, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "multilane", "audit", "orders", *options]
    return subprocess.run(command, cwd=shop.folder, capture_output=True, text=True, timeout=150, check=False)


def window_of(place: tuple[int, int], seconds: int = 1) -> tuple[str, ...]:
    """The options for this record alone, or so many seconds from it on."""
    partition, offset = place
    begin = BEGIN + timedelta(seconds=2 * offset + partition)
    return "--since", begin.isoformat(), "--until", (begin + timedelta(seconds=seconds)).isoformat()


def named(examples: list[dict]) -> set[tuple[int, int]]:
    return {(one["partition"], offset) for one in examples for offset in range(one["offset"], one["last"] + 1)}


def handled(ledger: Path) -> list[tuple[int, int]]:
    lines = ledger.read_text().splitlines()
    return [(int(partition), int(offset)) for partition, offset in map(str.split, lines)]


def accounted(path: Path) -> Counter:
    rows = [row for file in path.rglob("*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    return Counter((row["partition"], row["offset"]) for row in rows if row["outcome"] == "done")
