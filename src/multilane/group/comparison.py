"""Compares snapshots of a group: rates, lag, and stalled partitions.

Thread: none (pure).

A partition's settled count is its committed offset plus the records settled beyond it. The difference between two
snapshots is what was settled in between, even where one slow record holds the committed offset. Offsets are counted: a
compacted or transactional topic has fewer records.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from multilane.group.failures import NO_FAILURES, AppFailures, Failures, failures_of
from multilane.group.snapshot import GroupSnapshot, MemberSnapshot, PartitionSnapshot
from multilane.types import TopicPartition


class Movement(StrEnum):
    """The state of a partition; the most urgent comes first."""

    LEADERLESS = "no leader"
    EXPIRED = "expired"  # the log begins after the committed offset: records were deleted unread
    STALLED = "stalled"  # there is lag, and nothing was settled for a while
    HELD = "held"  # records are settled, but one record holds the committed offset
    REWOUND = "rewound"  # the committed offset went back
    UNCOMMITTED = "no commit"
    WAITING = "waiting"  # there is lag, and nothing was settled yet
    MOVING = "moving"
    DONE = "up to date"


@dataclass(frozen=True, slots=True)
class Standstill:
    """Since when a partition with lag has not moved: by its settled count, and by its committed offset."""

    settled: int | None
    settled_since: float
    committed: int | None
    committed_since: float


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition. Rates are records per second; None: not known yet. `drain` is in seconds, and infinite if records
    arrive at least as fast as they are settled."""

    partition: TopicPartition
    is_retry: bool
    member: str | None  # None: assigned to no member
    committed: int | None
    end: int | None
    lag: int | None
    beyond: int
    settled_rate: float | None
    arrival_rate: float | None
    drain: float | None
    verdict: Movement
    still: float  # seconds since anything was settled, for HELD since anything was committed

    @property
    def is_stuck(self) -> bool:
        return self.verdict in (Movement.STALLED, Movement.HELD)


@dataclass(frozen=True, slots=True)
class GroupReport:
    """A group: its rows, largest lag first, and their totals."""

    snapshot: GroupSnapshot
    seconds: float | None  # the longest time over which rates were measured
    rows: tuple[PartitionRow, ...]
    failures: Failures = NO_FAILURES
    app: AppFailures | None = None  # from the application itself, if it was queried
    triggers: tuple[GroupReport, ...] = ()  # of those that share the group, the largest lag first

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
        """Seconds until the last partition reaches its end. Partitions without a known lag do not count."""
        drains = [row.drain for row in self.rows if row.lag is not None]
        known = [drain for drain in drains if drain is not None]
        return max(known, default=None) if len(known) == len(drains) or math.inf in known else None

    def count(self, verdict: Movement) -> int:
        return sum(row.verdict is verdict for row in self.rows)


def compared(
    earlier: Sequence[GroupSnapshot],
    now: GroupSnapshot,
    standstills: Mapping[TopicPartition, Standstill],
    stalled_after: float,
) -> GroupReport:
    """`earlier` are snapshots of the same group, the oldest first. A partition may be new: it is compared with the
    first snapshot that has it, and has no rates without one."""
    owners = owners_of(now.members)
    retries = {subject.retry for subject in (now.subject, *now.subject.triggers)}
    rows = []
    for partition, current in now.partitions.items():
        at, before = _known_before(earlier, partition)
        seconds = now.at - at
        settled, arrived = _changes(before, current, now.subject.is_from_beginning)
        rates = [None if change is None or seconds <= 0 else change / seconds for change in (settled, arrived)]
        lag, unsettled = lag_of(current, now.subject.is_from_beginning)
        verdict, still = _movement(before, current, unsettled, standstills.get(partition), (now.at, stalled_after))
        rows.append(
            PartitionRow(
                partition=partition,
                is_retry=partition.topic in retries,
                member=owners.get(partition),
                committed=current.committed,
                end=current.end,
                lag=lag,
                beyond=current.beyond,
                settled_rate=rates[0],
                arrival_rate=rates[1],
                drain=_drain(unsettled, *rates),
                verdict=verdict,
                still=still,
            )
        )
    rows.sort(key=lambda row: (-1 if row.lag is None else row.lag, row.is_stuck), reverse=True)
    return GroupReport(now, now.at - earlier[0].at if earlier else None, tuple(rows), failures_of(earlier, now))


def standstill_of(
    before: Standstill | None, current: PartitionSnapshot, unsettled: int | None, now: float
) -> Standstill | None:
    """A standstill counts from the snapshot in which the partition first had lag at this position; a partition without
    lag has none."""
    if not unsettled:
        return None
    if before is None:
        return Standstill(current.settled, now, current.committed, now)
    return Standstill(
        current.settled,
        before.settled_since if current.settled == before.settled else now,
        current.committed,
        before.committed_since if current.committed == before.committed else now,
    )


def lag_of(current: PartitionSnapshot, is_from_beginning: bool) -> tuple[int | None, int | None]:
    """(lag as every tool counts it, the part of it that is not settled). Records deleted from the log do not count."""
    start = current.committed
    if start is None and is_from_beginning:
        start = current.begin
    if start is None or current.end is None:
        return None, None
    lag = max(0, current.end - max(start, current.begin or 0))
    return lag, max(0, lag - current.beyond)


def owners_of(members: Iterable[MemberSnapshot]) -> dict[TopicPartition, str]:
    """The member that each partition is assigned to."""
    return {
        partition: name
        for member, name in named_members(members)
        for partition in member.partitions or ()
    }  # fmt: skip


def named_members(members: Iterable[MemberSnapshot]) -> list[tuple[MemberSnapshot, str]]:
    """Members named by client id, with a number where several share one."""
    ordered = sorted(members, key=lambda m: (m.client_id, m.host, m.id))
    shared = Counter(member.client_id for member in ordered)
    seen: Counter[str] = Counter()
    named = []
    for member in ordered:
        seen[member.client_id] += 1
        is_alone = shared[member.client_id] == 1
        named.append((member, member.client_id if is_alone else f"{member.client_id} #{seen[member.client_id]}"))
    return named


def _known_before(
    earlier: Sequence[GroupSnapshot], partition: TopicPartition
) -> tuple[float, PartitionSnapshot | None]:
    """The first snapshot of a partition, with its time; preferably the first one with a commit."""
    occurrences = [
        (snapshot.at, snapshot.partitions[partition]) for snapshot in earlier if partition in snapshot.partitions
    ]
    committed = (one for one in occurrences if one[1].committed is not None)
    return next(committed, occurrences[0] if occurrences else (0.0, None))


def _changes(
    before: PartitionSnapshot | None, now: PartitionSnapshot, is_from_beginning: bool
) -> tuple[int | None, int | None]:
    """(records settled, records arrived)."""
    if before is None:
        return None, None
    arrived = None if before.end is None or now.end is None else max(0, now.end - before.end)
    settled = before.settled
    if settled is None and is_from_beginning:
        settled = before.begin
    if settled is None or (now.settled is None and before.settled is not None) or _is_rewound(before, now):
        return None, arrived
    return 0 if now.settled is None else max(0, now.settled - settled), arrived


def _movement(
    before: PartitionSnapshot | None,
    now: PartitionSnapshot,
    unsettled: int | None,
    standstill: Standstill | None,
    times: tuple[float, float],
) -> tuple[Movement, float]:
    """The movement of a partition, and how long it has not moved."""
    at, stalled_after = times
    at_once = _movement_at_once(now, unsettled)
    if at_once is not None or standstill is None:
        return at_once or Movement.WAITING, 0.0
    still, held = at - standstill.settled_since, at - standstill.committed_since
    if still >= stalled_after:
        return Movement.STALLED, still
    if before is not None and _is_rewound(before, now):
        return Movement.REWOUND, still
    if held >= stalled_after:
        return Movement.HELD, held
    has_moved = before is not None and before.settled != now.settled
    return Movement.MOVING if has_moved else Movement.WAITING, still


def _movement_at_once(now: PartitionSnapshot, unsettled: int | None) -> Movement | None:
    """The movements that a single snapshot shows."""
    if now.end is None:
        return Movement.LEADERLESS
    if now.committed is not None and now.begin is not None and now.committed < now.begin:
        return Movement.EXPIRED
    if unsettled is None:
        return Movement.UNCOMMITTED
    return None if unsettled else Movement.DONE


def _is_rewound(before: PartitionSnapshot, now: PartitionSnapshot) -> bool:
    return before.committed is not None and now.committed is not None and now.committed < before.committed


def _drain(unsettled: int | None, settled_rate: float | None, arrival_rate: float | None) -> float | None:
    if unsettled == 0:
        return 0.0
    if unsettled is None or settled_rate is None or arrival_rate is None:
        return None
    return unsettled / (settled_rate - arrival_rate) if settled_rate > arrival_rate else math.inf


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None
