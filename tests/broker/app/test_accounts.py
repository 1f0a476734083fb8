"""What an app writes for the audit, on a real Kafka: each record once, with what became of it, before a commit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from broker.app.conftest import running
from lane_world import until
from multilane.audit.folder import AuditFolder
from multilane.audit.log_identity import strayed
from multilane.audit.reading import read_files
from multilane.audit.spans import Span
from multilane.client.admin.admin import Admin
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]


def accounts_in(path: Path) -> list[dict]:
    rows = [row for file in path.rglob("*.parquet") for row in pq.ParquetFile(file).read().to_pylist()]
    return [row for row in rows if row["outcome"] != "begun"]


def counted(rows: list[dict], topic: str) -> Counter:
    return Counter(row["outcome"] for row in rows if row["topic"] == topic)


async def settled(shop, app, many: int) -> None:
    async with running(app) as task:
        await until(lambda: sum(shop.committed().values()) == many or task.done(), 40)
    await task


async def test_single_records_that_fail_have_their_copies_reported(shop, tmp_path):
    shop.fill(["a", "bad", "b", "ugly"], partitions=1)
    retry, error = shop.make_topic(1), shop.make_topic(1)
    app = shop.app(retry=retry, error=error, retryCount=2, retryOrder="none", audit=str(tmp_path / "books"))

    @app.listener("orders")
    async def handle(record: Record) -> None:
        if record.key == b"ugly" or (record.key == b"bad" and record.topic != retry):
            raise ValueError("not so")

    await settled(shop, app, 4 + 3)
    rows = accounts_in(tmp_path)
    assert counted(rows, shop.main) == {"done": 2, "retried": 2}
    assert counted(rows, retry) == {"done": 1, "retried": 1, "dead": 1}
    assert len({(r["topic"], r["partition"], r["offset"]) for r in rows}) == len(rows) == 7
    by_place = {(r["topic"], r["offset"]): r for r in rows}
    copy = by_place[shop.main, 1]
    assert (copy["copy_topic"], copy["copy_partition"]) == (retry, 0)
    assert shop.read_all(retry)[copy["copy_offset"]].key == b"bad"
    [dead] = [r for r in rows if r["outcome"] == "dead"]
    assert (dead["copy_topic"], shop.read_all(error)[dead["copy_offset"]].key) == (error, b"ugly")


@pytest.mark.parametrize("kind", ["list", "columns"])
async def test_windows_are_reported_and_what_a_unique_listener_skips(shop, tmp_path, kind):
    shop.fill(["a", "b"] * 50, partitions=1)
    app = shop.app(
        batchSize=100, uniqueListener=True, consumeBatchListenerLatency="200ms", audit=str(tmp_path / "books")
    )
    handled: list[int] = []
    if kind == "list":

        @app.listener("orders")
        async def some(records: list[Record]) -> None:
            handled.extend(record.offset for record in records)
    else:

        @app.listener("orders")
        async def columns(batch: pa.RecordBatch) -> None:
            handled.extend(batch.column("offset").to_pylist())

    await settled(shop, app, 100)
    rows = accounts_in(tmp_path)
    assert sorted(r["offset"] for r in rows if r["outcome"] == "done") == sorted(handled)
    assert sorted(r["offset"] for r in rows) == list(range(100))
    assert counted(rows, shop.main)["skipped"] == 100 - len(handled) > 0


async def test_nothing_is_committed_that_has_no_account(shop, tmp_path):
    shop.fill(["a", "b", "c"], partitions=1)
    books = tmp_path / "books"
    app = shop.app(audit=str(books))
    folder = books / f"group={shop.main}.group"
    handled: list[int] = []

    @app.listener("orders")
    async def handle(record: Record) -> None:
        if not handled:
            folder.rename(books / "away")
            folder.touch()  # from now on nothing can be written
        handled.append(record.offset)

    async with running(app) as task:
        await until(lambda: len(handled) == 3 or task.done(), 40)
        assert sum(shop.committed().values()) == 0
        folder.unlink()
        await until(lambda: sum(shop.committed().values()) == 3 or task.done(), 40)
    await task
    assert sorted(r["offset"] for r in accounts_in(books)) == [0, 1, 2]
    assert sorted(handled) == [0, 1, 2]


async def test_a_directory_that_cannot_be_written_ends_the_start(shop, tmp_path):
    from multilane.errors import AuditNotWritten

    shop.fill(["a"], partitions=1)
    (tmp_path / "books").touch()
    app = shop.app(audit=str(tmp_path / "books"))

    @app.listener("orders")
    async def handle(record: Record) -> None:
        raise AssertionError("nothing is handled before it is known that accounts can be kept")

    with pytest.raises(AuditNotWritten, match="cannot write to"):
        await app.serve()
    assert shop.committed() == {}


async def test_accounts_of_a_topic_that_was_made_again_are_of_another_log(shop, tmp_path):
    """They counted for the records of the new topic at the same offsets, which nobody has handled."""
    topic = shop.fill(["a", "b"] * 5, partitions=1)
    app = shop.app(audit=str(tmp_path / "books"))

    @app.listener("orders")
    async def handle(record: Record) -> None: ...

    await settled(shop, app, 10)
    group, place = f"{topic}.group", TopicPartition(topic, 0)
    found = read_files(AuditFolder(str(tmp_path / "books"), group), group)
    properties = {"bootstrap.servers": shop.bootstrap}
    assert strayed(properties, found.logs, {place: Span(0, 10)}) == ()
    with Admin(properties) as admin:
        admin.delete_topics([topic])
        await until(lambda: topic not in admin.topics(), 40)
        admin.create_topics({topic: 1})
    shop.fill(["new"] * 20, topic=topic)
    [told] = strayed(properties, found.logs, {place: Span(0, 10)})
    assert told.startswith(f"{place}: audit records up to offset 10 are of another log: it belongs to topic id")
    assert strayed(properties, found.logs, {place: Span(10, 20)}) == ()  # nothing of that has such accounts
