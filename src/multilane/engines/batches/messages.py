"""The messages of a run in batches: their kinds, the leases inside them, and the JSON form of these.

Thread: none (pure).

Two channels carry them: between the driver and the lease coordinator, and between the coordinator and each worker.
A partition lease covers what one processor handles: a partition, or a topic's and its retry topic's together. The
same fields serve both directions: where the worker begins, how far it is, and what is still in flight at the end.
"""

from __future__ import annotations

import base64
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from multilane.commit.ledger import CommitPoint
from multilane.lanes.assignment import Start, Starts
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

Json = Any


class FromDriver(enum.StrEnum):
    """To the coordinator."""

    APPLY_OVERRIDES = "steer"  # consumer, steering: overrides of a consumer
    STOP = "stop"  # cleanly


class ToDriver(enum.StrEnum):
    """From the coordinator."""

    REPORT = "beat"  # counts, failures: since the last report; gauges: now; members: identities in the groups
    FAILED = "failed"  # error; is_refused: a restart would not mend it
    ASSEMBLED = "assembled"  # all tasks have found a slot
    ENDED = "ended"  # it has left its groups


class FromWorker(enum.StrEnum):
    """To the coordinator. `units` are partition leases, `unit` is the number of one."""

    HELLO = "hello"  # number, pid, sent: a task has begun; it waits for GRANT
    PROGRESS = "told"  # units: how far they are
    RETURN = "given"  # units: returned before the task is over, because they were revoked
    OVER = "over"  # number, units: the task is over, and returns these; it waits for CLOSED
    RELEASED = "released"  # unit, settled, undone, tried: held records whose calls have ended
    COUNTS = "counts"  # counts, failures: since the last report; gauges: now; sent: a time, to renew leases from
    CANNOT_START = "cannot"  # error: the application cannot be made in this worker


class ToWorker(enum.StrEnum):
    """From the coordinator. `unit` is the number of a partition lease."""

    GRANT = "loan"  # number, loan: the TaskLease of a task; null when there is none
    RENEW = "leases"  # sent, seconds: by consumer, how long after `sent` its partitions are leased for certain
    REVOKE = "back"  # unit, seconds: return it within this time
    RELEASED = "freed"  # unit, held: records that other workers held are settled
    APPLY_OVERRIDES = "steer"  # consumer, steering: overrides of a consumer
    END = "end"  # the task's time is up
    CLOSED = "closed"  # number: the coordinator has the final progress of the task
    FINISH = "finish"  # the run is over: flush producers and close


class WorkerChannel(Protocol):
    """The channel to a worker."""

    def send(self, kind: str, **fields: Any) -> None: ...


class HeldRecord(NamedTuple):
    """Still in flight at a worker that has returned its lease."""

    partition: TopicPartition
    offset: int
    key: bytes | None
    blocks_key: bool = True  # later records of its key have to wait; False when only its acknowledgement is missing


class LogReset(NamedTuple):
    """A worker found that a log was cut or recreated, and started over there."""

    times: int
    offset: int  # the lowest


@dataclass(frozen=True, slots=True)
class PartitionLease:
    number: int
    consumer: str  # its name in the configuration
    points: Mapping[TopicPartition, CommitPoint]
    held: tuple[HeldRecord, ...] = ()
    retries: tuple[Record, ...] = ()  # to be retried in place; without values
    settled: int = 0  # records, by this worker
    topic_ids: Mapping[str, UUID] = field(default_factory=dict)  # as far as they are known
    log_resets: Mapping[TopicPartition, LogReset] = field(default_factory=dict)

    @property
    def starts(self) -> Starts:
        return {
            p: Start(point.offset, point.runs, point.end_epoch, point.leader_epoch, self.topic_ids.get(p.topic))
            for p, point in self.points.items()
        }

    def before(self, partition: TopicPartition, offset: int) -> PartitionLease:
        """Without the held records and retries from this offset on: their log does not exist any more."""

        def is_before(record: HeldRecord | Record) -> bool:
            where = record.partition if isinstance(record, HeldRecord) else (record.topic, record.partition)
            return where != partition or record.offset < offset

        held, retries = tuple(filter(is_before, self.held)), tuple(filter(is_before, self.retries))
        return replace(self, held=held, retries=retries)

    def to_json(self) -> Json:
        return {
            "number": self.number,
            "consumer": self.consumer,
            "places": [[*p, *_point_to_json(point)] for p, point in self.points.items()],
            "held": held_to_json(self.held),
            "tried": retries_to_json(self.retries),
            "settled": self.settled,
            "logs": {topic: topic_id.hex for topic, topic_id in self.topic_ids.items()},
            "began_again": [[*partition, *reset] for partition, reset in self.log_resets.items()],
        }


def _point_to_json(point: CommitPoint) -> Json:
    return point.offset, point.leader_epoch, point.runs, point.end_epoch


def lease_from(data: Json) -> PartitionLease:
    return PartitionLease(
        data["number"],
        data["consumer"],
        {
            TopicPartition(topic, partition): CommitPoint(
                offset, epoch, tuple((first, last) for first, last in runs), end_epoch
            )
            for topic, partition, offset, epoch, runs, end_epoch in data["places"]
        },
        held_from(data["held"]),
        retries_from(data["tried"]),
        data["settled"],
        {topic: UUID(topic_id) for topic, topic_id in data["logs"].items()},
        {TopicPartition(topic, number): LogReset(*reset) for topic, number, *reset in data["began_again"]},
    )


@dataclass(frozen=True, slots=True)
class TaskLease:
    """The partition leases of one task."""

    number: int
    seconds: float  # to process
    patience: float  # seconds for calls in flight when the time is up; longer calls are carried over
    leases: tuple[PartitionLease, ...] = field(default=())
    members: Mapping[str, str] = field(default_factory=dict)  # by consumer: the id of its member, if it has one now

    def to_json(self) -> Json:
        units = [lease.to_json() for lease in self.leases]
        terms = {"number": self.number, "seconds": self.seconds, "patience": self.patience}
        return {**terms, "units": units, "members": dict(self.members)}


def task_lease_from(data: Json) -> TaskLease:
    leases = tuple(map(lease_from, data["units"]))
    return TaskLease(data["number"], data["seconds"], data["patience"], leases, data.get("members", {}))


def held_to_json(held: Iterable[HeldRecord]) -> Json:
    return [[*record.partition, record.offset, _text(record.key), record.blocks_key] for record in held]


def held_from(data: Json) -> tuple[HeldRecord, ...]:
    return tuple(HeldRecord(TopicPartition(t, p), at, _bytes(key), blocks_key) for t, p, at, key, blocks_key in data)


def retries_to_json(retries: Iterable[Record]) -> Json:
    return [[r.topic, r.partition, r.offset, r.timestamp, [[n, _text(v)] for n, v in r.headers]] for r in retries]


def retries_from(data: Json) -> tuple[Record, ...]:
    return tuple(
        Record(t, p, offset, timestamp, 0, None, None, tuple((name, _bytes(v)) for name, v in headers))
        for t, p, offset, timestamp, headers in data
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
