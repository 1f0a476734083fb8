"""Sights of a group, one after the other, and what that says: rates, what is left, and who stands still.

Thread: none (pure).

What a partition has settled is its committed offset and what is settled beyond it. The difference of two sights is what
was settled between them, also where one slow record keeps the committed offset from moving. Offsets are counted: where
a topic is compacted or transactional there are fewer records.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from multilane.group.failures import NO_FAILURES, AppFailures, Failures, failures_of
from multilane.group.snapshot import GroupSnapshot, MemberSight, PartitionSight
from multilane.types import TopicPartition


class Movement(StrEnum):
    """What a partition is doing; what is most urgent comes first."""

    LEADERLESS = "no leader"
    EXPIRED = "expired"  # the log begins behind the committed offset: records are gone unread
    STALLED = "stalled"  # something is there to do, and nothing was settled for a while
    HELD = "held"  # records are settled, but one holds the committed offset
    REWOUND = "rewound"  # the committed offset went back
    UNCOMMITTED = "no commit"
    WAITING = "waiting"  # something is there to do, and nothing was settled yet
    MOVING = "moving"
    DONE = "up to date"


@dataclass(frozen=True, slots=True)
class Standstill:
    """Since when a partition with something to do is where it is: by what is settled, and by what is committed."""

    settled: int | None
    settled_since: float
    committed: int | None
    committed_since: float


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition. Rates are records a second; None: not known yet. `drain` is in seconds, infinite where as much or
    more arrives as is settled."""

    partition: TopicPartition
    is_retry: bool
    member: str | None  # None: nobody has it
    committed: int | None
    end: int | None
    lag: int | None
    beyond: int
    settled_rate: float | None
    arrival_rate: float | None
    drain: float | None
    verdict: Movement
    still: float  # seconds: since when nothing was settled, or for HELD since when nothing was committed

    @property
    def is_standing(self) -> bool:
        return self.verdict in (Movement.STALLED, Movement.HELD)


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group: its rows with most lag first, and what they add up to."""

    snapshot: GroupSnapshot
    seconds: float | None  # over which rates were measured, at the most
    rows: tuple[PartitionRow, ...]
    failures: Failures = NO_FAILURES
    app: AppFailures | None = None  # from the application itself, where that is asked

    @property
    def lag(self) -> int:
        return sum(row.lag or 0 for row in self.rows)

    @property
    def beyond(self) -> int:
        return sum(row.beyond for row in self.rows)

    @property
    def settled_rate(self) -> float | None:
        return _sum(row.settled_rate for row in self.rows)

    @property
    def arrival_rate(self) -> float | None:
        return _sum(row.arrival_rate for row in self.rows)

    @property
    def drain(self) -> float | None:
        """Until the last partition is at its end. Those without a known lag do not count."""
        drains = [row.drain for row in self.rows if row.lag is not None]
        known = [drain for drain in drains if drain is not None]
        return max(known, default=None) if len(known) == len(drains) or math.inf in known else None

    def count(self, verdict: Movement) -> int:
        return sum(row.verdict is verdict for row in self.rows)


def compared(
    earlier: Sequence[GroupSnapshot],
    now: GroupSnapshot,
    standing: Mapping[TopicPartition, Standstill],
    stalled_after: float,
) -> GroupReport:
    """`earlier` are sights of the same group, the oldest first. A partition is compared with the first that knows it,
    for it may be new; without any there are no rates."""
    owners = owners_of(now.members)
    rows = []
    for partition, place in now.partitions.items():
        at, before = _known_before(earlier, partition)
        seconds = now.at - at
        settled, arrived = _changes(before, place, now.subject.is_from_beginning)
        rates = [None if change is None or seconds <= 0 else change / seconds for change in (settled, arrived)]
        lag, left = lag_of(place, now.subject.is_from_beginning)
        verdict, still = _verdict(before, place, left, standing.get(partition), (now.at, stalled_after))
        rows.append(
            PartitionRow(
                partition=partition,
                is_retry=partition.topic == now.subject.retry,
                member=owners.get(partition),
                committed=place.committed,
                end=place.end,
                lag=lag,
                beyond=place.beyond,
                settled_rate=rates[0],
                arrival_rate=rates[1],
                drain=_drain(left, *rates),
                verdict=verdict,
                still=still,
            )
        )
    rows.sort(key=lambda row: (-1 if row.lag is None else row.lag, row.is_standing), reverse=True)
    return GroupReport(now, now.at - earlier[0].at if earlier else None, tuple(rows), failures_of(earlier, now))


def stood(before: Standstill | None, place: PartitionSight, left: int | None, now: float) -> Standstill | None:
    """How long a partition has stood is counted from the sight at which it had something to do and was first seen
    there; one without anything to do does not stand."""
    if not left:
        return None
    if before is None:
        return Standstill(place.settled, now, place.committed, now)
    return Standstill(
        place.settled,
        before.settled_since if place.settled == before.settled else now,
        place.committed,
        before.committed_since if place.committed == before.committed else now,
    )


def lag_of(place: PartitionSight, is_from_beginning: bool) -> tuple[int | None, int | None]:
    """(lag as every tool counts it, what of it is not settled). What is gone from the log nobody has to read."""
    start = place.committed
    if start is None and is_from_beginning:
        start = place.begin
    if start is None or place.end is None:
        return None, None
    lag = max(0, place.end - max(start, place.begin or 0))
    return lag, max(0, lag - place.beyond)


def owners_of(members: Iterable[MemberSight]) -> dict[TopicPartition, str]:
    """Who has which partition."""
    return {
        partition: name
        for member, name in named_members(members)
        for partition in member.partitions or ()
    }  # fmt: skip


def named_members(members: Iterable[MemberSight]) -> list[tuple[MemberSight, str]]:
    """Members by their client ids, with a number where several have the same."""
    ordered = sorted(members, key=lambda m: (m.client_id, m.host, m.id))
    shared = Counter(member.client_id for member in ordered)
    seen: Counter[str] = Counter()
    named = []
    for member in ordered:
        seen[member.client_id] += 1
        is_alone = shared[member.client_id] == 1
        named.append((member, member.client_id if is_alone else f"{member.client_id} #{seen[member.client_id]}"))
    return named


def _known_before(earlier: Sequence[GroupSnapshot], partition: TopicPartition) -> tuple[float, PartitionSight | None]:
    """When a partition was first seen, and how; if there was one, with a commit."""
    having = [(snapshot.at, snapshot.partitions[partition]) for snapshot in earlier if partition in snapshot.partitions]
    committed = (one for one in having if one[1].committed is not None)
    return next(committed, having[0] if having else (0.0, None))


def _changes(
    before: PartitionSight | None, now: PartitionSight, is_from_beginning: bool
) -> tuple[int | None, int | None]:
    """(how many were settled, how many arrived)."""
    if before is None:
        return None, None
    arrived = None if before.end is None or now.end is None else max(0, now.end - before.end)
    settled = before.settled
    if settled is None and is_from_beginning:
        settled = before.begin
    if settled is None or (now.settled is None and before.settled is not None) or _is_rewound(before, now):
        return None, arrived
    return 0 if now.settled is None else max(0, now.settled - settled), arrived


def _verdict(
    before: PartitionSight | None,
    now: PartitionSight,
    left: int | None,
    standing: Standstill | None,
    times: tuple[float, float],
) -> tuple[Movement, float]:
    """With how long it has stood still."""
    at, stalled_after = times
    resting = _resting(now, left)
    if resting is not None or standing is None:
        return resting or Movement.WAITING, 0.0
    still, held = at - standing.settled_since, at - standing.committed_since
    if still >= stalled_after:
        return Movement.STALLED, still
    if before is not None and _is_rewound(before, now):
        return Movement.REWOUND, still
    if held >= stalled_after:
        return Movement.HELD, held
    has_moved = before is not None and before.settled != now.settled
    return Movement.MOVING if has_moved else Movement.WAITING, still


def _resting(now: PartitionSight, left: int | None) -> Movement | None:
    """What one sight is enough for."""
    if now.end is None:
        return Movement.LEADERLESS
    if now.committed is not None and now.begin is not None and now.committed < now.begin:
        return Movement.EXPIRED
    if left is None:
        return Movement.UNCOMMITTED
    return None if left else Movement.DONE


def _is_rewound(before: PartitionSight, now: PartitionSight) -> bool:
    return before.committed is not None and now.committed is not None and now.committed < before.committed


def _drain(left: int | None, settled_rate: float | None, arrival_rate: float | None) -> float | None:
    if left == 0:
        return 0.0
    if left is None or settled_rate is None or arrival_rate is None:
        return None
    return left / (settled_rate - arrival_rate) if settled_rate > arrival_rate else math.inf


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
