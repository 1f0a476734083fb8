"""Producers by config name and the publishing of copies, against a real broker."""

from __future__ import annotations

import asyncio
import threading

import pytest

from broker.reading import read_rows
from multilane import Admin, Consumer, Producer, TopicPartition
from multilane.errors import PublishStopped
from multilane.outcome.next_step import Publish
from multilane.outcome.publishing import Pauses, Publisher
from multilane.runtime.produced_messages import CustomMessage, Message
from multilane.runtime.producing import Producers

pytestmark = pytest.mark.broker


@pytest.fixture
def name(topic):
    return topic(3)


@pytest.fixture
def producers(kafka, name):
    clusters = {"main": {"bootstrap.servers": kafka.bootstrap(), "linger.ms": 0}}
    with Producers({"orders": (name, "main")}, clusters) as made:
        yield made


def read(kafka, name, count, partitions=3):
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(TopicPartition(name, p) for p in range(partitions))
        return read_rows(consumer, count)


def read_all(kafka, name, partitions=3):
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}) as consumer:
        everything = [TopicPartition(name, p) for p in range(partitions)]
        consumer.assign(everything)
        return read_rows(consumer, sum(consumer.end_offsets(everything).values()))


def messages(count):
    return [Message("orders", f"k{n % 7}", {"n": n}, [("h", "1"), ("h", "2")]) for n in range(count)]


def test_one_message(kafka, name, producers):
    stored = producers.produce(Message("orders", "k", {"n": 1}, [("h", "1"), ("h", None)]))
    (row,) = read(kafka, name, 1)
    assert (stored.topic, stored.partition, stored.offset) == (name, row.partition, row.offset)
    assert (row.key, row.value, row.headers) == (b"k", b'{"n":1}', (("h", b"1"), ("h", None)))


def test_a_topic_of_ones_own_and_no_key(kafka, topic, producers):
    other = topic()
    producers.produce(CustomMessage(other, "MAIN", "", b"\xff"))
    (row,) = read(kafka, other, 1, 1)
    assert (row.key, row.value) == (None, b"\xff")


@pytest.mark.parametrize("size", [0, -5, 1, 7, 1_000])
def test_a_bulk_of_any_size_is_stored_whole(kafka, name, producers, size):
    """With a size of 0 or less nothing was sent and success was returned, or it divided by zero."""
    stored = producers.produce_bulk(messages(50), size)
    rows = read(kafka, name, 50)
    assert sorted(r.value for r in rows) == sorted(b'{"n":%d}' % n for n in range(50))
    assert {(s.partition, s.offset) for s in stored} == {(r.partition, r.offset) for r in rows}


@pytest.mark.parametrize("size", [0, 7])
def test_messages_that_nobody_waits_for_never_block(kafka, name, producers, size):
    """After a few hundred messages whose outcome nobody fetched, the next call waited for ever."""
    done = threading.Event()

    def send():
        producers.produce_async_bulk(messages(10_000), size)
        for message in messages(10_000):
            producers.produce_async(message)
        done.set()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    assert done.wait(60)
    thread.join()
    producers.close()
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        ends = admin.offsets([(name, p) for p in range(3)])
    assert sum(end.offset for end in ends.values()) == 20_000


def test_a_callback_gets_the_place(producers, name):
    told, done = [], threading.Event()
    producers.produce_async(Message("orders", "k", b"x"), callback=lambda *news: (told.append(news), done.set()))
    assert done.wait(20)
    ((stored, error),) = told
    assert (stored.topic, error) == (name, None)


async def test_asyncio_forms(kafka, name, producers):
    stored = await producers.aproduce(Message("orders", "k", b"x"))
    assert stored.topic == name
    many = await producers.aproduce_bulk(messages(100), 30)
    assert len(many) == 100
    assert len(read(kafka, name, 101)) == 101


def test_every_run_of_a_loop_may_produce(producers):
    for _ in range(3):
        stored = asyncio.run(producers.aproduce(Message("orders", "k", b"x")))
        assert stored.offset >= 0
    assert len(producers._outboxes) == 1


# --- copies ----------------------------------------------------------------------------------------------------------


def copy_to(topic, value=b"v", partition=None):
    return Publish(topic, partition, None, value, (("a", b"1"), ("a", None)), "orders-0@0")


def publisher_for(kafka, **settings):
    properties = {"bootstrap.servers": kafka.bootstrap(), "linger.ms": 0, "max.block.ms": 200, **settings}
    troubles = asyncio.Queue()
    pauses = Pauses(first=0.05, longest=0.1)
    publisher = Publisher(lambda: Producer(properties), on_problem=lambda *n: troubles.put_nowait(n), pauses=pauses)
    return publisher, troubles


async def test_a_copy_is_where_it_was_acknowledged(kafka, name):
    publisher, _ = publisher_for(kafka)
    assert await publisher.publish(copy_to(name, partition=2)) == (2, 0)
    places = await asyncio.gather(*(publisher.publish(copy_to(name, partition=2)) for _ in range(500)))
    assert sorted(places) == [(2, n) for n in range(1, 501)]
    await publisher.close()
    row = (await asyncio.to_thread(read, kafka, name, 501))[0]
    assert (row.key, row.value, row.headers) == (None, b"v", (("a", b"1"), ("a", None)))


async def test_a_copy_waits_for_its_topic_to_exist(kafka, name):
    """A copy that could not be written was counted as written, and its record was lost."""
    publisher, troubles = publisher_for(kafka)
    late = f"{name}.late"
    task = asyncio.create_task(publisher.publish(copy_to(late)))
    topic, error = await asyncio.wait_for(troubles.get(), 60)
    assert (topic, error.code) == (late, 3)
    assert not task.done()
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        await asyncio.to_thread(admin.create_topics, {late: 1})
    assert await asyncio.wait_for(task, 60) == (0, 0)
    assert await asyncio.wait_for(troubles.get(), 20) == (late, None)
    await publisher.close()


async def test_a_copy_too_large_waits_for_people(kafka, topic):
    small = topic(max_message_bytes=2_000)
    publisher, troubles = publisher_for(kafka)
    task = asyncio.create_task(publisher.publish(copy_to(small, bytes(10_000))))
    _, error = await asyncio.wait_for(troubles.get(), 60)
    assert error.code == 10
    assert await publisher.publish(copy_to(small)) == (0, 0), "it holds up nobody else"
    assert not task.done()
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        await asyncio.to_thread(admin.alter_topic_config, small, {"max.message.bytes": "100000"})
    assert await asyncio.wait_for(task, 60) == (0, 1)
    await publisher.close()


@pytest.mark.cluster
async def test_copies_survive_the_death_of_a_broker(cluster, cluster_topic):
    """Whoever leads dies in the middle: every copy is acknowledged in the end, and is where it was said to be. One that
    was stored, and whose acknowledgement died with the broker, is acknowledged without its offset, or stored twice."""
    name = cluster_topic(3, min_insync_replicas=2)
    publisher, _ = publisher_for(cluster, **{"delivery.timeout.ms": 3_000, "request.timeout.ms": 1_000})
    await publisher.publish(copy_to(name, b"first"))
    cluster.kill(1)
    values = [b"%d" % n for n in range(300)]
    tasks = [asyncio.create_task(publisher.publish(copy_to(name, v, n % 3))) for n, v in enumerate(values)]
    places = await asyncio.wait_for(asyncio.gather(*tasks), 120)
    await publisher.close()
    rows = {(r.partition, r.offset): r.value for r in await asyncio.to_thread(read_all, cluster, name)}
    assert set(values) <= set(rows.values())
    placed = [(place, value) for place, value in zip(places, values, strict=True) if place[1] >= 0]
    assert placed
    assert [rows[place] for place, _ in placed] == [value for _, value in placed]


async def test_stop_leaves_the_record_unsettled(kafka, name):
    publisher, troubles = publisher_for(kafka)
    task = asyncio.create_task(publisher.publish(copy_to(f"{name}.never")))
    await asyncio.wait_for(troubles.get(), 60)
    publisher.stop()
    with pytest.raises(PublishStopped):
        await task
    await publisher.close(0)
