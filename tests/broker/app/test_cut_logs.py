"""Completion maps against logs that are not what they were: cut by an unclean election, or never as the map says."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.app.conftest import Shop, running
from lane_world import until
from multilane.client.admin.admin import Admin
from multilane.client.consumer import Consumer
from multilane.client.produce.producer import Producer
from multilane.clock import SystemClock
from multilane.commit import completion_map
from multilane.commit.ledger import CommitPoint
from multilane.engines.batches.coordinator_app import CoordinatorGroup
from multilane.engines.batches.lease_table import LeaseTable
from multilane.engines.batches.messages import LogReset, PartitionLease, TaskLease
from multilane.engines.batches.worker_app import LeaseWorkerApp
from multilane.error_consumer.reading import ErrorLog
from multilane.errors import DataLoss
from multilane.metrics.observer import ReportBuffer
from multilane.outcome.redrive import ReplayMarks
from multilane.spark.offset_spec import to_json
from multilane.spark.options import source_options
from multilane.spark.planning import StreamPlanner
from multilane.types import LeaderEpoch, Offset, OffsetAndMetadata, TopicPartition
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]
FIRST, SECOND = 1, 2
OF_THE_LOG, OF_BEFORE = "of the log", "of before"


def collecting(app) -> list[tuple[int, bytes | None]]:
    got: list[tuple[int, bytes | None]] = []

    @app.listener("orders")
    async def handle(record: Record) -> None:
        got.append((record.offset, record.value))

    return got


def committed_text(shop: Shop) -> tuple[int, str]:
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        found = admin.group_offsets(f"{shop.main}.group").get(TopicPartition(shop.main, 0))
    return (-1, "") if found is None else (int(found.offset), found.metadata)


def send(shop: Shop, values: list[bytes], **settings: object) -> None:
    one_replica = {"enable.idempotence": False, "acks": 1}
    with Producer({"bootstrap.servers": shop.bootstrap, **one_replica, **settings}) as producer:
        producer.send_many([(shop.main, value, b"k%d" % at) for at, value in enumerate(values)]).result(60)


def leader(admin: AdminClient, topic: str) -> int:
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions
    return found[0].leader if 0 in found else -1


async def handle_all_but_offset_100(shop: Shop) -> None:
    """Leaves offset 100 committed, with a map of 101 to 199."""
    app = shop.app(maxProcessingTime="1h", rebalanceTimeout="1s", virtualPartitionChanCount=1000)
    hang = asyncio.Event()

    @app.listener("orders")
    async def handle(record: Record) -> None:
        if record.offset == 100:
            await hang.wait()

    async with running(app):
        await until(lambda: completion_map.decode(committed_text(shop)[1], 100) == ((101, 199),), 60)


NEW = [(103 + n, b"new %d" % n) for n in range(150)]


@pytest.mark.cluster
async def test_records_written_after_an_unclean_election_are_handled(
    cluster, eventually, tmp_path, caplog, monkeypatch
):
    """Offsets 103 to 199 die with their leader, settled; its successor gives the same offsets to other records. Whoever
    says that 101 to 199 are settled, or were read, is not believed."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    shop = Shop(cluster.bootstrap(), lambda: "", tmp_path)
    shop.main = f"cut-{id(shop)}"
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    wanted = NewTopic(shop.main, num_partitions=1, replica_assignment=[[FIRST, SECOND]], config=config)
    admin.create_topics([wanted], operation_timeout=30)[shop.main].result(30)
    eventually(lambda: leader(admin, shop.main) == FIRST)
    send(shop, [b"old"] * 103, acks="all")
    cluster.stop(SECOND)
    send(shop, [b"old"] * 97)
    await handle_all_but_offset_100(shop)
    mark = mark_as_replayed(shop)
    cluster.kill(FIRST)
    cluster.start(SECOND)
    eventually(lambda: leader(admin, shop.main) == SECOND, 60)
    send(shop, [value for _, value in NEW])
    with caplog.at_level(logging.WARNING, "multilane"):
        assert await handled_by_a_member(shop) == [(100, b"old"), (101, b"old"), (102, b"old"), *NEW]
        assert await handled_on_lease(shop, mark, monkeypatch) == [(100, b"old"), (101, b"old"), (102, b"old"), *NEW]
        assert marked(shop) == (0, ())
        with pytest.raises(DataLoss, match="was read up to 200, but its log has since been truncated at 103"):
            plan_after(shop, 200, mark)
    told = f"{shop.main}-0: the completion map committed with offset 100 does not match the log"
    assert caplog.text.count(told) == 2
    assert "redelivered" in caplog.text
    assert f"{shop.main}-0: the replay marks do not match the log" in caplog.text


def mark_as_replayed(shop: Shop) -> completion_map.LogIdentity:
    """All of it, as if it were an error topic; gives what names the log before it is cut."""
    partition = TopicPartition(shop.main, 0)
    with ErrorLog({"bootstrap.servers": shop.bootstrap}, shop.main) as log:
        assert sum(1 for _ in log.records()) == 200
        log.keep_marks(partition, ReplayMarks(200))
        assert log.marks()[partition].frontier == 200
    with Consumer({"bootstrap.servers": shop.bootstrap}) as consumer:
        topic_id = consumer.topic_ids([shop.main])[shop.main]
        return completion_map.LogIdentity(consumer.log_ends([partition])[partition].leader_epoch, topic_id)


def marked(shop: Shop) -> tuple[int, object]:
    with ErrorLog({"bootstrap.servers": shop.bootstrap}, shop.main) as log:
        marks = log.marks()[TopicPartition(shop.main, 0)]
    return marks.frontier, marks.runs


async def handled_by_a_member(shop: Shop) -> list[tuple[int, bytes | None]]:
    app = shop.app()
    got = collecting(app)
    async with running(app):
        await until(lambda: committed_text(shop)[0] == 253, 60)
    return sorted(got)


async def handled_on_lease(shop: Shop, mark, monkeypatch) -> list[tuple[int, bytes | None]]:
    """As a worker of the batches flow, whose lease begins where the coordinator was before the log was cut."""
    app, words = shop.app(), []
    got = collecting(app)
    monkeypatch.setattr("multilane.engines.batches.worker_app.find_app", lambda target: app)
    partition = TopicPartition(shop.main, 0)
    point = CommitPoint(100, mark.leader_epoch, ((101, 199),), mark.leader_epoch)
    lease = PartitionLease(1, "orders", {partition: point}, topic_ids={shop.main: mark.topic_id})
    worker = LeaseWorkerApp("shop:app")
    await worker.open(lambda kind, **fields: words.append((kind, fields)))
    serving = asyncio.create_task(worker.serve(TaskLease(1, 60.0, 1.0, (lease,))))
    await until(lambda: len(got) == 153, 60)
    worker.end()
    [returned] = await serving
    await worker.close()
    assert (returned.points[partition].offset, returned.points[partition].runs) == (253, ())
    assert returned.log_resets == {partition: LogReset(1, 100)}, "what the coordinator knew of it is void too"
    return sorted(got)


def plan_after(shop: Shop, offset: int, mark) -> None:
    """As a stream whose checkpoint is from before the cut."""
    options = source_options({"kafka.bootstrap.servers": shop.bootstrap, "subscribe": shop.main}, is_stream=True)
    planner = StreamPlanner(options)
    try:
        tree = to_json({TopicPartition(shop.main, 0): offset}, {}, {TopicPartition(shop.main, 0): mark.leader_epoch})
        planner.latest(planner.recall(tree), None)
    finally:
        planner.close()


@pytest.mark.parametrize("form", [OF_BEFORE, OF_THE_LOG])
async def test_a_map_that_reaches_beyond_the_log_is_void(shop, form, caplog):
    """Whoever may commit can write any map. The application must not commit what it says."""
    shop.fill([f"k{n}" for n in range(10)], partitions=1)
    partition = TopicPartition(shop.main, 0)
    runs = ((6, 2**62),)
    with Consumer({"bootstrap.servers": shop.bootstrap, "group.id": f"{shop.main}.group"}) as consumer:
        text = completion_map.encode(5, runs)
        if form == OF_THE_LOG:
            mark = completion_map.LogIdentity(0, consumer.topic_ids([shop.main])[shop.main])
            text = completion_map.encode(5, runs, mark)
        consumer.commit({partition: OffsetAndMetadata(Offset(5), LeaderEpoch(0), text)})
    app = shop.app()
    got = collecting(app)
    async with running(app):
        await until(lambda: shop.committed() == {str(partition): 10})
        send(shop, [b"more"] * 20)
        await until(lambda: shop.committed() == {str(partition): 30})
    assert [offset for offset, _ in sorted(got)] == list(range(5, 30))
    assert f"{partition}: the completion map committed with offset 5 does not match the log" in caplog.text


async def test_a_map_of_another_topic_of_the_same_name_is_void(shop):
    shop.fill([f"k{n}" for n in range(10)], partitions=1)
    partition = TopicPartition(shop.main, 0)
    with Consumer({"bootstrap.servers": shop.bootstrap, "group.id": f"{shop.main}.group"}) as consumer:
        [other] = consumer.topic_ids([shop.make_topic(1)]).values()
        text = completion_map.encode(5, ((6, 8),), completion_map.LogIdentity(0, other))
        consumer.commit({partition: OffsetAndMetadata(Offset(5), LeaderEpoch(0), text)})
    app = shop.app()
    got = collecting(app)
    async with running(app):
        await until(lambda: shop.committed() == {str(partition): 10})
    assert [offset for offset, _ in sorted(got)] == [5, 6, 7, 8, 9]


async def test_a_map_of_the_version_before_counts_while_no_leader_has_changed(shop):
    shop.fill([f"k{n}" for n in range(10)], partitions=1)
    partition = TopicPartition(shop.main, 0)
    with Consumer({"bootstrap.servers": shop.bootstrap, "group.id": f"{shop.main}.group"}) as consumer:
        text = completion_map.encode(5, ((6, 8),))
        consumer.commit({partition: OffsetAndMetadata(Offset(5), LeaderEpoch(0), text)})
    app = shop.app()
    got = collecting(app)
    async with running(app):
        await until(lambda: shop.committed() == {str(partition): 10})
    assert [offset for offset, _ in sorted(got)] == [5, 9]


class WorkerChannel:
    """The channel to a worker that sends nothing."""

    def send(self, kind: str, **fields: object) -> None:
        pass


async def test_a_worker_that_reports_what_the_log_does_not_have_commits_nothing(shop, caplog):
    """Of the batches flow: its coordinator commits what workers report, but not beyond the log."""
    shop.fill([f"k{n}" for n in range(10)], partitions=1)
    app, partition = shop.app(), TopicPartition(shop.main, 0)
    lease_table, channel = LeaseTable(SystemClock()), WorkerChannel()
    collecting(app)
    [lane_factory] = app.lane_factories(ReportBuffer()).values()
    group = CoordinatorGroup(lane_factory, lease_table, SystemClock(), ReportBuffer())
    running_ = asyncio.create_task(group.run())
    try:
        await until(lambda: lease_table.has_work)
        [task] = lease_table.plan(1)
        [lease] = lease_table.grant(task, channel).leases
        lease_table.note_progress([replace(lease, points={partition: CommitPoint(2**62, 0, ())})], channel)
        await until(lambda: "reports offset 4611686018427387904, but the log ends at 10" in caplog.text)
        assert shop.committed() in ({}, {str(partition): 0})
        lease_table.note_progress([replace(lease, points={partition: CommitPoint(7, 0, ())})], channel)
        await until(lambda: shop.committed() == {str(partition): 7})
    finally:
        lease_table.drop(task)
        group.stop()
        await running_
