"""Where a consumer reads: seeking, looking up, pausing, slicing; and its life in threads and processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from broker.own_threads import own_threads
from broker.produce import Content, new_producer, numbered, produce, send, values_of
from broker.reading import LOOK, Deadline, poll_until, read_rows, read_to, row
from multilane import AsyncConsumer, Consumer, OffsetAndTimestamp, TopicPartition
from multilane.clock import SystemClock
from multilane.errors import (
    ClientClosed,
    ConcurrentUse,
    ConfigError,
    MultilaneError,
    NoOffsetForPartition,
    NotAssigned,
    OperationTimeout,
    WakeupError,
)

pytestmark = pytest.mark.broker

BASE = 1_700_000_000_000
MINUTE = 60_000


@pytest.fixture(scope="module")
def timed(kafka, topic):
    """Records a minute apart in partition 0, one of them out of order; partition 1 is empty."""
    name = topic(partitions=2)
    minutes = [*range(50), 99, *range(50, 60)]
    contents = [Content(b"m%d" % minute, None, (), BASE + minute * MINUTE) for minute in minutes]
    return name, produce(kafka.bootstrap(), name, contents)


def consumer_of(kafka, **more: object) -> Consumer:
    return Consumer({"bootstrap.servers": kafka.bootstrap()}, **more)


# --- places ----------------------------------------------------------------------------------------------------------


def test_seeking(kafka, timed):
    name, rows = timed
    full, empty = TopicPartition(name, 0), TopicPartition(name, 1)
    with consumer_of(kafka) as consumer:
        consumer.assign([full])
        consumer.seek(full, 17)
        assert consumer.position(full) == 17
        assert read_to(consumer, full, 61) == rows[17:]
        consumer.seek_to_beginning()
        assert consumer.position(full) == 0
        assert read_rows(consumer, 1)[0] == rows[0]
        consumer.seek_to_end([full])
        assert consumer.position(full) == 61
        consumer.seek_to_times({full: BASE + 30 * MINUTE - 1})
        assert consumer.position(full) == 30
        assert read_to(consumer, full, 61) == rows[30:]
        consumer.seek_to_times({full: BASE + 1_000 * MINUTE})
        assert consumer.position(full) == 61
        with pytest.raises(NotAssigned):
            consumer.seek(empty, 0)
        with pytest.raises(ValueError, match="write a number from 0"):
            consumer.seek(full, -1)


def test_looking_up(kafka, timed):
    name, _ = timed
    full, empty = TopicPartition(name, 0), TopicPartition(name, 1)
    with consumer_of(kafka) as consumer:
        assert consumer.partitions_for(name) == (full, empty)
        assert consumer.beginning_offsets([full, empty]) == {full: 0, empty: 0}
        assert consumer.end_offsets([full, empty]) == {full: 61, empty: 0}
        at = BASE + 20 * MINUTE
        found = consumer.offsets_for_times({full: at - 5, empty: at})
        assert found == {full: OffsetAndTimestamp(20, at, 0), empty: None}
        assert consumer.offsets_for_times({full: BASE + 61 * MINUTE})[full].offset == 50  # the one out of order
        assert consumer.offsets_for_times({full: BASE + 100 * MINUTE}) == {full: None}
        newest = consumer.max_timestamp_offsets([full, empty])
        assert newest == {full: OffsetAndTimestamp(50, BASE + 99 * MINUTE, 0), empty: None}
        assert consumer.end_offsets([]) == {}
        with pytest.raises(OperationTimeout, match=r"looking up the offsets of nowhere-0"):
            consumer.end_offsets([TopicPartition("nowhere", 0)], timeout=0.5)


def test_a_look_up_that_finds_no_broker_says_why():
    properties = {"bootstrap.servers": "127.0.0.1:1", "request.timeout.ms": 300, "fetch.max.wait.ms": 100}
    with Consumer(properties) as consumer:
        with pytest.raises(OperationTimeout, match=r"cannot connect to .*127\.0\.0\.1:1: Connection refused"):
            consumer.end_offsets([TopicPartition("nowhere", 0)], timeout=1.0)
        with pytest.raises(OperationTimeout, match=r"cannot connect to .*127\.0\.0\.1:1: Connection refused"):
            consumer.partitions_for("nowhere", timeout=0.5)
        assert not consumer.poll(0.1)


async def test_looking_up_in_a_loop(kafka, timed):
    name, rows = timed
    full = TopicPartition(name, 0)
    async with AsyncConsumer({"bootstrap.servers": kafka.bootstrap()}) as consumer:
        assert await consumer.end_offsets([full]) == {full: 61}
        assert (await consumer.offsets_for_times({full: BASE + 1})) == {full: OffsetAndTimestamp(1, BASE + MINUTE, 0)}
        consumer.assign([full])
        consumer.seek_to_times({full: BASE + 55 * MINUTE})
        assert await consumer.position(full) == 50
        assert [row(record) for record in (await consumer.poll(10.0)).records()] == rows[50:]
        consumer.seek_to_end()
        assert await consumer.position(full) == 61


@pytest.mark.parametrize(("reset", "position"), [("earliest", 0), ("latest", 61), ("by_duration:PT1H", 61)])
def test_where_a_new_partition_begins(kafka, timed, reset, position):
    full = TopicPartition(timed[0], 0)
    with consumer_of(kafka, auto_offset_reset=reset) as consumer:
        consumer.assign([full])
        assert consumer.position(full) == position


def test_without_a_policy_the_application_must_decide(kafka, timed):
    full, empty = TopicPartition(timed[0], 0), TopicPartition(timed[0], 1)
    with consumer_of(kafka) as consumer:
        consumer.assign([full, empty])
        with pytest.raises(NoOffsetForPartition, match=r"has no position: seek first"):
            consumer.poll(0)
        assert set(consumer.stopped) == {full, empty}
        consumer.seek(full, 60)
        consumer.seek(empty, 0)
        assert consumer.stopped == {}
        assert len(read_rows(consumer, 1)) == 1


def test_lag_is_what_is_left(kafka, timed):
    full = TopicPartition(timed[0], 0)
    with consumer_of(kafka, max_poll_records=10) as consumer:
        consumer.assign([full])
        consumer.seek(full, 0)
        assert consumer.current_lag(full) is None
        assert len(read_rows(consumer, 10)) == 10
        assert consumer.current_lag(full) == 51
        read_to(consumer, full, 61)
        assert consumer.current_lag(full) == 0


# --- amounts ---------------------------------------------------------------------------------------------------------


def test_a_poll_hands_out_as_much_as_asked_for(kafka, topic):
    name = topic(partitions=2)
    written = [produce(kafka.bootstrap(), name, numbered(0, 500), partition=p, linger_ms=20) for p in (0, 1)]
    partitions = [TopicPartition(name, p) for p in (0, 1)]
    read: dict[int, list] = {0: [], 1: []}
    sizes = []
    with consumer_of(kafka, max_poll_records=7, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)

        def take(blocks):
            sizes.append(blocks.rows)
            for record in blocks.records():
                read[record.partition].append(row(record))
            for partition in partitions:
                if read[partition.partition]:
                    assert consumer.position(partition) == read[partition.partition][-1].offset + 1

        poll_until(consumer, lambda: sum(map(len, read.values())) >= 1_000, take)
    assert [read[0], read[1]] == written
    assert max(sizes) == 7


def test_a_paused_partition_does_not_starve_the_others(kafka, topic):
    """Its records fill the small buffer; they are given up and fetched again when it goes on."""
    name = topic(partitions=2)
    large = produce(kafka.bootstrap(), name, numbered(0, 8_000, size=1_000), linger_ms=20)
    other = produce(kafka.bootstrap(), name, numbered(0, 6_000, size=1_000), partition=1, linger_ms=20)
    paused, running = TopicPartition(name, 0), TopicPartition(name, 1)
    properties = {"fetch.buffer.bytes": 2_000_000, "max.partition.fetch.bytes": 1_000_000, "max.poll.records": 100}
    with consumer_of(kafka, auto_offset_reset="earliest", **properties) as consumer:
        consumer.assign([paused])
        head = read_rows(consumer, 100)
        buffer = consumer._state._buffer
        deadline = Deadline(20)
        while buffer.charged_bytes < 1_000_000:  # fetched ahead
            deadline.check("the buffer does not fill")
            threading.Event().wait(LOOK)
        consumer.pause([paused])
        assert consumer.paused == {paused}
        consumer.assign([paused, running])
        assert read_rows(consumer, 6_000) == other
        consumer.resume([paused])
        assert head + read_rows(consumer, 7_900) == large
        assert not consumer.poll(0.2)
        assert consumer.position(paused) == 8_000


def test_pausing_holds_back_what_is_already_here(kafka, topic):
    name = topic()
    partition = TopicPartition(name, 0)
    written = produce(kafka.bootstrap(), name, numbered(0, 100))
    with consumer_of(kafka, auto_offset_reset="earliest", max_poll_records=10) as consumer:
        consumer.assign([partition])
        first = read_rows(consumer, 10)
        consumer.pause([partition])
        assert not consumer.poll(0.3)
        assert consumer.position(partition) == 10
        consumer.resume([partition])
        assert first + read_rows(consumer, 90) == written


def test_partitions_come_and_go(kafka, topic):
    """Assigning anew keeps the place of what stays, and brings nothing of what has gone."""
    name = topic(partitions=3)
    producer = new_producer(kafka.bootstrap())
    for p in range(3):
        send(producer, name, numbered(100 * p, 50), partition=p)
    partitions = [TopicPartition(name, p) for p in range(3)]
    with consumer_of(kafka, auto_offset_reset="earliest", max_poll_records=5) as consumer:
        consumer.assign(partitions[:2])
        first = read_rows(consumer, 20)
        consumer.assign(partitions[1:])
        rest: list = []
        poll_until(
            consumer,
            lambda: all(consumer.position(p) == 50 for p in partitions[1:]),
            lambda blocks: rest.extend(map(row, blocks.records())),
        )
        assert {r.partition for r in rest} == {1, 2}
        assert [r.offset for r in [*first, *rest] if r.partition == 1] == list(range(50))
        assert [r.offset for r in rest if r.partition == 2] == list(range(50))
        consumer.assign([])
        assert not consumer.poll(0.1)


# --- threads and processes -------------------------------------------------------------------------------------------


def test_wakeup_ends_a_poll(kafka, timed):
    full = TopicPartition(timed[0], 0)
    with consumer_of(kafka, auto_offset_reset="latest") as consumer:
        consumer.assign([full])
        consumer.position(full)
        waker = threading.Thread(target=lambda: wait_busy(consumer) and consumer.wakeup())
        waker.start()
        with pytest.raises(WakeupError):
            consumer.poll(30.0)
        waker.join()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(0)
        consumer.seek(full, 60)
        assert len(read_rows(consumer, 1)) == 1


def wait_busy(consumer: Consumer) -> bool:
    deadline = Deadline(10)
    while not consumer._state._users.is_busy:
        deadline.check("nobody uses the consumer")
        threading.Event().wait(LOOK)
    return True


def test_one_thread_at_a_time(kafka, timed):
    with consumer_of(kafka, auto_offset_reset="latest") as consumer:
        consumer.assign([TopicPartition(timed[0], 0)])
        outcome: list[BaseException] = []

        def poll() -> None:
            try:
                consumer.poll(30.0)
            except WakeupError as error:
                outcome.append(error)

        thread = threading.Thread(target=poll)
        thread.start()
        wait_busy(consumer)
        for call in (lambda: consumer.poll(0), lambda: consumer.assign([]), lambda: consumer.end_offsets([])):
            with pytest.raises(ConcurrentUse):
                call()
        consumer.wakeup()
        thread.join(10)
        assert len(outcome) == 1
        consumer.poll(0)


def test_consumers_share_a_network_thread(kafka, timed):
    full = TopicPartition(timed[0], 0)
    with consumer_of(kafka) as first, consumer_of(kafka) as second:
        assert len(own_threads("multilane-network-")) == 1
        for consumer, start in ((first, 0), (second, 40)):
            consumer.assign([full])
            consumer.seek(full, start)
        assert read_to(second, full, 61) == timed[1][40:]
        assert read_to(first, full, 61) == timed[1]
        first.close()
        assert len(own_threads("multilane-network-")) == 1
        second.seek(full, 0)
        assert read_to(second, full, 61) == timed[1]
        with pytest.raises(ClientClosed):
            first.poll(0)
    assert own_threads() == []


def test_closing_twice_takes_nothing_from_the_others(kafka, timed):
    properties = {"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}
    with Consumer(properties) as stays, Consumer(properties) as goes:
        for _ in range(3):
            goes.close()
        stays.assign([TopicPartition(timed[0], 0)])
        assert stays.poll(20)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda c, p: c.seek(p, 10**30),
        lambda c, p: c.seek(p, 5.0),
        lambda c, p: c.seek(p, 1, leader_epoch=2**40),
        lambda c, p: c.seek_to_times({p: 10**30}),
        lambda c, p: c.offsets_for_times({p: 10**30}),
        lambda c, p: c.assign([(p.topic, 2**40)]),
        lambda c, p: c.partitions_for("\ud800"),
        lambda c, p: c.partitions_for("x" * 40_000),
    ],
)
def test_values_that_no_request_can_carry_harm_nobody(kafka, timed, wrong):
    properties = {"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}
    place = TopicPartition(timed[0], 0)
    with Consumer(properties) as other, Consumer(properties) as consumer:
        consumer.assign([tuple(place)])
        with pytest.raises((ValueError, MultilaneError)):
            wrong(consumer, place)
        consumer.seek(tuple(place), 0)
        assert consumer.poll(20)
        other.assign([place])
        assert other.poll(20)


def test_nothing_is_left_after_close(kafka, timed):
    full = TopicPartition(timed[0], 0)

    def live() -> None:
        with consumer_of(kafka, auto_offset_reset="earliest") as consumer:
            consumer.assign([full])
            assert read_to(consumer, full, 61) == timed[1]

    live()
    before = open_files()
    for _ in range(10):
        live()
    consumer_of(kafka).close()
    Consumer(bootstrap_servers="127.0.0.1:1").close()
    assert open_files() == before
    assert own_threads() == []


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_closing_while_a_look_up_waits(kafka):
    consumer = consumer_of(kafka)
    outcome: list[BaseException] = []

    def look_up() -> None:
        try:
            consumer.end_offsets([TopicPartition("nowhere", 0)], timeout=30)
        except ClientClosed as error:
            outcome.append(error)

    thread = threading.Thread(target=look_up)
    thread.start()
    wait_busy(consumer)
    clock = SystemClock()
    begin = clock.monotonic()
    consumer.close(timeout=5)
    thread.join(5)
    assert clock.monotonic() - begin < 5
    assert len(outcome) == 1


FORKING = Path(__file__).with_name("forking.py")


def test_a_forked_process_makes_its_own(kafka, timed):
    """In a process of its own: forking this one would fork all of pytest."""
    told = subprocess.run(
        [sys.executable, FORKING, kafka.bootstrap(), timed[0]],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.split() == ["child:ForkedClient", "child:61", "parent:61", "parent:threads:0"]


# --- spelling --------------------------------------------------------------------------------------------------------


def test_an_unknown_property_is_refused_with_a_guess():
    with pytest.raises(ConfigError, match=r"auto\.ofset\.reset.*did you mean auto\.offset\.reset"):
        Consumer({"bootstrap.servers": "127.0.0.1:1", "auto.ofset.reset": "earliest"})
    assert own_threads() == []


def test_other_spellings_are_understood(kafka, timed):
    full = TopicPartition(timed[0], 0)
    with Consumer(bootstrapServers=kafka.bootstrap(), auto_offset_reset="smallest", maxPollRecords=3) as consumer:
        consumer.assign([full])
        assert values_of(read_rows(consumer, 3)) == [b"m0", b"m1", b"m2"]
