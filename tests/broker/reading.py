"""Reads with our consumer until a goal is reached or the time is up; never sleeps."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pyarrow as pa

from broker.produce import Row
from multilane import Blocks, Consumer, Record, TopicPartition
from multilane.clock import SystemClock

CLOCK = SystemClock()
# Short: whoever waits looks at his goal again soon.
LOOK = 0.02


class Deadline:
    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._end = CLOCK.monotonic() + seconds

    def check(self, doing: str) -> None:
        assert CLOCK.monotonic() < self._end, f"{doing}: not within {self.seconds} s"

    @property
    def over(self) -> bool:
        return CLOCK.monotonic() >= self._end


def poll_until(
    consumer: Consumer, goal: Callable[[], bool], take: Callable[[Blocks], object], timeout: float = 30.0
) -> None:
    """Polls and hands each result to `take` until the goal is reached."""
    deadline = Deadline(timeout)
    while not goal():
        deadline.check("polling")
        take(consumer.poll(LOOK))


def read_rows(consumer: Consumer, count: int, timeout: float = 30.0) -> list[Row]:
    """At least `count` rows, of all partitions, in the order they came."""
    rows: list[Row] = []
    poll_until(consumer, lambda: len(rows) >= count, lambda blocks: rows.extend(map(row, blocks.records())), timeout)
    return rows


def read_to(consumer: Consumer, partition: TopicPartition, end: int, timeout: float = 30.0) -> list[Row]:
    """Everything until the position is `end`."""
    rows: list[Row] = []
    poll_until(
        consumer,
        lambda: consumer.position(partition) == end,  # it may have to move back first
        lambda blocks: rows.extend(map(row, blocks.records())),
        timeout,
    )
    return rows


def read_blocks(consumer: Consumer, count: int, timeout: float = 30.0) -> list[Blocks]:
    taken: list[Blocks] = []
    poll_until(consumer, lambda: sum(blocks.rows for blocks in taken) >= count, taken.append, timeout)
    return taken


def row(record: Record) -> Row:
    return Row(
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type,
        record.key,
        record.value,
        record.headers,
    )


def rows_of_table(table: pa.Table) -> list[Row]:
    table.validate(full=True)
    columns = ("partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
    lists = [table.column(name).cast(pa.int64()) if name == "timestamp" else table.column(name) for name in columns]
    return [Row(*fields[:6], _headers(fields[6])) for fields in zip(*(c.to_pylist() for c in lists), strict=True)]


def _headers(told: Iterable[dict[str, object]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((header["key"], header["value"]) for header in told or ())  # type: ignore[misc]
