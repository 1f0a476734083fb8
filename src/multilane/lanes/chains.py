"""Chains of waiting records: records that share an ordering key are handled one at a time, in log order.

Thread: none (pure); one owner.

A chain is the waiting records of one key, oldest first. It is in exactly one of three states: ready (in `ready`, its
first record may be taken), in flight (its first element is None and stands for the records that were taken), or
deferred (its first record is not due yet). A free lane takes the next ready chain, so a slow key blocks no other key. A
record without an ordering key is a chain of its own.

Owns the waiting records and `takeable`, the number of them that can be taken now. Never counts or settles offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count, takewhile
from typing import ClassVar, Final, Self, cast

from multilane.lanes.intake import Piece
from multilane.lanes.ordering import ONE_CHAIN, OrderOf, one_chain
from multilane.outcome.in_place import rests_until, stay_of
from multilane.wire.records.record import Record

Chain = list[Record | None]
DueAt = Callable[[Record], float]

_IN_FLIGHT: Final = (None,)


class Chains:
    __slots__ = (
        "_asleep",
        "_by_key",
        "_deferred",
        "_due_at",
        "_held",
        "_lanes",
        "_order_of",
        "_rests",
        "_serial",
        "defers",
        "on_defer",
        "ready",
        "takeable",
    )
    takes_back: ClassVar = True

    def __init__(self, order_of: OrderOf, lanes: int, due_at: DueAt | None = None) -> None:
        """`order_of` returns the ordering key of a record, None if any order will do. `due_at` returns the earliest
        time at which a record may be taken, on the clock that `put` and `release` use."""
        self.ready: deque[Chain] = deque()
        self.takeable = 0
        self._by_key: dict[Hashable, Chain] = {}
        self._order_of = order_of
        self._lanes = lanes
        self._due_at = due_at
        self.defers = due_at is not None
        self._deferred: list[tuple[float, int, Chain]] = []
        self._asleep: set[int] = set()  # the ids of deferred chains
        self._rests = False  # whether resting records may be behind others of their keys
        self._held: dict[Hashable, int] = {}  # by key: records that are in flight elsewhere
        self.on_defer: Callable[[float], object] = lambda due: None
        self._serial = count()  # breaks ties among deferred chains, which cannot be compared

    def __len__(self) -> int:
        """The number of waiting records."""
        chained = sum(len(chain) - (chain[0] is None) for chain in self._by_key.values())
        alone = [chain for chain in (*self.ready, *(d[2] for d in self._deferred)) if self._is_alone(chain)]
        return chained + len(alone)

    @property
    def singles(self) -> Self:
        return self

    @property
    def is_one(self) -> bool:
        """Whether all records are of one chain."""
        return self._order_of is one_chain

    def _is_alone(self, chain: Chain) -> bool:
        return chain[0] is not None and self._order_of(chain[0]) is None

    # --- waiting -----------------------------------------------------------------------------------------------------

    def put_piece(self, piece: Piece, now: float) -> None:
        if self._order_of is one_chain and self._due_at is None:
            self._put_behind(cast("Chain", piece.records()))  # nobody else has this list
        else:
            self.put(piece.records(), now)

    def put(self, records: Iterable[Record], now: float) -> None:
        by_key, order_of, ready, due_at = self._by_key, self._order_of, self.ready, self._due_at
        if order_of is one_chain and due_at is None:
            self._put_behind(list(records))
            return
        for record in records:
            key = order_of(record)
            if key is not None:
                chain = by_key.get(key)
                if chain is not None:
                    chain.append(record)
                    if chain[0] is not None and id(chain) not in self._asleep:
                        self.takeable += 1
                    continue
                by_key[key] = chain = [record]
            else:
                chain = [record]
            if due_at is not None and (due := due_at(record)) > now:
                self._defer(chain, due)
            else:
                ready.append(chain)
                self.takeable += 1

    def _put_behind(self, records: list[Record | None]) -> None:
        """These are all of one chain."""
        chain = self._by_key.get(ONE_CHAIN)
        if chain is not None:
            chain += records
            if chain[0] is not None and id(chain) not in self._asleep:
                self.takeable += len(records)
        elif records:
            self._by_key[ONE_CHAIN] = records
            self.ready.append(records)
            self.takeable += len(records)

    def put_rested(self, records: Iterable[Record], now: float) -> None:
        """Records that are handled again after their rest, although later records of their keys were taken: they go
        behind what waits of their keys, or become chains of their own."""
        for record in records:
            key = self._order_of(record)
            chain = self._by_key.get(key) if key is not None else None
            if chain is not None:
                self._rests = True
                self.put((record,), now)
                continue
            chain = [record]
            if key is not None:
                self._by_key[key] = chain
            self._requeue(chain, now, rests_until(record))

    def hold(self, records: Iterable[Record]) -> None:
        """These are in flight elsewhere: later records of their keys wait here and are not taken."""
        for record in records:
            key = self._order_of(record)
            if key is not None:
                self._by_key.setdefault(key, list(_IN_FLIGHT))
                self._held[key] = self._held.get(key, 0) + 1

    def release_held(self, record: Record, now: float) -> None:
        """A held record is settled elsewhere. If it was the last one of its key, the next record may be taken."""
        key = self._order_of(record)
        if key in self._held:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
                self.release(record, now)

    def release_frames(self) -> None:
        """Records that were taken in are few: at most `room` of their intake."""

    def _defer(self, chain: Chain, due: float) -> None:
        heappush(self._deferred, (due, next(self._serial), chain))
        self._asleep.add(id(chain))
        self.on_defer(due)

    def wake(self, now: float) -> float | None:
        """Chains that are due become ready. Returns when the next one is due."""
        deferred = self._deferred
        while deferred and deferred[0][0] <= now:
            chain = heappop(deferred)[2]
            self._asleep.discard(id(chain))
            self.takeable += len(chain)
            self.ready.append(chain)
        return deferred[0][0] if deferred else None

    # --- taking ------------------------------------------------------------------------------------------------------

    def bring_first(self, *, failed: bool) -> bool:
        """Moves the next ready chain to the front whose first record has failed in place (or has not). False if there
        is none."""
        for index, chain in enumerate(self.ready):
            first = chain[0]
            if first is not None and (stay_of(first) is not None) is failed:
                del self.ready[index]
                self.ready.appendleft(chain)
                return True
        return False

    def take_one(self) -> Record:
        """The first record of the next ready chain. Raises IndexError if no chain is ready."""
        chain = self.ready.popleft()
        self.takeable -= len(chain)
        record = chain[0]
        chain[0] = None
        return record  # type: ignore[return-value] # a ready chain has its first record

    def take_more(self, record: Record, wanted: Callable[[Record], bool], most: int) -> list[Record]:
        """The records of the same key directly behind a record in flight, up to the first that is not wanted."""
        key = self._order_of(record)
        if key is None:
            return []
        chain = self._by_key[key]
        behind = takewhile(lambda other: other is not None and wanted(other), chain[1 : most + 1])
        more = [other for other in behind if other is not None]
        del chain[1 : len(more) + 1]
        return more

    def take(self, most: int, now: float, *, one_each: bool = False) -> list[Record]:
        """Up to `most` records: those of one key next to each other in order, or with `one_each` one of each key."""
        taken: list[Record] = []
        ready = self.ready
        gone = 0  # no longer takeable: the rest of a chain waits for the records that are taken
        while ready and len(taken) < most:
            chain = ready.popleft()
            many = len(chain)
            gone += many
            if many == 1 or one_each:  # most keys have one record: no list is cut
                taken.append(chain[0])  # type: ignore[arg-type]
                chain[0] = None
                continue
            many = self._due(chain[: most - len(taken)], now)
            taken += chain[:many]  # type: ignore[arg-type]
            chain[:many] = _IN_FLIGHT
        self.takeable -= gone
        return taken

    def _due(self, records: Chain, now: float) -> int:
        """How many of these, from the first on, are due. The first one is, because its chain is ready."""
        due_at = self._due_at
        if due_at is None:
            return len(records)
        late = (i for i, r in enumerate(records) if i and r is not None and due_at(r) > now)
        return next(late, len(records))

    def release(self, record: Record, now: float, again: Record | None = None) -> None:
        """The records taken of this record's key are done: the next one of the key may be taken. Or the record is
        handled again, in its form in `again`."""
        if again is not None:
            self.put_back([again], now)
            return
        key = self._order_of(record)
        if key is None:
            return
        chain = self._by_key[key]
        if len(chain) == 1:
            del self._by_key[key]
            return
        del chain[0]
        self._requeue(chain, now)

    def put_back(self, records: list[Record], now: float) -> None:
        """Records that were taken of one key are taken again, before all others of it, once they have rested."""
        key = self._order_of(records[0])
        chain: Chain = self._by_key[key] if key is not None else [None]
        chain[:1] = records
        self._requeue(chain, now, rests_until(records[0]))

    def _requeue(self, chain: Chain, now: float, due: float = 0.0) -> None:
        first = chain[0]
        if self._due_at is not None and first is not None:
            due = max(due, self._due_at(first))
        if self._rests and first is not None:
            due = max(due, rests_until(first))
        if due > now:
            self._defer(chain, due)
            return
        # A chain with more than a lane's share of the waiting records goes first: it will finish last.
        if len(chain) * self._lanes > self.takeable:
            self.ready.appendleft(chain)
        else:
            self.ready.append(chain)
        self.takeable += len(chain)

    def release_all(self, records: Iterable[Record], now: float, again: Sequence[Record] = ()) -> None:
        """The records that were taken together are done, except for those in `again`, which are taken again."""
        order_of, by_key = self._order_of, self._by_key
        for key in dict.fromkeys(map(order_of, again)):
            if key is None:
                for alone in again:
                    if order_of(alone) is None:
                        self.put_back([alone], now)
            else:
                self.put_back([record for record in again if order_of(record) == key], now)
        for record in records:
            key = order_of(record)
            if key is None:
                continue
            chain = by_key.get(key)
            if chain is None or chain[0] is not None:
                continue  # released by an earlier record of the same key
            if len(chain) == 1:
                del by_key[key]
            else:
                self.release(record, now)
