"""Logs and accounts compared by a real Spark: what is missing, repeated or out of order is found, and nothing else."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from multilane.audit.comparison import ComparisonRequest, compare, offset_ranges, read_audit_records
from multilane.audit.order import OrderRule
from multilane.audit.record_files import AuditRecordFiles
from multilane.audit.spans import Span
from multilane.audit.verdict import AuditCounts, Doubtful, Inverted, Repeated, Unaccounted
from multilane.clock import ManualClock
from multilane.commit.journal import RecordOutcome, StoredCopy
from multilane.errors import NoHistory
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

BY_KEY = OrderRule("key")


class AuditFiles:
    """A topic and its retry topic, and accounts that a test writes by hand."""

    def __init__(self, spark, kafka, topic, fill, path) -> None:
        self.spark, self.path = spark, str(path)
        self.main, self.retry = topic(2), topic(2)
        self.settings = {"kafka.bootstrap.servers": kafka.bootstrap()}
        self.clock = ManualClock()
        self._fill = fill
        self.files = AuditRecordFiles(self.path, "g", self.clock)

    def write(self, topic: str, partition: int, keys: list[bytes | None]) -> None:
        self._fill(topic, [(b"v", key, (), partition) for key in keys])

    def record(self, offset: int, partition: int = 0, topic: str | None = None) -> Record:
        return Record(topic or self.main, partition, offset, 0, 0, b"", b"")

    def done(self, *offsets: int, partition: int = 0, topic: str | None = None) -> None:
        for offset in offsets:
            self.clock.advance(0.001)
            self.files.journal.note_done([self.record(offset, partition, topic)])

    def copied(self, offset: int, outcome: RecordOutcome, copy: StoredCopy | None) -> None:
        self.clock.advance(0.001)
        self.files.journal.note_failed(self.record(offset), outcome, copy, None)

    def leave_merged(self) -> None:
        """What a process leaves that ended after it merged its files and before it deleted them."""
        asyncio.run(self.files.flush())
        for file in list(Path(self.path).rglob("*.parquet")):
            shutil.copy(file, file.with_stem(f"{file.stem}-merged"))

    def leave_a_backup(self) -> None:
        """What somebody leaves who copies a file before an edit: its records say something else."""
        first = min(Path(self.path).rglob("*.parquet"))
        table = pq.ParquetFile(first).read()
        numbers = pa.array([10_000 + number for number in range(len(table))], pa.int64())
        table = table.set_column(3, "outcome", [pa.array(["dead"] * len(table))])
        pq.write_table(table.set_column(6, "sequence", [numbers]), first.with_name("x.bak"))

    def verdict(self, spans: dict[TopicPartition, Span], order: OrderRule = BY_KEY, doubts=None):
        asyncio.run(self.files.flush())
        accounts = read_audit_records(self.spark, f"{self.path}/group=g")
        return compare(
            self.spark, accounts, ComparisonRequest(spans, self.settings, order, self.retry, doubts=doubts or {})
        )

    def place(self, partition: int = 0) -> TopicPartition:
        return TopicPartition(self.main, partition)


@pytest.fixture
def books(spark, kafka, topic, fill, tmp_path) -> AuditFiles:
    return AuditFiles(spark, kafka, topic, fill, tmp_path)


def test_every_outcome_is_counted_and_what_is_wrong_is_named(books):
    """In one go: each comparison takes Spark seconds."""
    books.write(books.main, 0, [b"a", b"b", b"a", b"c", b"d", None])
    books.write(books.main, 1, [b"x", b"y", b"z", b"x"])
    books.done(0, 2, 5)
    books.files.journal.note_skipped([books.record(1)])
    books.copied(3, RecordOutcome.RETRIED, StoredCopy(books.retry, 0, 0))
    books.copied(4, RecordOutcome.DEAD, None)
    books.done(3, 0, 2, 2, partition=1)
    books.files.journal.note_interrupted([books.record(1, 1), books.record(0)])
    books.leave_merged()
    books.leave_a_backup()
    one, two = books.place(0), books.place(1)
    made = books.verdict({one: Span(0, 6), two: Span(0, 4)}, doubts={one: ((1, 2), (5, 9))})
    assert made.tallies == {
        one: AuditCounts(read=6, done=3, skipped=1, retried=1, dead=1, doubtful=4, waiting=1),
        two: AuditCounts(read=4, done=3, repeated=1, inverted=1, doubtful=1),
    }
    assert made.unaccounted == (Unaccounted(two, 1, 1),)
    assert made.repeated == (Repeated(two, 2, 2, 2, "done"),)
    assert made.inverted == (Inverted(two, 3, behind=0),)
    assert made.doubtful == (Doubtful(one, 0, 2), Doubtful(one, 5, 5), Doubtful(two, 1, 1))
    assert not made.holds()


@pytest.mark.long
def test_only_the_span_counts(books):
    books.write(books.main, 0, [b"a"] * 4)
    books.done(0, 1, 2, 3)
    place = books.place()
    assert books.verdict({place: Span(1, 3)}).tallies == {place: AuditCounts(read=2, done=2)}
    assert books.verdict({place: Span(2, 2)}).tallies == {}
    with pytest.raises(NoHistory, match="the log ends at 4"):
        books.verdict({place: Span(0, 9)})


@pytest.mark.long
def test_a_record_with_two_accounts_is_what_the_last_says(books):
    books.write(books.main, 0, [b"a", b"b"])
    books.copied(0, RecordOutcome.RETRIED, StoredCopy(books.retry, 0, 0))
    books.done(1, 0)
    place = books.place()
    made = books.verdict({place: Span(0, 2)})
    assert made.tallies == {place: AuditCounts(read=2, done=2, repeated=1)}
    assert made.repeated == (Repeated(place, 0, 0, 2, "done"),)
    assert made.holds()
    assert not made.holds(exactly_once=True)


@pytest.mark.long
def test_records_of_a_key_that_were_handled_in_another_order_are_named(books):
    books.write(books.main, 0, [b"a", b"b", b"a", b"a"])
    books.done(1, 2, 0, 3)
    place = books.place()
    made = books.verdict({place: Span(0, 4)})
    assert made.inverted == (Inverted(place, 2, behind=0),)
    assert made.tallies[place].inverted == 1
    assert not made.holds()
    assert books.verdict({place: Span(0, 4)}, OrderRule(None, "it does not matter")).holds()
    assert books.verdict({place: Span(0, 4)}, OrderRule("partition")).total.inverted == 2


@pytest.mark.long
def test_what_is_repeated_in_its_order_after_a_kill_is_no_change_of_order(books):
    books.write(books.main, 0, [b"a", b"a", b"a"])
    books.done(0, 1, 0, 1, 2)
    place = books.place()
    made = books.verdict({place: Span(0, 3)})
    assert made.tallies == {place: AuditCounts(read=3, done=3, repeated=2)}
    assert made.holds()


@pytest.mark.long
def test_where_order_survives_a_retry_the_copy_counts_for_its_record(books):
    """The record at 0 is handled from the retry topic, after 1 of the same key: only one rule forbids that."""
    books.write(books.main, 0, [b"a", b"a"])
    books.write(books.retry, 0, [b"a"])
    books.copied(0, RecordOutcome.RETRIED, StoredCopy(books.retry, 0, 0))
    books.done(1)
    books.done(0, topic=books.retry)
    spans = {books.place(): Span(0, 2), TopicPartition(books.retry, 0): Span(0, 1)}
    assert books.verdict(spans).holds()
    assert books.verdict(spans).total.waiting == 0
    made = books.verdict(spans, OrderRule("key", across_retry=True))
    assert made.inverted == (Inverted(books.place(), 1, behind=0),)


@pytest.mark.long
def test_accounts_begin_where_somebody_began(books):
    books.files.journal.begin(books.place(0), 4)
    books.files.journal.begin(books.place(1), 0)
    books.done(4, 5)
    books.files.journal.note_interrupted([books.record(9)])
    asyncio.run(books.files.flush())
    accounts = read_audit_records(books.spark, f"{books.path}/group=g")
    assert offset_ranges(accounts) == {books.place(0): range(4, 6), books.place(1): range(0, 0)}


@pytest.mark.long
def test_the_command_proves_a_run_and_tells_what_a_hole_is(shop, tmp_path):
    told = json.loads((shop.directory / "multilane.yaml").read_text())
    told["consumers"]["orders"]["audit"] = str(tmp_path / "accounts")
    (shop.directory / "multilane.yaml").write_text(json.dumps(told))
    with shop.running() as (process, log):
        shop.wait_for(shop.is_all_settled, log)
        process.terminate()
        assert process.wait(120) == 0, log.read_text()

    def audit(*options: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "multilane", "audit", "orders", *options]
        return subprocess.run(command, cwd=shop.directory, capture_output=True, text=True, timeout=150, check=False)

    proved = audit("--output", "json", "--exactly-once")
    assert proved.returncode == 0, proved.stdout + proved.stderr
    found = json.loads(proved.stdout)
    assert (found["total"]["read"], found["total"]["done"], found["total"]["dead"]) == (202, 200, 1)
    assert (found["total"]["retried"], found["total"]["unaccounted"]) == (1, 0)
    files = sorted((tmp_path / "accounts").rglob("*.*"), key=lambda file: file.stat().st_mtime_ns)
    some = max((file for file in files if file.suffix == ".parquet"), key=lambda file: file.stat().st_size)
    content = some.read_bytes()
    some.write_bytes(content[:-100])
    holed = audit()
    assert holed.returncode == 1, holed.stdout + holed.stderr
    assert "NOT PROVED" in holed.stdout
    assert f"{some.name} is damaged" in holed.stdout
    assert "without an audit record" in holed.stdout
    some.write_bytes(content)
    for old in files[: len(files) // 3]:
        old.unlink()
    shrunk = audit()
    assert shrunk.returncode == 1, shrunk.stdout + shrunk.stderr
    assert "NOT PROVED" in shrunk.stdout
    assert "missing" in shrunk.stdout or "no session file" in shrunk.stdout
