"""Writes the logs: `python -m bench.lane.filling <bootstrap> '<log as JSON>'`, in a process of its own.

Thread: application.

Raises if a record cannot be written, or if a partition has an unexpected end offset.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import topics
from bench.lane.logs import KEYS, VALUE_BYTES, Log, Numbers, key_name, partitions_of_keys

_VALUES: Final = 5_000
_QUEUE: Final = 2_000_000
_HIGH: Final = (
    1_000_000  # a rejected record could not be told apart from an equal one in the same batch: nothing is ever rejected
)
_FLUSH_SECONDS: Final = 120


def fill(bootstrap: str, log: Log) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(log.topic, log.partitions, 1)])[log.topic].result(30)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": topics.BATCH_BYTES,
            "linger.ms": 50,
            "queue.buffering.max.messages": _QUEUE,
            "queue.buffering.max.kbytes": 1_048_576,
            "delivery.report.only.error": True,
        }
    )
    values = [value for _, value in topics.make_records(VALUE_BYTES, _VALUES)]
    messages: list[dict[str, Any]] = [{"key": key_name(n), "value": values[n % _VALUES]} for n in range(KEYS)]
    ends = np.zeros(log.partitions, np.int64)
    places = partitions_of_keys(log.partitions)
    for drawn in log.draws():
        for partition in range(log.partitions):
            mine = drawn[places[drawn] == partition]
            _produce(producer, TopicPartition(log.topic, partition), messages, mine)
            ends[partition] += len(mine)
    if producer.flush(_FLUSH_SECONDS):
        raise RuntimeError(f"{log.topic}: records were not acknowledged within {_FLUSH_SECONDS} s")
    check(bootstrap, log.topic, ends)


def _produce(producer: Producer, place: TopicPartition, messages: list[dict[str, Any]], numbers: Numbers) -> None:
    while len(producer) > _HIGH:
        producer.poll(0.02)
    queued = producer.produce_batch(place.topic, [messages[n] for n in numbers.tolist()], partition=place.partition)
    if queued != len(numbers):
        raise RuntimeError(f"{place.topic}-{place.partition}: {len(numbers) - queued} records were refused")


def check(bootstrap: str, topic: str, ends: Numbers) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "bench-lanes-check"})
    try:
        for partition, expected in enumerate(ends.tolist()):
            _, end = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=30)
            if end != expected:
                raise RuntimeError(f"{topic}-{partition} ends at {end}, not at {expected}")
    finally:
        consumer.close()


def fill_apart(bootstrap: str, log: Log) -> None:
    """`fill` in a process of its own: its memory would count for every process started later."""
    arguments = [sys.executable, "-m", "bench.lane.filling", bootstrap, json.dumps(asdict(log))]
    subprocess.run(arguments, check=True, cwd=Path(__file__).resolve().parents[2])


def delete(bootstrap: str, logs: Iterable[Log]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_topics([log.topic for log in logs], operation_timeout=30).values():
        future.result(30)


if __name__ == "__main__":
    fill(sys.argv[1], Log(**json.loads(sys.argv[2])))
