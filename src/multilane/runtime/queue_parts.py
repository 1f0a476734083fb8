"""Builds the parts of a partition queue from the configuration: the intake of a partition, and the chains of its keys.

Thread: loop.

Pure but for the clock. Never starts a lane, and never reads from the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from multilane.clock import Clock
from multilane.commit.ledger import Ledger
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.lanes.assignment import Start
from multilane.lanes.chains import Chains, DueAt
from multilane.lanes.intake import PIECE, PIECE_OF_ROWS, Intake
from multilane.lanes.ordering import order_of
from multilane.lanes.partition_queue import MAIN
from multilane.lanes.partition_rows import PartitionRows
from multilane.lanes.row_chains import RowChains
from multilane.lanes.waiting_records import WaitingRecords
from multilane.listeners.window import newest_of_each_key
from multilane.outcome import backoff
from multilane.outcome.headers import retry_count
from multilane.runtime.registration import Registration
from multilane.types import TopicPartition
from multilane.wire.records.record import Record


def build_intake(config: ConsumerGroupConfig, partition: TopicPartition, start: Start, *, as_rows: bool) -> Intake:
    room = max(1, config.lanes) * config.waiting_per_lane
    most = PIECE_OF_ROWS if as_rows else PIECE
    return Intake(
        partition,
        Ledger(start.offset, start.runs, start.end_epoch, start.leader_epoch, in_bulk=as_rows),
        room,
        config.max_in_flight_bytes,
        most=most,
    )


def build_chains(
    registration: Registration,
    partitions: Mapping[TopicPartition, Start],
    held: Sequence[bytes | None],
    clock: Clock,
    *,
    as_rows: bool,
) -> Mapping[str, WaitingRecords]:
    """Chains by lane class. `held`: keys that stay blocked until their records in flight elsewhere have ended."""
    config = registration.config
    if as_rows:
        [partition] = partitions
        if config.order_by == "partition":
            return {MAIN: PartitionRows(partition.topic, partition.partition)}
        is_unique = registration.window.select is newest_of_each_key
        return {MAIN: RowChains(partition.topic, partition.partition, config.lanes, newest=is_unique)}
    due_at = _due_at(config, clock) if any(p.topic == config.retry for p in partitions) else None
    lanes = {MAIN: config.lanes, **config.lane_classes}
    by_class = {
        name: Chains(order_of(config.order_by, config.lane_hash, count), max(1, count), due_at)
        for name, count in lanes.items()
    }
    for chains in by_class.values():
        chains.hold([Record(config.topic, 0, 0, 0, 0, key, None) for key in held])
    return by_class


def _due_at(config: ConsumerGroupConfig, clock: Clock) -> DueAt | None:
    """When a retry copy may be handled, on the monotonic clock."""
    delay, retry_topic = config.retry_backoff, config.retry
    if delay is None:
        return None

    def due_at(record: Record) -> float:
        if record.topic != retry_topic:
            return 0.0
        seed = backoff.seed_of(record.topic, record.partition, record.offset)
        due = backoff.due(delay, record.timestamp, retry_count(record.headers), seed)
        now = clock.wall()
        return clock.monotonic() + backoff.bounded(delay, due, round(now * 1_000)) / 1_000 - now

    return due_at
