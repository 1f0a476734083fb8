"""Guarantees of consuming, as objects: each takes the events of one group, in order, and judges them.

Thread: none (pure).

    >>> guarantee = AtLeastOnce()
    >>> for event in in_order(produced, told_by_members, seen_from_outside):
    ...     guarantee.take(event)
    >>> assert guarantee.judge() == []

The docstrings list traces that hold and traces that do not, in a notation of one word for an event:

    +a1       the record a1, whose key is a, is produced
    A(a1      member A begins a1, from the topic; A(a1,b1 two records in one call
    A(a1'     the same from the retry topic, its first copy there; a1'' its second
    A(a1'^2   the same as the second attempt at the record
    A)a1 A!a1 the call ends well, or fails
    A~a1<a2   A passes over a1, because a2 takes its place
    a1>r a1>e a copy of a1 is in the retry topic, or in the error topic
    =2 =2:3-5 the topic's offset 2 is committed, or 2 and the run 3 to 5; r=1 that of the retry topic
    A% A?     A gives back partitions, or loses them
    A. A#     A has left in order, or was killed
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
    """What all of these guarantees have against the events."""
    judges = list(guarantees)
    for event in events:
        for judge in judges:
            judge.take(event)
    return [violation for judge in judges for violation in judge.judge()]


class AtLeastOnce:
    """Every record that was produced is handled with success, passed over for a later one of its key that is, or lies
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
        """Following those that took its place, each of them later: so this ends."""
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
    """Whatever is below a committed offset, or in a run beyond it, was settled before: handled with success, passed
    over, or copied further on. A committed offset never goes back.

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
        )  # also those that are heard of later: a copy may be handled before it is seen
        self._copies: dict[str, list[Copied]] = defaultdict(list)
        self._committed: dict[tuple[str, int], int] = {}
        self._found: list[Violation] = []

    def take(self, event: Event) -> None:
        match event:
            case Produced():
                self._open(event.record, event.place)
            case Copied():
                self._copies[event.record].append(event)
                if not event.is_final:
                    self._open(event.record, event.place)
            case Ended(is_ok=True) | Skipped():
                self._settled.add(event.place)
                self._unsettled[event.place.topic, event.place.partition].pop(event.place.offset, None)
            case Committed():
                self._check(event)
            case _:
                pass

    def judge(self) -> list[Violation]:
        return list(self._found)

    def _open(self, record: str, place: RecordPlace) -> None:
        if place not in self._settled:
            self._unsettled[place.topic, place.partition][place.offset] = record

    def _lies_further_on(self, record: str, place: RecordPlace) -> bool:
        """Whether a copy of the record was made after this one. Copies are heard of in no certain order."""
        return any(
            copy.is_final or copy.place.topic != place.topic or copy.place.offset > place.offset
            for copy in self._copies[record]
        )

    def _check(self, event: Committed) -> None:
        partition = (event.topic, event.partition)
        before = self._committed.get(partition, 0)
        self._committed[partition] = event.offset
        if event.offset < before:
            self._say(f"the offset of {event.topic}-{event.partition} goes back from {before} to {event.offset}")
        for offset, record in self._unsettled[partition].items():
            place = RecordPlace(*partition, offset)
            is_below = offset < event.offset
            is_told = is_below or any(first <= offset <= last for first, last in event.runs)
            if not is_told or self._lies_further_on(record, place):
                continue
            if is_below:
                self._say(f"offset {event.offset} was committed while record {record} ({place}) was not settled")
            else:
                self._say(f"a commit told record {record} ({place}) to be settled, and it was not")

    def _say(self, text: str) -> None:
        self._found.append(Violation("no-commit-past-unsettled", text))


class NoSameKeyOverlap:
    """Records of one key are never in work at once, wherever: a call of a killed member ends when it dies.

    Holds:
        +a1 +a2 A(a1 A)a1 B(a2 B)a2
        +a1 +b1 A(a1 A(b1 A)a1 A)b1
        +a1 +a2 A(a1,a2 A)a1,a2
        +a1 A(a1 A# B(a1 B)a1
    Does not:
        +a1 +a2 A(a1 A(a2 A)a1 A)a2
        +a1 A(a1 B(a1 A)a1 B)a1
        +a1 +a2 A(a1 A!a1 a1>r A(a2 A(a1' A)a2 A)a1'

    Without `across_topics` a topic and its retry topic are apart from each other, and the last trace holds.
    """

    def __init__(self, *, across_topics: bool = True) -> None:
        self._across_topics = across_topics
        self._open: dict[object, dict[tuple[str, int, RecordPlace], Started]] = defaultdict(dict)
        self._found: list[Violation] = []

    def take(self, event: Event) -> None:
        match event:
            case Started(key=str()):
                self._begin(event)
            case Ended(key=str()):
                self._open[self._scope(event)].pop((event.member, event.call, event.place), None)
            case Killed() | Left():
                for calls in self._open.values():
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
        calls = self._open[self._scope(event)]
        for (member, call, place), other in calls.items():
            if (member, call) != (event.member, event.call):
                text = (
                    f"{event.member} began record {event.record} of key {event.key} ({event.place}) at {event.at:.3f} "
                    f"while {member} was at record {other.record} ({place}) since {other.at:.3f}"
                )
                self._found.append(Violation("no-same-key-overlap", text))
        calls[event.member, event.call, event.place] = event


class NoDuplicateWithoutRestart:
    """A record is handled with success once, and a place is begun once for each attempt, as long as every member leaves
    in order. Begun again is only what a member was at that was killed, or lost its partition.

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

    With `across_topics` (retryOrder key) what succeeded in one call with a failed record of its key, and behind it, is
    handled once more after it: it has to have the last word. A failed record is tried again in its place, by whoever
    has the partition then; attempts that no copy tells of are forgotten with the member.

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
        self._started: dict[RecordPlace, Started] = {}  # the last
        self._failed: set[RecordPlace] = set()  # the last attempt
        self._steps: dict[str, float] = {}  # by member: its last rebalance
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
                self._steps[event.member] = event.at
            case _:
                pass

    def judge(self) -> list[Violation]:
        return list(self._found)

    def _begin(self, event: Started) -> None:
        before = self._started.get(event.place)
        if before is not None and not (event.place in self._failed and self._is_next(before, event)):
            told = f"{before.member} had been at it at {before.at:.3f}"
            self._say(f"{event.member} began record {event.record} ({event.place}) again at {event.at:.3f}: {told}")
        self._started[event.place] = event
        self._failed.discard(event.place)

    def _is_next(self, before: Started, event: Started) -> bool:
        """After a failure: the next attempt or, where attempts are made in place, the same by whoever has it next."""
        is_handed_on = before.member != event.member or self._steps.get(event.member, before.at) > before.at
        return event.attempt > before.attempt or (self._across_topics and is_handed_on)

    def _succeed(self, event: Ended) -> None:
        if self._across_topics and self._failed_in.get(event.key or "") == (event.member, event.call):
            self._started.pop(event.place, None)
            return
        before = self._succeeded.get(event.record)
        if before is not None and not self._is_excused:
            self._say(f"record {event.record} was handled twice, from {before} and from {event.place}")
        self._succeeded[event.record] = event.place

    def _say(self, text: str) -> None:
        self._found.append(Violation("no-duplicate-without-restart", text))
