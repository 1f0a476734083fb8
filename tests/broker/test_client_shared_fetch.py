"""Many consumers on one network thread, against a real broker: few connections, and nobody waits for another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from broker.produce import Row, new_producer, numbered, produce, send
from broker.reading import LOOK, Deadline, poll_until, read_rows, row
from multilane import Consumer, TopicPartition
from multilane.client.fetch.buffer import FetchBuffer
from multilane.client.fetch.fetch_connections import FetchConnection
from multilane.client.fetch.fetch_requests import FetchRequests
from multilane.client.net.requests import RawResponse
from multilane.client.sharing import THREADS

pytestmark = pytest.mark.broker

MANY = 31
ROWS = 300


@pytest.fixture(scope="module")
def written(kafka, topic) -> dict[str, list[Row]]:
    """Two topics of two partitions each, and what is in them."""
    found: dict[str, list[Row]] = {}
    for _ in range(2):
        name = topic(partitions=2)
        rows: list[Row] = []
        for partition in range(2):
            rows += produce(kafka.bootstrap(), name, numbered(0, ROWS), partition=partition)
        found[name] = rows
    return found


@pytest.fixture
def opened(kafka) -> Iterator[Opened]:
    with ExitStack() as stack:
        yield Opened(kafka.bootstrap(), stack)


class Opened:
    """Consumers of one thread, closed with the test."""

    def __init__(self, bootstrap: str, stack: ExitStack) -> None:
        self._bootstrap = bootstrap
        self._stack = stack

    def consumer(self, **more: object) -> Consumer:
        return self._stack.enter_context(
            Consumer({"bootstrap.servers": self._bootstrap, "auto.offset.reset": "earliest"}, **more)
        )


def _read_all(consumers: Sequence[tuple[Consumer, int]], deadline: Deadline) -> list[list[Row]]:
    """What each consumer reads, polled in turn, until each has so many rows."""
    read: list[list[Row]] = [[] for _ in consumers]
    while any(len(rows) < count for rows, (_, count) in zip(read, consumers, strict=True)):
        deadline.check(f"reading {[len(rows) for rows in read]}")
        for rows, (consumer, count) in zip(read, consumers, strict=True):
            if len(rows) < count:
                rows += [row(record) for record in consumer.poll(0.01).records()]
    return read


def test_thirty_one_consumers_read_everything_over_three_connections(kafka, written, opened):
    """The same and different topics, from the same and different offsets."""
    names = list(written)
    expected: list[list[Row]] = []
    consumers = []
    for number in range(MANY):
        name, start = names[number % 2], (number % 4) * 50
        consumer = opened.consumer()
        consumer.assign([TopicPartition(name, 0), TopicPartition(name, 1)])
        for partition in consumer.assignment:
            consumer.seek(partition, start)
        consumers.append(consumer)
        expected.append([r for r in written[name] if r.offset >= start])
    assert len({id(consumer._state._lease.thread) for consumer in consumers}) == 1
    read = _read_all([(c, len(rows)) for c, rows in zip(consumers, expected, strict=True)], Deadline(60))
    for rows, wanted in zip(read, expected, strict=True):
        assert Counter(rows) == Counter(wanted)
        for partition in range(2):
            assert [r for r in rows if r.partition == partition] == sorted(
                r for r in wanted if r.partition == partition
            )
    delegate = consumers[0]._state._lease.thread._delegate
    settled = 2 + 1  # fetches and control
    poll_until(consumers[0], lambda: delegate.connection_count <= settled, lambda _: None)
    for _ in range(20):  # and there it stays
        consumers[0].poll(LOOK)
        assert delegate.connection_count <= settled


def test_what_is_written_later_comes_to_all(kafka, topic, opened):
    name = topic(partitions=2)
    consumers = [opened.consumer() for _ in range(MANY)]
    for consumer in consumers:
        consumer.assign([TopicPartition(name, 0), TopicPartition(name, 1)])
    producer = new_producer(kafka.bootstrap())
    written: list[Row] = []
    for turn in range(5):
        written += send(producer, name, numbered(20 * turn, 20), partition=turn % 2)
        got = _read_all([(consumer, 20) for consumer in consumers], Deadline(30))
        assert all(rows == written[-20:] for rows in got)


def test_one_block_is_decoded_for_all(kafka, topic, opened, monkeypatch):
    name = topic()
    filled: list[object] = []
    honest = FetchBuffer.fill
    monkeypatch.setattr(
        FetchBuffer, "fill", lambda self, slot, block: (filled.append(block), honest(self, slot, block))[1]
    )
    consumers = [opened.consumer() for _ in range(5)]
    for consumer in consumers:
        consumer.assign([TopicPartition(name, 0)])
        consumer.poll(0.05)
    producer = new_producer(kafka.bootstrap())
    written = send(producer, name, numbered(0, 10))
    assert _read_all([(c, 10) for c in consumers], Deadline(30)) == [written] * 5
    assert len(filled) >= 5
    assert len({id(block) for block in filled}) < len(filled)


def test_a_lagging_partition_does_not_wait_behind_a_fetch_that_waits(kafka, written, topic, opened, monkeypatch):
    """Fetches that wait 20 s hold every line; another consumer of the thread comes and has its records before any of
    them is answered."""
    empty = topic(partitions=4)
    patient = {"fetch.max.wait.ms": 20_000}
    waiting = opened.consumer(**patient)
    waiting.assign([TopicPartition(empty, number) for number in range(4)])
    thread = waiting._state._lease.thread
    poll_until(waiting, lambda: _all_connections_wait(thread), lambda _: None)
    (manager,) = thread._fetching._managers.values()
    late = opened.consumer(**patient)
    name = next(iter(written))
    late.assign([TopicPartition(name, 0)])
    answered: list[str] = []
    honest = FetchRequests._on_frame

    def watched(requests: FetchRequests, connection: FetchConnection, raw: RawResponse, now: float) -> None:
        answered.append(connection.channel.owner)
        honest(requests, connection, raw, now)

    monkeypatch.setattr(FetchRequests, "_on_frame", watched)
    assert read_rows(late, ROWS) == [r for r in written[name] if r.partition == 0]
    assert manager._owner not in answered, "a fetch of the base was answered: it did not wait"
    assert answered


def _all_connections_wait(thread: Any) -> bool:
    brokers = [broker for m in thread._fetching._managers.values() for broker in m._connections._brokers.values()]
    return bool(brokers) and all(connection.state.in_flight for broker in brokers for connection in broker.base)


def test_one_that_closes_or_is_slow_changes_nothing_for_the_others(kafka, topic, opened):
    name = topic()
    partition = TopicPartition(name, 0)
    slow = opened.consumer(**{"fetch.buffer.bytes": 1 << 20, "max.partition.fetch.bytes": 1 << 20})
    fast = opened.consumer()
    leaver = opened.consumer()
    for consumer in (slow, fast, leaver):
        consumer.assign([partition])
    big = numbered(0, 60, size=100_000)
    producer = new_producer(kafka.bootstrap())
    first = send(producer, name, big)
    leaver.close()
    assert read_rows(fast, 60) == first
    second = send(producer, name, numbered(60, 5))
    assert read_rows(fast, 5) == second
    assert read_rows(slow, 65) == first + second


def test_the_thread_is_gone_with_the_last_of_them(kafka, topic):
    name = topic()
    consumers = [Consumer({"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}) for _ in range(3)]
    for consumer in consumers:
        consumer.assign([TopicPartition(name, 0)])
        consumer.poll(0.05)
    thread = consumers[0]._state._lease.thread
    for consumer in consumers:
        assert not thread.ended.done()
        consumer.close()
    thread.ended.result(10)
    assert all(shared.thread is not thread for shared in THREADS._threads.values())


@pytest.mark.parametrize(
    "small", [{"fetch.buffer.bytes": 1}, {"fetch.buffer.bytes": 65_536}, {"queued.max.messages.kbytes": 100}]
)
def test_a_small_buffer_reads_less_at_a_time_and_not_nothing(written, opened, small):
    """Batches that are larger than the buffer too, alone and on a line that is shared with others."""
    names = list(written)
    consumers = [opened.consumer(**small), opened.consumer(**small), opened.consumer()]
    for consumer in consumers:
        consumer.assign([TopicPartition(name, number) for name in names for number in range(2)])
    everything = sorted(r for rows in written.values() for r in rows)
    for rows in _read_all([(consumer, len(everything)) for consumer in consumers], Deadline(30)):
        assert sorted(rows) == everything
