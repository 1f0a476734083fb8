"""Brokers, leaders and topics that go away: reading goes on by itself, or stops with an error that says why."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from broker.flow import Flow
from broker.own_threads import own_threads
from broker.produce import Content, Row, new_producer, numbered, produce, send, values_of
from broker.reading import CLOCK, LOOK, Deadline, poll_until, read_rows, read_to, row
from broker.segments import log_files
from broker.topics import topic_factory
from multilane import Consumer, TopicPartition
from multilane.dev.kafka import KafkaCluster
from multilane.errors import CorruptBatch, LogTruncated, OffsetOutOfRange
from multilane.metrics.observer import Counts

pytestmark = pytest.mark.broker

# Failure is noticed on the time scale of the faults here.
PROMPT = {"request.timeout.ms": 3_000, "auto.offset.reset": "earliest"}


class Reading:
    """Reads on until told otherwise and keeps the rows by partition."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.rows: dict[int, list[Row]] = {}

    def until(self, goal, timeout: float = 60.0) -> None:
        poll_until(self.consumer, goal, self.take, timeout)

    def take(self, blocks) -> None:
        for record in blocks.records():
            self.rows.setdefault(record.partition, []).append(row(record))

    def count(self, partition: int | None = None) -> int:
        return sum(len(rows) for p, rows in self.rows.items() if partition in (None, p))

    def until_beyond(self, flow: Flow, partitions: Iterable[int], count: int = 50) -> None:
        """Reads until there are so many more of each partition than the brokers have now."""
        goal = {p: len(flow.acknowledged[p]) + count for p in partitions}
        self.until(lambda: all(self.count(p) >= wanted for p, wanted in goal.items()))

    def check(self, flow: Flow) -> None:
        """The logs, each offset once and in order; and in them what was acknowledged, nothing lost and in order."""
        ends = flow.end()
        self.until(lambda: self.count() >= sum(ends.values()))
        self.take(self.consumer.poll(0.2))  # there is no more; what comes nevertheless is named below
        for partition, values in flow.acknowledged.items():
            rows = self.rows[partition]
            assert [r.offset for r in rows] == list(range(ends[partition]))
            assert list(dict.fromkeys(values_of(rows))) == values  # what the producer sent twice lies there twice


def admin_of(kafka: KafkaCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": kafka.bootstrap(), "log_level": 0})


def leader_of(admin: AdminClient, topic: str, partition: int = 0) -> int:
    """The leader's id; -1 while there is none, or the broker that was asked has not heard of the partition."""
    found = admin.list_topics(topic, timeout=10).topics[topic].partitions.get(partition)
    return -1 if found is None else int(found.leader)


def consumer_of(kafka: KafkaCluster, topic: str, partitions: int = 1, **more: object) -> Consumer:
    observer = more.pop("observer", None)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap(), **PROMPT, **more}, observer=observer)
    consumer.assign([TopicPartition(topic, p) for p in range(partitions)])
    return consumer


# --- one node --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def lone() -> Iterator[KafkaCluster]:
    """A node that tests may stop; they start it again."""
    with KafkaCluster(heap="256m") as kafka:
        yield kafka


@pytest.mark.parametrize("end", ["kill", "stop"])
def test_a_broker_that_comes_back(lone, end):
    name = topic_factory(lone)()
    before = produce(lone.bootstrap(), name, numbered(0, 100))
    with consumer_of(lone, name) as consumer:
        assert read_rows(consumer, 100) == before
        getattr(lone, end)(1)
        assert not consumer.poll(1.0)
        lone.start(1)
        after = produce(lone.bootstrap(), name, numbered(100, 100))
        assert read_rows(consumer, 100) == after


def test_a_consumer_may_be_there_before_the_broker(lone):
    name = topic_factory(lone)()
    lone.kill(1)
    with consumer_of(lone, name) as consumer:
        assert not consumer.poll(0.5)
        lone.start(1)
        written = produce(lone.bootstrap(), name, numbered(0, 10))
        assert read_rows(consumer, 10) == written


def test_close_and_poll_keep_their_time_while_the_broker_hangs(lone):
    name = topic_factory(lone)()
    produce(lone.bootstrap(), name, numbered(0, 10))
    consumer = consumer_of(lone, name)
    assert len(read_rows(consumer, 10)) == 10
    lone.pause(1)
    try:
        begin = CLOCK.monotonic()
        assert not consumer.poll(0.5)
        assert 0.5 <= CLOCK.monotonic() - begin < 3
        consumer.close(timeout=3)
        assert CLOCK.monotonic() - begin < 6
        assert own_threads() == []
        with consumer_of(lone, name) as unanswered:  # dials a broker that never answers
            assert not unanswered.poll(0.3)
        assert own_threads() == []
    finally:
        lone.resume(1)


@pytest.fixture
def damaged(lone) -> str:
    """Three batches of ten records; a byte of the second changed on the broker's disk.

    For one test: a broker that was killed looks through its logs and cuts off what is broken.
    """
    name = topic_factory(lone)()
    producer = new_producer(lone.bootstrap(), linger_ms=50)
    for first in (0, 10, 20):
        send(producer, name, numbered(first, 10, size=100))
    lone.stop(1)  # in good order: the broker will not look at its log again
    (file,) = log_files(lone, name)
    content = bytearray(file.read_bytes())
    place = content.index(b".15")  # the value of offset 15 ends with its number
    content[place] ^= 1
    file.write_bytes(content)
    lone.start(1)
    return name


def test_a_batch_that_rotted_on_the_disk_stops_its_partition(lone, damaged):
    """Everything before it is read, nothing of it and nothing behind it; the application decides how to go on."""
    partition = TopicPartition(damaged, 0)
    counts = Counts()
    with consumer_of(lone, damaged, observer=counts) as consumer:
        rows = read_rows(consumer, 10)
        assert [r.offset for r in rows] == list(range(10))
        with pytest.raises(CorruptBatch, match=rf"{damaged}-0 at offset 10 from broker 1 \(127\.0\.0\.1:\d+\)") as told:
            poll_until(consumer, lambda: False, lambda blocks: pytest.fail(f"read {blocks}") if blocks else None)
        assert (told.value.topic, told.value.partition, told.value.offset) == (damaged, 0, 10)
        assert consumer.position(partition) == 10
        assert set(consumer.stopped) == {partition}
        assert counts.total("batch.unreadable") == 3  # once, and twice again
        consumer.seek(partition, 20)
        assert [r.offset for r in read_rows(consumer, 10)] == list(range(20, 30))
    with consumer_of(lone, damaged, **{"check.crcs": False}) as consumer:
        rows = read_rows(consumer, 30)
    assert [r.offset for r in rows] == list(range(30))  # whoever wants no checks gets the bytes
    assert rows[15].value != numbered(15, 1, size=100)[0].value
    assert rows[16].value == numbered(16, 1, size=100)[0].value


# --- topics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [30, 200])
def test_a_topic_made_again_is_read_from_its_beginning(kafka, topic, caplog, eventually, records):
    """Whether the old position lies beyond the new log or inside it: nothing of the new topic is skipped."""
    name = topic()
    counts = Counts()
    old = produce(kafka.bootstrap(), name, numbered(0, 100))
    admin = admin_of(kafka)
    with consumer_of(kafka, name, observer=counts) as consumer, caplog.at_level(logging.WARNING, "multilane"):
        assert read_rows(consumer, 100) == old
        admin.delete_topics([name], operation_timeout=30)[name].result(30)
        eventually(lambda: name not in admin.list_topics(timeout=10).topics)
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        eventually(lambda: name in admin.list_topics(timeout=10).topics)
        new = produce(kafka.bootstrap(), name, numbered(1_000, records))
        assert read_rows(consumer, records) == new
        assert consumer.position(TopicPartition(name, 0)) == records
    assert counts.total("topic.recreated") == 1
    assert f"{name}-0: the topic was deleted and created again" in caplog.text


@pytest.mark.parametrize("records", [30, 200])
def test_nor_is_anything_skipped_by_one_who_comes_with_a_place_in_the_old_topic(kafka, topic, eventually, records):
    name = topic()
    produce(kafka.bootstrap(), name, numbered(0, 100))
    partition, admin = TopicPartition(name, 0), admin_of(kafka)
    with consumer_of(kafka, name) as consumer:
        ids = consumer.topic_ids([name])
        consumer.seek(partition, 60, topic_id=ids[name])
        assert read_rows(consumer, 40)[0].offset == 60
    admin.delete_topics([name], operation_timeout=30)[name].result(30)
    eventually(lambda: name not in admin.list_topics(timeout=10).topics)
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    eventually(lambda: name in admin.list_topics(timeout=10).topics)
    new = produce(kafka.bootstrap(), name, numbered(1_000, records))
    with consumer_of(kafka, name) as consumer:
        consumer.seek(partition, 100, topic_id=ids[name])
        assert read_rows(consumer, records) == new
        assert consumer.topic_ids([name]) != ids


def test_partitions_may_be_added(kafka, topic):
    """A partition that is assigned before it exists is read from its first record on."""
    name = topic()
    produce(kafka.bootstrap(), name, numbered(0, 10))
    with consumer_of(kafka, name, partitions=3) as consumer:
        assert len(read_rows(consumer, 10)) == 10
        admin = admin_of(kafka)
        admin.create_partitions([NewPartitions(name, 3)])[name].result(30)
        producer = new_producer(kafka.bootstrap())
        written = send(producer, name, numbered(0, 20), partition=1) + send(
            producer, name, numbered(0, 20), partition=2
        )
        assert sorted(read_rows(consumer, 40)) == sorted(written)
        assert len(consumer.partitions_for(name)) == 3


def test_a_topic_may_be_made_later(kafka):
    name = f"later-{CLOCK.monotonic()}"
    with consumer_of(kafka, name) as consumer:
        assert not consumer.poll(0.3)
        admin = admin_of(kafka)
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
        written = produce(kafka.bootstrap(), name, numbered(0, 10))
        assert read_rows(consumer, 10) == written


# --- offsets that are not in the log ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shortened(kafka, topic):
    """Offsets 50 to 99 are left of 100; the last 20 are of today, all others of last week."""
    name = topic(retention_ms=-1)
    now = int(CLOCK.wall() * 1_000)
    week = 7 * 24 * 3_600_000
    contents = [Content(b"%d" % i, None, (), now if i >= 80 else now - week) for i in range(100)]
    rows = produce(kafka.bootstrap(), name, contents)
    place = Place(name, 0, 50)
    admin = admin_of(kafka)
    admin.delete_records([place])[place].result(30)
    return name, rows[50:]


@pytest.mark.parametrize("offset", [5, 49, 101, 5_000])
def test_without_a_policy_a_lost_offset_is_an_error(kafka, shortened, offset):
    name, rows = shortened
    partition = TopicPartition(name, 0)
    counts = Counts()
    with Consumer({"bootstrap.servers": kafka.bootstrap()}, observer=counts) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, offset)
        with pytest.raises(OffsetOutOfRange, match=f"offset {offset} is not in the log") as told:
            consumer.poll(10.0)
        assert (told.value.topic, told.value.partition, told.value.offset) == (name, 0, offset)
        assert consumer.position(partition) == offset
        assert set(consumer.stopped) == {partition}
        with pytest.raises(OffsetOutOfRange):
            consumer.poll(0.1)  # it stays stopped, and says so
        assert counts.total("offset.out_of_range") == 1
        consumer.seek(partition, 60)
        assert read_to(consumer, partition, 100) == rows[10:]


@pytest.mark.parametrize(
    ("reset", "goes_on"), [("earliest", 50), ("latest", 100), ("by_duration:P1D", 80), ("by_duration:P30D", 50)]
)
def test_with_a_policy_reading_goes_on_where_it_says(kafka, shortened, caplog, reset, goes_on):
    name, rows = shortened
    partition = TopicPartition(name, 0)
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": reset}) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 5)
        with caplog.at_level(logging.WARNING, "multilane"):
            assert read_to(consumer, partition, 100) == [r for r in rows if r.offset >= goes_on]
    assert f"{name}-0: offset 5 is not in the log" in caplog.text
    fate = "were deleted before they were read" if goes_on == 50 and reset == "earliest" else "are skipped"
    assert f"{goes_on - 5} offsets from 5 on {fate}" in caplog.text


# --- three nodes -----------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_a_killed_leader_loses_and_doubles_nothing(cluster, cluster_topic):
    name = cluster_topic(partitions=3, min_insync_replicas=2)
    admin = admin_of(cluster)
    with consumer_of(cluster, name, partitions=3) as consumer, Flow(cluster, name, 3) as flow:
        reading = Reading(consumer)
        reading.until(lambda: reading.count() > 300)
        for _ in range(2):  # the second time perhaps the one that has just taken over
            victim = leader_of(admin, name)
            cluster.kill(victim)
            reading.until_beyond(flow, range(3))
            cluster.start(victim)
            reading.until(lambda: leader_of(admin, name) >= 0)
        reading.check(flow)


@pytest.mark.cluster
def test_a_leader_that_hangs_holds_nobody_else_up(cluster, cluster_topic):
    name = cluster_topic(partitions=3, min_insync_replicas=2)
    admin = admin_of(cluster)
    with consumer_of(cluster, name, partitions=3) as consumer, Flow(cluster, name, 3) as flow:
        reading = Reading(consumer)
        reading.until(lambda: all(reading.count(p) > 50 for p in range(3)))
        leaders = [leader_of(admin, name, p) for p in range(3)]
        victim = leaders[0]
        others = [p for p in range(3) if leaders[p] != victim]
        cluster.pause(victim)
        reading.until_beyond(flow, others)
        reading.until_beyond(flow, range(3))
        cluster.resume(victim)
        reading.until_beyond(flow, range(3))
        reading.check(flow)


@pytest.mark.cluster
def test_all_brokers_down_and_back(cluster, cluster_topic):
    name = cluster_topic(partitions=3, min_insync_replicas=2)
    with consumer_of(cluster, name, partitions=3) as consumer:
        reading = Reading(consumer)
        with Flow(cluster, name, 3) as flow:
            reading.until(lambda: reading.count() > 100)
            try:
                for node in (1, 2, 3):
                    cluster.kill(node)
                window = Deadline(2)
                while not window.over:
                    reading.take(consumer.poll(LOOK))  # says nothing, waits
            finally:
                with ThreadPoolExecutor(3) as pool:  # one alone is no quorum
                    list(pool.map(cluster.start, (1, 2, 3)))
            reading.until_beyond(flow, range(3))
            reading.check(flow)


@pytest.mark.cluster
@pytest.mark.parametrize("new_records", [pytest.param(0, marks=pytest.mark.long), 150])
def test_records_that_an_unclean_election_took_away_are_missed(cluster, eventually, caplog, new_records):
    """Offsets 50 to 99 were read from a leader that died alone with them; its successor knows 0 to 49, then others."""
    first, second = 1, 2
    admin = admin_of(cluster)
    name = f"unclean-{new_records}-{CLOCK.monotonic()}"
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    wanted = NewTopic(name, num_partitions=1, replica_assignment=[[first, second]], config=config)
    admin.create_topics([wanted], operation_timeout=30)[name].result(30)
    eventually(lambda: leader_of(admin, name) == first)
    partition = TopicPartition(name, 0)
    common = produce(cluster.bootstrap(), name, numbered(0, 50), acks="all")
    counts = Counts()
    strict = consumer_of(cluster, name, **{"auto.offset.reset": "none"})
    lenient = consumer_of(cluster, name, observer=counts)
    with strict, lenient, caplog.at_level(logging.WARNING, "multilane"):
        strict.seek(partition, 0)
        cluster.stop(second)
        lost = produce(cluster.bootstrap(), name, numbered(100, 50), acks=1)
        for consumer in (strict, lenient):
            assert read_rows(consumer, 100) == common + lost
        cluster.kill(first)
        cluster.start(second)
        eventually(lambda: leader_of(admin, name) == second, 60)
        others = produce(cluster.bootstrap(), name, numbered(1_000, new_records), acks=1) if new_records else []
        with pytest.raises(LogTruncated, match="the last common offset is 50") as told:
            poll_until(strict, lambda: False, lambda blocks: pytest.fail(f"read {blocks}") if blocks else None)
        assert (told.value.topic, told.value.partition) == (name, 0)
        assert (told.value.offset, told.value.diverges_at) == (100, 50)
        assert set(strict.stopped) == {partition}
        assert read_to(lenient, partition, 50 + new_records) == others
        assert counts.total("log.truncated") == 1
        strict.seek(partition, 50)
        assert read_to(strict, partition, 50 + new_records) == others
    assert f"{name}-0: the log was truncated below offset 100" in caplog.text
