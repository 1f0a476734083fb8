"""What is said of a unit between the one who lends it and the one who works on it, and how it looks on the line.

Thread: none (pure).

A unit is what one team works off: a partition, or a topic's and its retry topic's together. The same words serve both
ways: where it begins, how far it is, and what is left at the end.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from multilane.commit.ledger import CommitPoint
from multilane.lanes.assignment import Start, Starts
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

Json = Any


class Says(Protocol):
    """A line to a worker."""

    def send(self, kind: str, **fields: Any) -> None: ...


class HeldRecord(NamedTuple):
    """In work still, when the rest is given back."""

    partition: TopicPartition
    offset: int
    key: bytes | None
    fences: bool = True  # what comes behind it has to wait; not where only its acknowledgement is missing


class Again(NamedTuple):
    """A borrower found a log cut or made anew, so often, and began again there."""

    times: int
    offset: int  # the lowest


@dataclass(frozen=True, slots=True)
class PartitionLease:
    number: int
    consumer: str  # its name in the configuration
    places: Mapping[TopicPartition, CommitPoint]
    held: tuple[HeldRecord, ...] = ()
    tried: tuple[Record, ...] = ()  # to be tried again in their places; without values
    settled: int = 0  # records, by this borrower
    logs: Mapping[str, UUID] = field(default_factory=dict)  # the ids of its topics, as far as they are known
    began_again: Mapping[TopicPartition, Again] = field(default_factory=dict)  # logs that were cut or made anew

    @property
    def starts(self) -> Starts:
        return {
            p: Start(place.offset, place.runs, place.end_epoch, place.leader_epoch, self.logs.get(p.topic))
            for p, place in self.places.items()
        }

    def before(self, partition: TopicPartition, offset: int) -> PartitionLease:
        """Without what was held or tried from there on: its log is no more."""

        def is_left(one: HeldRecord | Record) -> bool:
            place = one.partition if isinstance(one, HeldRecord) else (one.topic, one.partition)
            return place != partition or one.offset < offset

        return replace(self, held=tuple(filter(is_left, self.held)), tried=tuple(filter(is_left, self.tried)))

    def to_json(self) -> Json:
        return {
            "number": self.number,
            "consumer": self.consumer,
            "places": [[*p, *_place_to_json(place)] for p, place in self.places.items()],
            "held": held_to_json(self.held),
            "tried": tried_to_json(self.tried),
            "settled": self.settled,
            "logs": {topic: topic_id.hex for topic, topic_id in self.logs.items()},
            "began_again": [[*partition, *again] for partition, again in self.began_again.items()],
        }


def _place_to_json(place: CommitPoint) -> Json:
    return place.offset, place.leader_epoch, place.runs, place.end_epoch


def lease_from(told: Json) -> PartitionLease:
    return PartitionLease(
        told["number"],
        told["consumer"],
        {
            TopicPartition(topic, partition): CommitPoint(
                offset, epoch, tuple((first, last) for first, last in runs), end_epoch
            )
            for topic, partition, offset, epoch, runs, end_epoch in told["places"]
        },
        held_from(told["held"]),
        tried_from(told["tried"]),
        told["settled"],
        {topic: UUID(topic_id) for topic, topic_id in told["logs"].items()},
        {TopicPartition(topic, number): Again(*again) for topic, number, *again in told["began_again"]},
    )


@dataclass(frozen=True, slots=True)
class TaskLease:
    """Units that one task has for a while."""

    number: int
    seconds: float  # of work
    patience: float  # seconds for what is in work when the time is up; what takes longer is carried over
    units: tuple[PartitionLease, ...] = field(default=())

    def to_json(self) -> Json:
        units = [unit.to_json() for unit in self.units]
        return {"number": self.number, "seconds": self.seconds, "patience": self.patience, "units": units}


def task_lease_from(told: Json) -> TaskLease:
    return TaskLease(told["number"], told["seconds"], told["patience"], tuple(map(lease_from, told["units"])))


def held_to_json(held: Iterable[HeldRecord]) -> Json:
    return [[*one.partition, one.offset, _text(one.key), one.fences] for one in held]


def held_from(told: Json) -> tuple[HeldRecord, ...]:
    return tuple(HeldRecord(TopicPartition(t, p), at, _bytes(key), fences) for t, p, at, key, fences in told)


def tried_to_json(tried: Iterable[Record]) -> Json:
    return [[r.topic, r.partition, r.offset, r.timestamp, [[n, _text(v)] for n, v in r.headers]] for r in tried]


def tried_from(told: Json) -> tuple[Record, ...]:
    return tuple(
        Record(t, p, offset, timestamp, 0, None, None, tuple((name, _bytes(v)) for name, v in headers))
        for t, p, offset, timestamp, headers in told
    )


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(value: str | None) -> bytes | None:
    return None if value is None else base64.b64decode(value)
