"""Writes records with confluent-kafka and remembers what was written where: what a test compares its reading with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Message, Producer

Headers = tuple[tuple[str, bytes | None], ...]

_FLUSH_SECONDS = 30


@dataclass(frozen=True)
class Content:
    """What a record holds."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp: int | None = None


@dataclass(frozen=True, order=True)
class Row:
    """A record and its place, as both clients must tell it."""

    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


def new_producer(bootstrap: str, **properties: object) -> Producer:
    given = {key.replace("_", "."): value for key, value in properties.items()}
    return Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0, **given})


def send(
    producer: Producer, topic: str, contents: Iterable[Content], *, partition: int = 0, flush: bool = True
) -> list[Row]:
    """Writes and, unless told otherwise, waits until the brokers have it. Rows are filled as reports come in."""
    rows: list[Row] = []
    failures: list[object] = []

    def delivered(content: Content, error: object, message: Message) -> None:
        if error is not None:
            failures.append(error)
        else:
            rows.append(_row(message, content))

    for content in contents:
        more = {} if content.timestamp is None else {"timestamp": content.timestamp}
        headers = [(key, value) for key, value in content.headers]
        report = partial(delivered, content)
        producer.produce(topic, content.value, content.key, partition, headers=headers, on_delivery=report, **more)
        producer.poll(0)
    if flush:
        assert producer.flush(_FLUSH_SECONDS) == 0, "not everything could be written"
    assert not failures, failures[0]
    return rows


def produce(
    bootstrap: str, topic: str, contents: Iterable[Content], *, partition: int = 0, **properties: object
) -> list[Row]:
    """One producer, one go."""
    return send(new_producer(bootstrap, **properties), topic, contents, partition=partition)


def numbered(first: int, count: int, size: int = 0) -> list[Content]:
    """Records whose values tell them apart."""
    return [Content(str(i).encode().rjust(size, b"."), key=str(i % 7).encode()) for i in range(first, first + count)]


def values_of(rows: Sequence[Row]) -> list[bytes | None]:
    return [row.value for row in rows]


def _row(message: Message, content: Content) -> Row:
    """The report tells the place and the time; it does not bring the headers back."""
    kind, timestamp = message.timestamp()
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    appended = int(kind == TIMESTAMP_LOG_APPEND_TIME)
    return Row(partition, offset, timestamp, appended, content.key, content.value, content.headers)
