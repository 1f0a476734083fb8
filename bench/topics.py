"""The topics that clients are measured on: their contents, and how they are filled quickly.

Thread: application.

Keys are 8 to 12 bytes (`user-` and a number). Values are text like a small event: fixed field names, increasing
numbers, and a tail of random letters that no codec compresses; lz4 halves it. Every partition gets the same number of
records, so a reader knows where to stop. Values come from a pool that is larger than any codec's window.
"""

from __future__ import annotations

import json
import random
import string
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PARTITIONS: Final = 4
BATCH_BYTES: Final = 65_536
_CHUNK: Final = 2_000
_POOL_BYTES: Final = 6_000_000
_LETTERS: Final = (string.ascii_letters + string.digits).encode()


@dataclass(frozen=True, slots=True)
class Filling:
    """One topic; its name has all its parameters."""

    value_bytes: int
    codec: str
    records: int

    @property
    def topic(self) -> str:
        return f"bench-{self.value_bytes}b-{self.codec}-{self.records}"

    @property
    def per_partition(self) -> int:
        return self.records // PARTITIONS


def make_records(value_bytes: int, count: int, seed: int = 7) -> list[tuple[bytes, bytes]]:
    """(key, value) pairs; the same for the same seed."""
    rng = random.Random(seed)  # noqa: S311 (nothing secret)
    return [(b"user-%d" % rng.randrange(100, 10_000_000), _value(rng, n, value_bytes)) for n in range(count)]


def _value(rng: random.Random, number: int, size: int) -> bytes:
    """As many events of about 100 bytes as needed, cut to size: a third of the bytes is random."""
    parts: list[bytes] = []
    have = 0
    while have < size:
        tail = bytes(rng.choices(_LETTERS, k=32))
        part = b'{"id":%08d,"kind":"order.created","amount":%05d,"token":"%s"},' % (number, rng.randrange(99_999), tail)
        parts.append(part)
        have += len(part)
    return b"".join(parts)[:size]


def fill(bootstrap: str, filling: Filling) -> None:
    """Create the topic and write its records, acknowledged; raises if one cannot be written."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(filling.topic, PARTITIONS, 1)])[filling.topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": filling.codec,
            "batch.size": BATCH_BYTES,
            "linger.ms": 50,
            "queue.buffering.max.messages": 400_000,
            "queue.buffering.max.kbytes": 262_144,
            "delivery.report.only.error": True,
        }
    )
    pool = make_records(filling.value_bytes, max(_CHUNK, _POOL_BYTES // filling.value_bytes))
    messages: list[dict[str, Any]] = [{"key": key, "value": value} for key, value in pool]
    left = [filling.per_partition] * PARTITIONS
    at = 0
    while any(left):
        for partition in range(PARTITIONS):
            count = min(_CHUNK, left[partition])
            if at + count > len(messages):
                at = 0
            _produce(producer, filling.topic, partition, messages[at : at + count])
            at += count
            left[partition] -= count
    if producer.flush(120):
        raise RuntimeError(f"{filling.topic}: records were not acknowledged within 120 s")
    check(bootstrap, filling)


def _produce(producer: Producer, topic: str, partition: int, messages: list[dict[str, Any]]) -> None:
    """A full queue rejects the rest of a batch and marks it; the rest is sent again once there is room."""
    while messages:
        queued = producer.produce_batch(topic, messages, partition=partition)
        if queued == len(messages):
            return
        messages = [m for m in messages if m.pop("_error", None) is not None]
        producer.poll(0.05)


def check(bootstrap: str, filling: Filling) -> None:
    """Checks the end offset of every partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-check"})
    try:
        for partition in range(PARTITIONS):
            _, end = consumer.get_watermark_offsets(TopicPartition(filling.topic, partition), timeout=30)
            if end != filling.per_partition:
                raise RuntimeError(f"{filling.topic}-{partition} ends at {end}, not at {filling.per_partition}")
    finally:
        consumer.close()


def fill_apart(bootstrap: str, filling: Filling) -> None:
    """`fill` in a process of its own: its memory would count for every process started later."""
    arguments = [sys.executable, "-m", "bench.topics", bootstrap, json.dumps(asdict(filling))]
    subprocess.run(arguments, check=True, cwd=Path(__file__).resolve().parents[1])


def delete(bootstrap: str, fillings: list[Filling]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([f.topic for f in fillings], operation_timeout=30).values():
        future.result(30)


if __name__ == "__main__":
    fill(sys.argv[1], Filling(**json.loads(sys.argv[2])))
