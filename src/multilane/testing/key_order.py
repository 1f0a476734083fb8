"""The order of the records of a key: the guarantee with most cases, hence its own module.

Thread: none (pure).

`guarantees` explains the notation of the traces.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import NamedTuple

from multilane.testing.events import Copied, Ended, Event, Killed, Produced, Rebalanced, RecordPlace, Skipped, Started
from multilane.testing.violation import Violation

CallId = tuple[str, int]


class _BegunEarly(NamedTuple):
    """A record was begun before an earlier record of its key was done."""

    begun: Started
    before: str
    before_had_failed: bool


@dataclass(slots=True)
class _Key:
    """The state of one key, across its topic and retry topic."""

    pending: dict[int, str] = field(default_factory=dict)  # not done yet; by offset in the topic, rising
    failed: set[str] = field(default_factory=set)
    calls: dict[str, CallId] = field(default_factory=dict)  # the last call with each record
    failed_in: CallId | None = None  # the last call in which a record failed
    to_repeat: set[str] = field(default_factory=set)  # succeeded in such a call after the failed record: handled again
    last_begun: int = -1  # the highest offset


class PerKeyOrder:
    """Records of a key are handled in the order in which they were produced.

    In each partition records are begun for the first time in order, and a member never goes back as long as it keeps
    the partition. After a member was killed the next one may start again at an earlier record, and continues in order
    from there. The last success of a key is the one of its newest successful record.

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

    With `across_topics` (retryOrder key) a record is begun when those before it are done, in either topic: handled
    successfully, superseded, or copied to the error topic; and none is handled again unless a member was killed. In the
    retry topic a failed record may be retried in place. Records of one call are begun together; a record that succeeded
    there after a failed one has to be handled again after it.

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
        self._offset_of: dict[str, int] = {}  # by record, in the topic
        self._dead: set[str] = set()
        self._early: list[_BegunEarly] = []
        self._latest: dict[object, dict[str, int]] = defaultdict(dict)  # successes, the latest last
        self._is_excused = False  # a member was killed: uncommitted records are redelivered
        self._found: list[Violation] = []

    def take(self, event: Event) -> None:
        self._in_partitions.take(event)
        match event:
            case Produced(key=str()):
                self._offset_of[event.record] = event.place.offset
                self._keys[event.key or ""].pending[event.place.offset] = event.record
            case Copied(is_final=True):
                self._dead.add(event.record)
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
            if not (before in self._dead and had_failed):
                found.append(
                    _violation(f"{_described(begun)} was begun at {begun.at:.3f} before record {before} was done")
                )
        return found + self._stale()

    # --- across topics -----------------------------------------------------------------------------------------------

    def _begin(self, event: Started) -> None:
        if not self._across_topics or event.record not in self._offset_of:
            return
        key, offset = self._keys[event.key or ""], self._offset_of[event.record]
        call = (event.member, event.call)
        for before, record in key.pending.items():
            if before >= offset:
                break
            if key.calls.get(record) != call:
                self._early.append(_BegunEarly(event, record, record in key.failed))
        is_first = offset > key.last_begun
        is_due = offset in key.pending or event.record in key.to_repeat
        if not is_first and not is_due and not self._is_excused:
            self._found.append(_violation(f"{_described(event)} was begun again, but no member was killed"))
        key.calls[event.record] = call
        key.to_repeat.discard(event.record)
        key.last_begun = max(key.last_begun, offset)

    def _end(self, event: Ended | Skipped) -> None:
        key, offset = self._keys[event.key or ""], self._offset_of.get(event.record)
        if isinstance(event, Ended) and not event.is_ok:
            key.failed.add(event.record)
            key.failed_in = (event.member, event.call)
            return
        if isinstance(event, Ended) and key.failed_in == (event.member, event.call):
            key.to_repeat.add(event.record)
        if offset is not None:
            key.pending.pop(offset, None)
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
    """The order within the partitions of each topic, by offset."""

    def __init__(self) -> None:
        self.found: list[Violation] = []
        self._highest: dict[tuple[str, str, int], RecordPlace] = {}
        self._begun: set[RecordPlace] = set()
        self._produced_at: dict[str, RecordPlace] = {}  # by record
        self._last_begun_by: dict[str, dict[tuple[str, str, int], RecordPlace]] = defaultdict(dict)  # by member

    def take(self, event: Event) -> None:
        match event:
            case Produced():
                self._produced_at[event.record] = event.place
            case Started(key=str()) | Skipped(key=str()):
                self._begin(event)
            case Ended(key=str(), is_ok=False):  # it may be retried, with the records after it in its call
                scope = _scope(event)
                last = self._last_begun_by[event.member].get(scope)
                if last is not None and last.offset >= event.place.offset:
                    self._last_begun_by[event.member][scope] = event.place._replace(offset=event.place.offset - 1)
            case Rebalanced() | Killed():
                self._last_begun_by.pop(event.member, None)
            case _:
                pass

    def _begin(self, event: Started | Skipped) -> None:
        place = event.place
        scope = _scope(event)
        highest = self._highest.get(scope)
        if highest is not None and highest.offset > place.offset and place not in self._begun:
            self.found.append(_violation(f"{_described(event)} was begun for the first time after {highest}"))
        if highest is None or place.offset > highest.offset:
            self._highest[scope] = place
        # A record that followed its key is first begun as a copy; a start from its original place is a repeat.
        self._begun |= {place, self._produced_at.get(event.record, place)}
        last = self._last_begun_by[event.member].get(scope)
        if last is not None and last.offset >= place.offset:
            self.found.append(
                _violation(f"{_described(event)} was begun by {event.member} after {last}, without a restart")
            )
        self._last_begun_by[event.member][scope] = place


def _scope(event: Started | Ended | Skipped) -> tuple[str, str, int]:
    return event.key or "", event.place.topic, event.place.partition


def _described(event: Started | Skipped) -> str:
    return f"record {event.record} of key {event.key} ({event.place})"


def _violation(text: str) -> Violation:
    return Violation("per-key-order", text)
