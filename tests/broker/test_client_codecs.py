"""What was produced is what is read: every codec, nulls, headers, both kinds of timestamps, large records."""

from __future__ import annotations

import random

import pytest

from broker.java import java_rows
from broker.produce import Content, produce
from broker.reading import CLOCK, read_blocks, rows_of_table
from broker.reading import row as row_of
from broker.segments import batch_codecs
from multilane import AsyncConsumer, Consumer, TopicPartition

pytestmark = pytest.mark.broker

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
BASE = 1_700_000_000_000


def varied(count: int) -> list[Content]:
    """Every mixture of null, empty, short, long keys and values, with and without headers."""
    shapes = [None, b"", b"a", b"twelve bytes", b"thirteen byte", bytes(range(256)), b"\x00\xff" * 700]
    headers = [
        (),
        (("h", b"1"),),
        (("twice", b"1"), ("twice", b"2"), ("twice", None)),
        (("null", None), ("empty", b""), ("", b"nameless")),
        (("gr\u00fc\u00df-\u20ac-\U0001f600", "\u00e9".encode()), ("long", b"\x80" * 300)),
    ]
    return [
        Content(shapes[i % 7], shapes[(i // 7) % 7], headers[i % 5], BASE + (i * 7919) % 100_000 - 50_000)
        for i in range(count)
    ]


def consumer_of(kafka, topic: str, **more: object) -> Consumer:
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}, **more)
    consumer.assign([TopicPartition(topic, 0)])
    return consumer


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_as_they_were_written(kafka, topic, codec):
    name = topic()
    written = produce(kafka.bootstrap(), name, varied(490), compression_type=codec, linger_ms=50)
    assert batch_codecs(kafka, name) == {codec}
    assert len(written) == 490
    with consumer_of(kafka, name) as consumer:
        taken = read_blocks(consumer, 490)
        assert [row_of(record) for blocks in taken for record in blocks.records()] == written
        for copy in (False, True):
            assert [r for blocks in taken for r in rows_of_table(blocks.arrow(copy=copy))] == written
        assert consumer.position(TopicPartition(name, 0)) == 490


@pytest.mark.parametrize("codec", CODECS)
async def test_the_async_consumer_reads_the_same(kafka, topic, codec):
    name = topic()
    written = produce(kafka.bootstrap(), name, varied(70), compression_type=codec, linger_ms=50)
    rows = []
    async with AsyncConsumer({"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(name, 0)])
        while len(rows) < 70:
            blocks = await consumer.poll(10.0)
            assert blocks
            rows += map(row_of, blocks.records())
        assert await consumer.position(TopicPartition(name, 0)) == 70
    assert rows == written


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_the_time_of_the_broker(kafka, topic, codec):
    """With LogAppendTime the producer's time is not told; Java is the judge of what the broker wrote."""
    name = topic(message_timestamp_type="LogAppendTime")
    before = int(CLOCK.wall() * 1_000)
    texts = [Content(f"v{i}".encode(), f"k{i}".encode(), (), BASE) for i in range(40)]
    produce(kafka.bootstrap(), name, texts, compression_type=codec, linger_ms=50)
    after = int(CLOCK.wall() * 1_000)
    with consumer_of(kafka, name) as consumer:
        taken = read_blocks(consumer, 40)
        rows = [row_of(record) for blocks in taken for record in blocks.records()]
        assert [r for blocks in taken for r in rows_of_table(blocks.arrow())] == rows
    assert {row.timestamp_type for row in rows} == {1}
    assert all(before <= row.timestamp <= after for row in rows)
    assert rows == java_rows(kafka, name, isolation="read_uncommitted")


@pytest.mark.parametrize("codec", CODECS)
def test_records_larger_than_any_fetch(kafka, topic, codec):
    """Kafka sends at least one whole batch, however small the fetch; what compresses well becomes large here."""
    name = topic(max_message_bytes=10_000_000)
    noise = random.Random(7)  # noqa: S311 (seeded, so that it repeats)
    contents = [
        Content(noise.randbytes(3_000_000), b"noise"),
        Content(b"compresses well " * 250_000, b"repeated"),
        Content(b"small", None, (("big", noise.randbytes(500_000)),)),
        Content(None, noise.randbytes(1_500_000)),
    ]
    written = produce(
        kafka.bootstrap(), name, contents, compression_type=codec, message_max_bytes=10_000_000, linger_ms=5
    )
    small = {"fetch.max.bytes": 1_000, "max.partition.fetch.bytes": 1_000}
    for properties in ({}, small):
        with consumer_of(kafka, name, **properties) as consumer:
            taken = read_blocks(consumer, 4)
            assert [row_of(record) for blocks in taken for record in blocks.records()] == written
