"""Transactions as the Java consumer sees them: committed, aborted, empty, interleaved and undecided ones."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from confluent_kafka import KafkaException, Producer

from broker.java import java_rows
from broker.produce import Content, Row, new_producer, send
from broker.reading import read_to
from broker.segments import batch_codecs
from multilane import Consumer, TopicPartition

pytestmark = pytest.mark.broker

CODECS = ("none", "lz4", "zstd")
TRANSACTIONS = 40
LEVELS = ("read_committed", "read_uncommitted")


@dataclass
class History:
    """What was written, by what became of it."""

    topic: str
    committed: list[Row]
    aborted: list[Row]
    undecided: list[Row]
    behind: list[Row]  # committed, but behind the first undecided record
    stable: int = -1

    def rows(self, level: str) -> list[Row]:
        if level == "read_committed":
            return sorted(self.committed)
        return sorted(self.committed + self.aborted + self.undecided + self.behind)


class Writer:
    """One transactional producer in the middle of its transaction, or between two."""

    def __init__(self, bootstrap: str, name: str, codec: str) -> None:
        self.producer: Producer = new_producer(
            bootstrap,
            transactional_id=name,
            compression_type=codec,
            linger_ms=5,
            transaction_timeout_ms=600_000,
            message_max_bytes=2_000_000,
        )
        self.producer.init_transactions(30)
        self.name = name
        self.written: list[Row] | None = None
        self.sent = 0

    def write(self, topic: str, count: int) -> None:
        if self.written is None:
            self.producer.begin_transaction()
            self.written = []
        contents = [
            Content(f"{self.name} {self.sent + i}".encode(), f"k{i}".encode(), (("by", b"x"),) if i % 2 else ())
            for i in range(count)
        ]
        self.sent += count
        self.written += send(self.producer, topic, contents)

    def end(self, *, commit: bool) -> list[Row]:
        rows, self.written = self.written or [], None
        if commit:
            self.producer.commit_transaction(30)
        else:
            self.producer.abort_transaction(30)
        return rows


@pytest.fixture(scope="module")
def history(kafka, topic):
    name = topic()
    writers = [Writer(kafka.bootstrap(), f"{name}-{codec}", codec) for codec in CODECS]
    history = History(name, [], [], [], [])
    ended = interleave(writers, history)
    assert abs(ended.count(False) / len(ended) - 0.3) < 0.05
    nothing_but_a_marker(kafka, Writer(kafka.bootstrap(), f"{name}-refused", "none"), name)
    leave_undecided(writers, history)
    assert batch_codecs(kafka, name) == set(CODECS)
    yield history
    writers[0].end(commit=False)


def interleave(writers: list[Writer], history: History) -> list[bool]:
    """Writers take turns in no order: transactions overlap, begin inside each other and end crosswise."""
    chance = random.Random(11)  # noqa: S311 (seeded, so that it repeats)
    outcomes = [i % 10 >= 3 for i in range(TRANSACTIONS)]
    chance.shuffle(outcomes)
    ended: list[bool] = []
    while len(ended) < TRANSACTIONS:
        writer = chance.choice(writers)
        if writer.written is not None and chance.random() < 0.4:
            commit = outcomes[len(ended)]
            (history.committed if commit else history.aborted).extend(writer.end(commit=commit))
            ended.append(commit)
        elif chance.random() < 0.1 and writer.written is None:
            writer.producer.begin_transaction()
            writer.end(commit=True)  # without a record
        else:
            writer.write(history.topic, chance.randint(1, 4))
    for writer in writers:
        if writer.written is not None:
            history.committed.extend(writer.end(commit=True))
    return ended


def nothing_but_a_marker(kafka, writer: Writer, topic: str) -> None:
    """A transaction whose only record the broker refuses leaves an abort marker and no record."""
    before = end_of(kafka, topic, "read_uncommitted")
    writer.producer.begin_transaction()
    writer.producer.produce(topic, bytes(1_500_000), partition=0)
    with pytest.raises(KafkaException):
        writer.producer.commit_transaction(30)
    writer.producer.abort_transaction(30)
    assert end_of(kafka, topic, "read_uncommitted") == before + 1


def leave_undecided(writers: list[Writer], history: History) -> None:
    first, second, third = writers
    second.write(history.topic, 2)  # begins before the undecided one and ends after it began
    first.write(history.topic, 3)
    second.write(history.topic, 2)
    across = second.end(commit=True)
    third.write(history.topic, 2)
    history.aborted.extend(third.end(commit=False))
    second.write(history.topic, 1)
    history.committed.extend(across[:2])
    history.behind = across[2:] + second.end(commit=True)
    history.undecided = list(first.written or [])
    history.stable = history.undecided[0].offset


def end_of(kafka, topic: str, level: str) -> int:
    partition = TopicPartition(topic, 0)
    with reader(kafka, level) as consumer:
        return consumer.end_offsets([partition])[partition]


def reader(kafka, level: str) -> Consumer:
    # A fetch at the end of the log is let go early, so that the next seek need not wait for it.
    return Consumer({"bootstrap.servers": kafka.bootstrap(), "isolation.level": level, "fetch.max.wait.ms": 5})


@pytest.mark.parametrize("level", LEVELS)
def test_it_is_what_java_reads_and_what_was_written(kafka, history, level):
    partition = TopicPartition(history.topic, 0)
    with reader(kafka, level) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        rows = read_to(consumer, partition, consumer.end_offsets([partition])[partition])
    assert rows == java_rows(kafka, history.topic, isolation=level)
    assert rows == history.rows(level)


@pytest.mark.parametrize("level", LEVELS)
def test_every_offset_is_a_good_place_to_start(kafka, history, level):
    partition = TopicPartition(history.topic, 0)
    rows = history.rows(level)
    with reader(kafka, level) as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        for offset in range(end):
            consumer.seek(partition, offset)
            assert read_to(consumer, partition, end) == [row for row in rows if row.offset >= offset]


@pytest.mark.parametrize("level", LEVELS)
def test_at_the_end_of_what_may_be_read_there_is_no_lag(kafka, history, level):
    partition = TopicPartition(history.topic, 0)
    with reader(kafka, level) as consumer:
        consumer.assign([partition])
        consumer.seek_to_beginning()
        read_to(consumer, partition, consumer.end_offsets([partition])[partition])
        assert consumer.current_lag(partition) == 0


def test_the_end_is_where_the_first_undecided_transaction_begins(kafka, history):
    assert end_of(kafka, history.topic, "read_committed") == history.stable
    assert end_of(kafka, history.topic, "read_uncommitted") > history.behind[-1].offset


def test_a_decision_lets_readers_go_on(kafka, topic):
    """Behind an undecided transaction nothing is read; once it is decided, everything in order."""
    name = topic()
    partition = TopicPartition(name, 0)
    slow, quick = (Writer(kafka.bootstrap(), f"{name}-{codec}", codec) for codec in ("lz4", "none"))
    slow.write(name, 2)
    quick.write(name, 3)
    behind = quick.end(commit=True)
    with reader(kafka, "read_committed") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        assert not consumer.poll(1.0)
        assert consumer.position(partition) == 0
        first = slow.end(commit=True)
        markers = 2  # written some time after the commit was acknowledged
        assert read_to(consumer, partition, len(first + behind) + markers) == sorted(first + behind)
