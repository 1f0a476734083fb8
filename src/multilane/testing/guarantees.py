"""The guarantees of consuming: each object takes the events of one group, in order, and judges them.

Thread: none (pure).

    >>> guarantee = AtLeastOnce()
    >>> for event in in_order(produced, told_by_members, seen_from_outside):
    ...     guarantee.take(event)
    >>> assert guarantee.judge() == []

The docstrings list traces that hold and traces that do not, with one word for each event:

    +a1       the record a1, whose key is a, is produced
    A(a1      member A begins a1, from the topic; A(a1,b1 two records in one call
    A(a1'     the same from the retry topic, its first copy there; a1'' its second
    A(a1'^2   the same as the second attempt at the record
    A)a1 A!a1 the call ends well, or fails
    A~a1<a2   A skips a1, because a2 supersedes it
    a1>r a1>e a copy of a1 is in the retry topic, or in the error topic
    =2 =2:3-5 the topic's offset 2 is committed, or 2 and the run 3 to 5; r=1 that of the retry topic
    A% A?     A gives back partitions, or loses them
    A. A#     A has left cleanly, or was killed
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

from multilane.testing.events import (
    Committed,
    Copied,
    Ended,
    Event,
    Killed,
    Left,
    Produced,
    Rebalanced,
    RecordPlace,
    Skipped,
    Started,
)
from multilane.testing.key_order import PerKeyOrder
from multilane.testing.violation import Violation

__all__ = [
    "AtLeastOnce",
    "Guarantee",
    "NoCommitPastUnsettled",
    "NoDuplicateWithoutRestart",
    "NoSameKeyOverlap",
    "PerKeyOrder",
    "Violation",
    "violations",
]


class Guarantee(Protocol):
    def take(self, event: Event) -> None: ...
    def judge(self) -> list[Violation]: ...


def violations(events: Iterable[Event], guarantees: Iterable[Guarantee]) -> list[Violation]:
    """The violations of all these guarantees in the events."""
    judges = list(guarantees)
    for event in events:
        for judge in judges:
            judge.take(event)
    return [violation for judge in judges for violation in judge.judge()]


class AtLeastOnce:
    """Every produced record is handled successfully, is superseded by a later record of its key that is handled, or is
    in the error topic.

    Holds:
        +a1 A(a1 A)a1
        +a1 A(a1 A# B(a1 B)a1
        +a1 A(a1 A!a1 a1>r A(a1' A)a1'
        +a1 A(a1 A!a1 a1>e
        +a1 +a2 A~a1<a2 A(a2 A)a2
    Does not:
        +a1
        +a1 A(a1
        +a1 A(a1 A!a1
        +a1 A(a1 A!a1 a1>r
        +a1 +a2 A~a1<a2 A(a2 A!a2
        +a1 +a2 A(a1 A)a1 A~a2<a1
        +a1 +b1 A~a1<b1 A(b1 A)b1
    """

    def __init__(self) -> None:
        self._produced: dict[str, Produced] = {}
        self._done: set[str] = set()
        self._superseded: dict[str, set[str]] = defaultdict(set)

    def take(self, event: Event) -> None:
        match event:
            case Produced():
                self._produced[event.record] = event
            case Ended(is_ok=True) | Copied(is_final=True):
                self._done.add(event.record)
            case Skipped():
                self._superseded[event.record].add(event.by)
            case _:
                pass

    def judge(self) -> list[Violation]:
        return [
            Violation("at-least-once", f"record {record} of key {produced.key} ({produced.place}) was never handled")
            for record, produced in self._produced.items()
            if not self._is_done(record)
        ]

    def _is_done(self, record: str) -> bool:
        """Follows the superseding records; each is later than the one before, so the recursion ends."""
        if record in self._done:
            return True
        mine = self._produced[record]
        later = (self._produced.get(by) for by in self._superseded.get(record, ()))
        return any(
            other is not None
            and other.key == mine.key
            and other.place.offset > mine.place.offset
            and self._is_done(other.record)
            for other in later
        )


class NoCommitPastUnsettled:
    """Every record below a committed offset, or in a run beyond it, was settled before: handled successfully,
    superseded, or copied to the next topic. A committed offset never goes back.

    Holds:
        +a1 +a2 A(a1 A)a1 =1
        +a1 +a2 A(a2 A)a2 =0:1-1
        +a1 +a2 A(a1 A!a1 a1>r =1 r=0
        +a1 +a2 A(a1 A!a1 a1>r a2>r =2 A(a1' A)a1' r=1
        +a1 +a2 A~a1<a2 =1
        +a1 A(a1 A!a1 a1>r A(a1' A!a1' a1>e =1 r=1
    Does not:
        +a1 =1
        +a1 A(a1 =1
        +a1 A(a1 =1 A)a1
        +a1 A(a1 A!a1 =1
        +a1 A(a1 A!a1 =1 a1>r
        +a1 +a2 +a3 A(a3 A)a3 =0:1-2
        +a1 A(a1 A!a1 a1>r A(a1' A!a1' r=1
        +a1 +a2 A(a1 A)a1 A(a2 A)a2 =2 =1
    """

    def __init__(self) -> None:
        self._unsettled: dict[tuple[str, int], dict[int, str]] = defaultdict(dict)  # by partition: offset -> record
        self._settled: set[RecordPlace] = (
            set()
        )  # also copies that are observed later: a copy may be handled before it is observed
        self._copies: dict[str, list[Copied]] = defaultdict(list)
        self._committed: dict[tuple[str, int], int] = {}
        self._found: list[Violation] = []

    def take(self, event: Event) -> None:
        match event:
            case Produced():
                self._add(event.record, event.place)
            case Copied():
                self._copies[event.record].append(event)
                if not event.is_final:
                    self._add(event.record, event.place)
            case Ended(is_ok=True) | Skipped():
                self._settled.add(event.place)
                self._unsettled[event.place.topic, event.place.partition].pop(event.place.offset, None)
            case Committed():
                self._check(event)
            case _:
                pass

    def judge(self) -> list[Violation]:
        return list(self._found)

    def _add(self, record: str, place: RecordPlace) -> None:
        if place not in self._settled:
            self._unsettled[place.topic, place.partition][place.offset] = record

    def _has_later_copy(self, record: str, place: RecordPlace) -> bool:
        """Whether the record has a copy after this one. Copies are observed in any order."""
        return any(
            copy.is_final or copy.place.topic != place.topic or copy.place.offset > place.offset
            for copy in self._copies[record]
        )

    def _check(self, event: Committed) -> None:
        partition = (event.topic, event.partition)
        before = self._committed.get(partition, 0)
        self._committed[partition] = event.offset
        if event.offset < before:
            self._add_violation(
                f"the offset of {event.topic}-{event.partition} goes back from {before} to {event.offset}"
            )
        for offset, record in self._unsettled[partition].items():
            place = RecordPlace(*partition, offset)
            is_below = offset < event.offset
            is_claimed = is_below or any(first <= offset <= last for first, last in event.runs)
            if not is_claimed or self._has_later_copy(record, place):
                continue
            if is_below:
                self._add_violation(
                    f"offset {event.offset} was committed while record {record} ({place}) was not settled"
                )
            else:
                self._add_violation(f"a commit marked record {record} ({place}) as settled, but it was not")

    def _add_violation(self, text: str) -> None:
        self._found.append(Violation("no-commit-past-unsettled", text))


class NoSameKeyOverlap:
    """Records of one key are never in flight at once, in any process; a call of a killed member ends when it dies.

    Holds:
        +a1 +a2 A(a1 A)a1 B(a2 B)a2
        +a1 +b1 A(a1 A(b1 A)a1 A)b1
        +a1 +a2 A(a1,a2 A)a1,a2
        +a1 A(a1 A# B(a1 B)a1
    Does not:
        +a1 +a2 A(a1 A(a2 A)a1 A)a2
        +a1 A(a1 B(a1 A)a1 B)a1
        +a1 +a2 A(a1 A!a1 a1>r A(a2 A(a1' A)a2 A)a1'

    Without `across_topics` a topic and its retry topic are judged separately, and the last trace holds.
    """

    def __init__(self, *, across_topics: bool = True) -> None:
        self._across_topics = across_topics
        self._unfinished: dict[object, dict[tuple[str, int, RecordPlace], Started]] = defaultdict(dict)
        self._found: list[Violation] = []

    def take(self, event: Event) -> None:
        match event:
            case Started(key=str()):
                self._begin(event)
            case Ended(key=str()):
                self._unfinished[self._scope(event)].pop((event.member, event.call, event.place), None)
            case Killed() | Left():
                for calls in self._unfinished.values():
                    for call in [call for call in calls if call[0] == event.member]:
                        del calls[call]
            case _:
                pass

    def judge(self) -> list[Violation]:
        return list(self._found)

    def _scope(self, event: Started | Ended) -> object:
        place = event.place
        return event.key if self._across_topics else (event.key, place.topic, place.partition)

    def _begin(self, event: Started) -> None:
        calls = self._unfinished[self._scope(event)]
        for (member, call, place), other in calls.items():
            if (member, call) != (event.member, event.call):
                text = (
                    f"{event.member} began record {event.record} of key {event.key} ({event.place}) at {event.at:.3f} "
                    f"while {member} had been processing record {other.record} ({place}) since {other.at:.3f}"
                )
                self._found.append(Violation("no-same-key-overlap", text))
        calls[event.member, event.call, event.place] = event


class NoDuplicateWithoutRestart:
    """As long as every member leaves cleanly, a record is handled successfully once, and each copy is started once per
    attempt. Only records in flight on a member that was killed, or lost its partition, are started again.

    Holds:
        +a1 A(a1 A)a1
        +a1 +a2 A(a1 A)a1 A. B(a2 B)a2
        +a1 A(a1 A!a1 a1>r A(a1' A)a1'
        +a1 A(a1 A!a1 a1>r A(a1'^2 A!a1' A(a1'^3 A)a1'
        +a1 A(a1 A)a1 A# B(a1 B)a1
        +a1 A(a1 A)a1 A? A(a1 A)a1
    Does not:
        +a1 A(a1 A)a1 A(a1 A)a1
        +a1 A(a1 A)a1 A. B(a1 B)a1
        +a1 A(a1 A!a1 A(a1 A)a1
        +a1 A(a1 A)a1 a1>r A(a1' A)a1'
        +a1 a1>r A(a1'^2 A)a1' A(a1'^3 A)a1'
        +a1 +b1 A(a1 A)a1 B(b1 B# C(a1 C)a1
        +a1 +a2 A(a1,a2 A!a1 A)a2 a1>r a2>r A(a1',a2' A)a1',a2'

    With `across_topics` (retryOrder key) a record that succeeded in the same call as a failed record of its key, and
    after it, is handled once more after that one: the newer record has to be handled last. A failed record is retried
    in place, by the member that has the partition then; attempts that no copy records are lost with the member.

    Holds across topics:
        +a1 a1>r A(a1'^2 A!a1' A. B(a1'^2 B)a1'
        +a1 +a2 A(a1,a2 A!a1 A)a2 a1>r a2>r A(a1',a2' A)a1',a2'
        +a1 +a2 a1>r a2>r A(a1'^2,a2' A!a1' A)a2' A(a1'^3,a2' A)a1',a2'
    Does not across topics:
        +a1 a1>r A(a1'^2 A!a1' A(a1'^2 A)a1'
        +a1 a1>r A(a1'^2 A)a1' A. B(a1'^2 B)a1'
        +b1 +a1 A(b1,a1 A)b1 A!a1 a1>r b1>r A(b1' A)b1' A(a1' A)a1'
        +a1 +a2 A(a1,a2 A!a1 A)a2 a1>r a2>r A(a1',a2' A)a1',a2' a2>r A(a2'' A)a2''
    """

    def __init__(self, *, across_topics: bool = False) -> None:
        self._across_topics = across_topics
        self._started: dict[RecordPlace, Started] = {}  # the last start
        self._failed: set[RecordPlace] = set()  # places whose last attempt failed
        self._rebalanced_at: dict[str, float] = {}  # by member: its last rebalance
        self._failed_in: dict[str, tuple[str, int]] = {}  # by key: the last call in which a record failed
        self._succeeded: dict[str, RecordPlace] = {}
        self._is_excused = False
        self._found: list[Violation] = []

    def take(self, event: Event) -> None:
        match event:
            case Started():
                self._begin(event)
            case Ended(is_ok=True):
                self._succeed(event)
            case Ended():
                self._failed.add(event.place)
                if event.key is not None:
                    self._failed_in[event.key] = (event.member, event.call)
            case Killed() | Rebalanced(is_lost=True):
                self._is_excused = True
                for place in [place for place, last in self._started.items() if last.member == event.member]:
                    del self._started[place]
            case Rebalanced():
                self._rebalanced_at[event.member] = event.at
            case _:
                pass

    def judge(self) -> list[Violation]:
        return list(self._found)

    def _begin(self, event: Started) -> None:
        before = self._started.get(event.place)
        if before is not None and not (event.place in self._failed and self._is_next(before, event)):
            earlier = f"{before.member} started it at {before.at:.3f}"
            self._add_violation(
                f"{event.member} began record {event.record} ({event.place}) again at {event.at:.3f}: {earlier}"
            )
        self._started[event.place] = event
        self._failed.discard(event.place)

    def _is_next(self, before: Started, event: Started) -> bool:
        """Whether this is a valid retry: the next attempt or, if retried in place, the same attempt after a
        rebalance."""
        has_moved = before.member != event.member or self._rebalanced_at.get(event.member, before.at) > before.at
        return event.attempt > before.attempt or (self._across_topics and has_moved)

    def _succeed(self, event: Ended) -> None:
        if self._across_topics and self._failed_in.get(event.key or "") == (event.member, event.call):
            self._started.pop(event.place, None)
            return
        before = self._succeeded.get(event.record)
        if before is not None and not self._is_excused:
            self._add_violation(f"record {event.record} was handled twice, from {before} and from {event.place}")
        self._succeeded[event.record] = event.place

    def _add_violation(self, text: str) -> None:
        self._found.append(Violation("no-duplicate-without-restart", text))
