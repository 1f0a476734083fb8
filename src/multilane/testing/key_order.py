"""The order of the records of a key: the guarantee with the most cases, so it has a module of its own.

Thread: none (pure).

The notation of the traces is explained in `guarantees`.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from multilane.testing.events import Copied, Ended, Event, Killed, Produced, Rebalanced, RecordPlace, Skipped, Started
from multilane.testing.violation import Violation

Call = tuple[str, int]


class _Early(NamedTuple):
    """A record was begun before another that belongs before it was done."""

    begun: Started
    before: str
    before_had_failed: bool


@dataclass(slots=True)
class _Key:
    """What is known of one key, across its topic and retry topic."""

    pending: dict[int, str] = field(default_factory=dict)  # by offset in the topic, rising: not done as yet
    failed: set[str] = field(default_factory=set)
    calls: dict[str, Call] = field(default_factory=dict)  # the last with each record
    failed_in: Call | None = None  # the last call in which a record failed
    follows: set[str] = field(default_factory=set)  # succeeded in such a call behind the failed one: comes once more
    last_begun: int = -1  # the highest


class PerKeyOrder:
    """Records of a key are handled in the order in which they were produced.

    In each partition a record is begun for the first time after those before it, and as long as a member keeps the
    partition it never goes back; after a member was killed the next may begin again further up, and goes on in order
    from there. The last success of a key is that of its newest record which succeeded.

    Holds:
        +a1 +a2 A(a1 A)a1 A(a2 A)a2
        +a1 +b1 A(b1 A)b1 A(a1 A)a1
        +a1 +a2 A(a1 A)a1 A(a2 A)a2 A# B(a1 B)a1 B(a2 B)a2
        +a1 +a2 A(a1 A)a1 A(a2 A)a2 A# A(a1 A)a1 A(a2 A)a2
        +a1 +a2 A~a1<a2 A(a2 A)a2
        +a1 +a2 A(a1,a2 A)a1,a2
    Does not:
        +a1 +a2 A(a2 A)a2 A(a1 A)a1
        +a1 +a2 A(a1 A)a1 A(a2 A)a2 A(a1 A)a1 A(a2 A)a2
        +a1 +a2 A(a1 A)a1 A(a2 A)a2 A# B(a2 B)a2 B(a1 B)a1
        +a1 +a2 A(a1 A)a1 A(a2 A)a2 A# B(a1 B)a1

    With `across_topics` (retryOrder key) a record is begun when those before it are done, in whichever topic: handled
    with success, passed over, or given up to the error topic; and none is handled again unless a member was killed. In
    the retry topic a failed record may be tried again in its place. Records of one call are begun together; what
    succeeded there behind a failed one has to come again after it.

    Holds across topics:
        +a1 +a2 A(a1 A!a1 a1>r a2>r A(a1' A)a1' A(a2' A)a2'
        +a1 +a2 A(a1 A!a1 a1>r A(a1' A!a1' a1>e A(a2 A)a2
        +a1 +a2 A(a1 A!a1 a1>r a2>r A(a1'^2 A!a1' A(a1'^3 A)a1' A(a2' A)a2'
        +a1 +a2 A(a1,a2 A!a1 A)a2 a1>r a2>r A(a1',a2' A)a1',a2'
        +a1 +a2 a1>r a2>r A(a1'^2,a2' A!a1' A)a2' A(a1'^3 A)a1' A(a2' A)a2'
        +a1 +a2 +a3 A(a1,a2 A!a1 A)a2 a1>e A(a3 A)a3
        +a1 +a2 a1>r A# a1>r B(a1' B)a1' B(a2 B)a2 B(a1'' B)a1'' a2>r B(a2' B)a2'
        +a1 +a2 +a3 a1>r a2>r A(a1' A)a1' A(a2' A)a2' A(a3 A# B(a2 B)a2 B(a3 B)a3
    Does not across topics:
        +a1 +a2 A(a1 A!a1 a1>r A(a2 A)a2 A(a1' A)a1'
        +a1 +a2 A(a1 A!a1 A(a2 A)a2 a1>r A(a1' A)a1'
        +a1 +a2 A(a1,a2 A!a1 A)a2 a1>r A(a1' A)a1'
        +a1 +a2 +a3 A(a1,a2 A!a1 A)a2 A(a3 A)a3 a1>r a2>r A(a1',a2' A)a1',a2'
        +a1 +a2 a1>r A(a1' A)a1' A(a2 A)a2 a1>r A(a1'' A)a1'' a2>r A(a2' A)a2'
        +a1 +a2 a1>r A# a1>r B(a1' B)a1' B(a2 B)a2 B(a1'' B)a1''
        +a1 +a2 +a3 a1>r a2>r A(a1' A)a1' A(a2' A)a2' A(a3 A)a3 A(a2 A)a2 A(a3 A)a3
    """

    def __init__(self, *, across_topics: bool = False) -> None:
        self._across_topics = across_topics
        self._in_partitions = _PartitionOrder()
        self._keys: dict[str, _Key] = defaultdict(_Key)
        self._offset_of: dict[str, int] = {}  # of a record, in the topic
        self._given_up: set[str] = set()
        self._early: list[_Early] = []
        self._latest: dict[object, dict[str, int]] = defaultdict(dict)  # successes, the last one last
        self._is_excused = False  # somebody was killed: what is not committed comes again
        self._found: list[Violation] = []

    def take(self, event: Event) -> None:
        self._in_partitions.take(event)
        match event:
            case Produced(key=str()):
                self._offset_of[event.record] = event.place.offset
                self._keys[event.key or ""].pending[event.place.offset] = event.record
            case Copied(is_final=True):
                self._given_up.add(event.record)
            case Started(key=str()):
                self._begin(event)
            case Ended(key=str()) | Skipped(key=str()):
                self._end(event)
            case Killed() | Rebalanced(is_lost=True):
                self._is_excused = True
            case _:
                pass

    def judge(self) -> list[Violation]:
        found = self._in_partitions.found + self._found
        for begun, before, had_failed in self._early:
            if not (before in self._given_up and had_failed):
                found.append(_violation(f"{_told(begun)} was begun at {begun.at:.3f} before record {before} was done"))
        return found + self._stale()

    # --- across topics -----------------------------------------------------------------------------------------------

    def _begin(self, event: Started) -> None:
        if not self._across_topics or event.record not in self._offset_of:
            return
        known, offset = self._keys[event.key or ""], self._offset_of[event.record]
        call = (event.member, event.call)
        for before, record in known.pending.items():
            if before >= offset:
                break
            if known.calls.get(record) != call:
                self._early.append(_Early(event, record, record in known.failed))
        is_first = offset > known.last_begun
        is_due = offset in known.pending or event.record in known.follows
        if not is_first and not is_due and not self._is_excused:
            self._found.append(_violation(f"{_told(event)} was begun again, and no member was killed"))
        known.calls[event.record] = call
        known.follows.discard(event.record)
        known.last_begun = max(known.last_begun, offset)

    def _end(self, event: Ended | Skipped) -> None:
        known, offset = self._keys[event.key or ""], self._offset_of.get(event.record)
        if isinstance(event, Ended) and not event.is_ok:
            known.failed.add(event.record)
            known.failed_in = (event.member, event.call)
            return
        if isinstance(event, Ended) and known.failed_in == (event.member, event.call):
            known.follows.add(event.record)
        if offset is not None:
            known.pending.pop(offset, None)
        if isinstance(event, Ended):
            place = event.place
            scope = event.key if self._across_topics else (event.key, place.topic, place.partition)
            rank = offset if self._across_topics and offset is not None else place.offset
            successes = self._latest[scope]
            successes.pop(event.record, None)
            successes[event.record] = rank

    def _stale(self) -> list[Violation]:
        found = []
        for scope, successes in self._latest.items():
            last = next(reversed(successes))
            newest = max(successes, key=successes.__getitem__)
            if successes[newest] > successes[last]:
                text = f"the last success of {scope} is record {last}, though record {newest} is newer"
                found.append(_violation(text))
        return found


class _PartitionOrder:
    """Within the partitions of each topic, by place."""

    def __init__(self) -> None:
        self.found: list[Violation] = []
        self._highest: dict[tuple[str, str, int], RecordPlace] = {}
        self._begun: set[RecordPlace] = set()
        self._home: dict[str, RecordPlace] = {}  # where a record was produced
        self._held: dict[str, dict[tuple[str, str, int], RecordPlace]] = defaultdict(dict)  # by member: the last begun

    def take(self, event: Event) -> None:
        match event:
            case Produced():
                self._home[event.record] = event.place
            case Started(key=str()) | Skipped(key=str()):
                self._begin(event)
            case Ended(key=str(), is_ok=False):  # it may come again, and what was called with it behind it
                scope = _scope(event)
                last = self._held[event.member].get(scope)
                if last is not None and last.offset >= event.place.offset:
                    self._held[event.member][scope] = event.place._replace(offset=event.place.offset - 1)
            case Rebalanced() | Killed():
                self._held.pop(event.member, None)
            case _:
                pass

    def _begin(self, event: Started | Skipped) -> None:
        place = event.place
        scope = _scope(event)
        highest = self._highest.get(scope)
        if highest is not None and highest.offset > place.offset and place not in self._begun:
            self.found.append(_violation(f"{_told(event)} was begun for the first time after {highest}"))
        if highest is None or place.offset > highest.offset:
            self._highest[scope] = place
        # A record that followed its key is begun as a copy; from its own place it comes again, not for the first time.
        self._begun |= {place, self._home.get(event.record, place)}
        last = self._held[event.member].get(scope)
        if last is not None and last.offset >= place.offset:
            self.found.append(_violation(f"{_told(event)} was begun by {event.member} after {last}, without a restart"))
        self._held[event.member][scope] = place


def _scope(event: Started | Ended | Skipped) -> tuple[str, str, int]:
    return event.key or "", event.place.topic, event.place.partition


def _told(event: Started | Skipped) -> str:
    return f"record {event.record} of key {event.key} ({event.place})"


def _violation(text: str) -> Violation:
    return Violation("per-key-order", text)
