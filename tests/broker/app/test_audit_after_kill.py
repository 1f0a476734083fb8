"""What the audit knows of records that a killed process handled without an account, beside a ledger of its own."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from multilane.audit.doubts import doubts_within
from multilane.audit.spans import Span
from multilane.runtime.account_folder import Folder
from multilane.runtime.account_reading import read_books
from multilane.types import TopicPartition

pytestmark = [pytest.mark.broker]
RECORDS = 8_000
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
    shop.fill([f"k{n}" for n in range(RECORDS)])
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

    group = f"{shop.main}.group"
    books = read_books(Folder(str(accounts), group), group)
    assert books.are_whole
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
    assert len(in_doubt) < RECORDS  # and not everything is


def handled(ledger: Path) -> list[tuple[int, int]]:
    lines = ledger.read_text().splitlines()
    return [(int(partition), int(offset)) for partition, offset in map(str.split, lines)]


def accounted(path: Path) -> Counter:
    rows = [row for file in path.rglob("*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    return Counter((row["partition"], row["offset"]) for row in rows if row["outcome"] == "done")
