"""A topic that the broker has really compacted: gaps in the offsets, tombstones, batches that begin in a gap."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from broker.java import java_rows
from broker.produce import Content, Row, new_producer, send
from broker.reading import Deadline, read_to
from multilane import Consumer, TopicPartition

pytestmark = pytest.mark.broker

KEYS = 90


@pytest.fixture(scope="module")
def compacted(kafka, topic):
    """The topic, and its rows once the cleaner has been at work and has nothing left to do."""
    name = topic(
        cleanup_policy="compact",
        segment_ms=100,
        min_cleanable_dirty_ratio=0.0001,
        delete_retention_ms=3_600_000,
        max_compaction_lag_ms=500,
    )
    producer = new_producer(kafka.bootstrap(), compression_type="lz4", linger_ms=20)
    chance = random.Random(5)  # noqa: S311 (seeded, so that it repeats)
    for lap in range(30):
        send(producer, name, [written(lap, chance.randrange(KEYS)) for _ in range(20)])
    deadline = Deadline(60)
    rows = everything(kafka, name)
    fillers = 0
    while len(rows) > len({row.key for row in rows}) + 3:
        deadline.check(f"waiting for the log cleaner: {len(rows)} rows")
        send(producer, name, [Content(b"filler", b"filler-%d" % (fillers % 3))])  # closes the segment before it
        fillers += 1
        rows = everything(kafka, name)
    return name


def written(lap: int, key: int) -> Content:
    tombstone = (lap + key) % 5 == 0
    return Content(None if tombstone else b"v%d-%d" % (lap, key), b"k%d" % key, (("lap", b"%d" % lap),))


def everything(kafka, name: str) -> list[Row]:
    partition = TopicPartition(name, 0)
    with Consumer({"bootstrap.servers": kafka.bootstrap()}) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        return read_to(consumer, partition, consumer.end_offsets([partition])[partition])


def test_it_is_what_java_reads_from_every_offset_on(kafka, compacted):
    deadline = Deadline(60)
    before: list[Row] = []
    while not before or before != everything(kafka, compacted):  # the cleaner ran between the readings: again
        deadline.check("the log does not come to rest")
        before = everything(kafka, compacted)
        told = java_rows(kafka, compacted, isolation="read_committed")
    assert before == told
    offsets = [row.offset for row in before]
    assert offsets == sorted(set(offsets))
    assert sum(b > a + 1 for a, b in pairwise(offsets)) > 20, "there are no gaps"
    assert sum(row.value is None for row in before) > 5, "there are no tombstones"
    from_every_offset(kafka, compacted, before)


def from_every_offset(kafka, name: str, rows: list[Row]) -> None:
    """Also from offsets that are no longer there."""
    partition = TopicPartition(name, 0)
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "fetch.max.wait.ms": 5}) as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]
        for offset in range(end):
            consumer.seek(partition, offset)
            assert read_to(consumer, partition, end) == [row for row in rows if row.offset >= offset]
