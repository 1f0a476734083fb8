"""Completion maps against logs that are not what they were: cut by an unclean election, or never as the map says."""

from __future__ import annotations

import asyncio
import logging

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from broker.app.conftest import Shop, running
from lane_world import until
from multilane.client.admin.admin import Admin
from multilane.client.consumer import Consumer
from multilane.client.produce.producer import Producer
from multilane.commit import completion_map
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


@pytest.mark.cluster
async def test_records_written_after_an_unclean_election_are_handled(cluster, eventually, tmp_path, caplog):
    """Offsets 103 to 199 die with their leader, settled; its successor gives the same offsets to other records."""
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
    cluster.kill(FIRST)
    cluster.start(SECOND)
    eventually(lambda: leader(admin, shop.main) == SECOND, 60)
    send(shop, [b"new %d" % n for n in range(150)])
    again = shop.app()
    got = collecting(again)
    with caplog.at_level(logging.WARNING, "multilane"):
        async with running(again):
            await until(lambda: committed_text(shop)[0] == 253, 60)
    assert sorted(got) == [(100, b"old"), (101, b"old"), (102, b"old"), *((103 + n, b"new %d" % n) for n in range(150))]
    assert f"{shop.main}-0: the completion map committed with offset 100 does not fit the log" in caplog.text
    assert "redelivered" in caplog.text


@pytest.mark.parametrize("form", [OF_BEFORE, OF_THE_LOG])
async def test_a_map_that_reaches_beyond_the_log_is_void(shop, form, caplog):
    """Whoever may commit can write any map. The application must not commit what it says."""
    shop.fill([f"k{n}" for n in range(10)], partitions=1)
    partition = TopicPartition(shop.main, 0)
    runs = ((6, 2**62),)
    with Consumer({"bootstrap.servers": shop.bootstrap, "group.id": f"{shop.main}.group"}) as consumer:
        text = completion_map.encode(5, runs)
        if form == OF_THE_LOG:
            mark = completion_map.LogMark(0, consumer.topic_ids([shop.main])[shop.main])
            text = completion_map.encode(5, runs, mark)
        consumer.commit({partition: OffsetAndMetadata(Offset(5), LeaderEpoch(0), text)})
    app = shop.app()
    got = collecting(app)
    async with running(app):
        await until(lambda: shop.committed() == {str(partition): 10})
        send(shop, [b"more"] * 20)
        await until(lambda: shop.committed() == {str(partition): 30})
    assert [offset for offset, _ in sorted(got)] == list(range(5, 30))
    assert f"{partition}: the completion map committed with offset 5 does not fit the log" in caplog.text


async def test_a_map_of_another_topic_of_the_same_name_is_void(shop):
    shop.fill([f"k{n}" for n in range(10)], partitions=1)
    partition = TopicPartition(shop.main, 0)
    with Consumer({"bootstrap.servers": shop.bootstrap, "group.id": f"{shop.main}.group"}) as consumer:
        [other] = consumer.topic_ids([shop.make_topic(1)]).values()
        text = completion_map.encode(5, ((6, 8),), completion_map.LogMark(0, other))
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
