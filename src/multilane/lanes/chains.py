"""Chains of waiting records: of those that share an ordering key one is worked on at a time, in the order of the log.

Thread: none (pure); one owner.

A chain is the records of one key, first come first. It is in exactly one of three places: in `ready` (its first record
may be taken), in work (its first element is None, standing for what was taken), or deferred (its first record is not
due yet). So a free lane takes the next ready chain, whichever it is, and a slow key holds up nobody but itself. A
record without an ordering key is a chain of its own.

Owns the waiting records and `takeable`, the number of them that could be taken now. Never counts or settles offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from heapq import heappop, heappush
from itertools import count, takewhile
from typing import Final

from multilane.outcome.in_place import rests_until, stay_of
from multilane.wire.records.record import Record

Chain = list[Record | None]
OrderOf = Callable[[Record], Hashable | None]
DueAt = Callable[[Record], float]

_IN_WORK: Final = (None,)


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

    def __init__(self, order_of: OrderOf, lanes: int, due_at: DueAt | None = None) -> None:
        """`order_of` gives the ordering key of a record, None where any order will do. `due_at` tells when a record may
        be taken at the earliest, on the clock that `put` and `release` are given."""
        self.ready: deque[Chain] = deque()
        self.takeable = 0
        self._by_key: dict[Hashable, Chain] = {}
        self._order_of = order_of
        self._lanes = lanes
        self._due_at = due_at
        self.defers = due_at is not None
        self._deferred: list[tuple[float, int, Chain]] = []
        self._asleep: set[int] = set()  # the ids of deferred chains
        self._rests = False  # whether records that rest may be behind others of their keys
        self._held: dict[Hashable, int] = {}  # by key: records that are in work elsewhere
        self.on_defer: Callable[[float], object] = lambda due: None
        self._serial = count()  # of deferred ones: chains cannot be compared

    def __len__(self) -> int:
        """Records that wait, for whatever."""
        chained = sum(len(chain) - (chain[0] is None) for chain in self._by_key.values())
        alone = [chain for chain in (*self.ready, *(d[2] for d in self._deferred)) if self._is_alone(chain)]
        return chained + len(alone)

    def _is_alone(self, chain: Chain) -> bool:
        return chain[0] is not None and self._order_of(chain[0]) is None

    # --- waiting -----------------------------------------------------------------------------------------------------

    def put(self, records: Iterable[Record], now: float) -> None:
        by_key, order_of, ready, due_at = self._by_key, self._order_of, self.ready, self._due_at
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

    def put_rested(self, records: Iterable[Record], now: float) -> None:
        """Records whose keys have gone on without them, to be taken when they have rested: behind what waits of their
        keys, or as chains of their own."""
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
            self._go_on(chain, now, rests_until(record))

    def hold(self, records: Iterable[Record]) -> None:
        """These are in work elsewhere: what comes of their keys waits here and is not taken."""
        for record in records:
            key = self._order_of(record)
            if key is not None:
                self._by_key.setdefault(key, list(_IN_WORK))
                self._held[key] = self._held.get(key, 0) + 1

    def let_go(self, record: Record, now: float) -> None:
        """One of them is done with; when it was the last of its key, the next may be taken."""
        key = self._order_of(record)
        if key in self._held:
            self._held[key] -= 1
            if not self._held[key]:
                del self._held[key]
                self.release(record, now)

    def _defer(self, chain: Chain, due: float) -> None:
        heappush(self._deferred, (due, next(self._serial), chain))
        self._asleep.add(id(chain))
        self.on_defer(due)

    def wake(self, now: float) -> float | None:
        """What is due becomes ready; gives the time when the next will be."""
        deferred = self._deferred
        while deferred and deferred[0][0] <= now:
            chain = heappop(deferred)[2]
            self._asleep.discard(id(chain))
            self.takeable += len(chain)
            self.ready.append(chain)
        return deferred[0][0] if deferred else None

    # --- work --------------------------------------------------------------------------------------------------------

    def bring_first(self, *, failed: bool) -> bool:
        """Moves the next ready chain whose first record has failed in place, or has not, to the front. False when there
        is none."""
        for at, chain in enumerate(self.ready):
            first = chain[0]
            if first is not None and (stay_of(first) is not None) is failed:
                del self.ready[at]
                self.ready.appendleft(chain)
                return True
        return False

    def take_one(self) -> Record:
        """The first record of the next ready chain; IndexError when none is."""
        chain = self.ready.popleft()
        self.takeable -= len(chain)
        record = chain[0]
        chain[0] = None
        return record  # type: ignore[return-value] # a ready chain has its first record

    def take_more(self, record: Record, wanted: Callable[[Record], bool], most: int) -> list[Record]:
        """What waits directly behind a record in work, of its key, as far as it is wanted."""
        key = self._order_of(record)
        if key is None:
            return []
        chain = self._by_key[key]
        behind = takewhile(lambda other: other is not None and wanted(other), chain[1 : most + 1])
        more = [other for other in behind if other is not None]
        del chain[1 : len(more) + 1]
        return more

    def take(self, most: int, now: float, *, one_each: bool = False) -> list[Record]:
        """Up to `most` records; those of one key follow each other in their order, or there is one of each key."""
        taken: list[Record] = []
        ready = self.ready
        gone = 0  # of what was takeable: the rest of a chain waits for what is taken
        while ready and len(taken) < most:
            chain = ready.popleft()
            many = len(chain)
            gone += many
            if many == 1 or one_each:  # most keys have one: without cutting lists
                taken.append(chain[0])  # type: ignore[arg-type]
                chain[0] = None
                continue
            many = self._due(chain[: most - len(taken)], now)
            taken += chain[:many]  # type: ignore[arg-type]
            chain[:many] = _IN_WORK
        self.takeable -= gone
        return taken

    def _due(self, records: Chain, now: float) -> int:
        """How many of these, from the first on, are due. The first is: its chain is ready."""
        due_at = self._due_at
        if due_at is None:
            return len(records)
        late = (i for i, r in enumerate(records) if i and r is not None and due_at(r) > now)
        return next(late, len(records))

    def release(self, record: Record, now: float, again: Record | None = None) -> None:
        """What was taken of this record's key is done with: the next of the key may be taken. Or it is to be taken
        again, as it is in `again`."""
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
        self._go_on(chain, now)

    def put_back(self, records: list[Record], now: float) -> None:
        """These, taken of one key, are to be taken again, before all others of it, and not before they have rested."""
        key = self._order_of(records[0])
        chain: Chain = self._by_key[key] if key is not None else [None]
        chain[:1] = records
        self._go_on(chain, now, rests_until(records[0]))

    def _go_on(self, chain: Chain, now: float, due: float = 0.0) -> None:
        first = chain[0]
        if self._due_at is not None and first is not None:
            due = max(due, self._due_at(first))
        if self._rests and first is not None:
            due = max(due, rests_until(first))
        if due > now:
            self._defer(chain, due)
            return
        # A chain with more than a lane's share of what waits goes first: it is what the partition will wait for.
        if len(chain) * self._lanes > self.takeable:
            self.ready.appendleft(chain)
        else:
            self.ready.append(chain)
        self.takeable += len(chain)

    def release_all(self, records: Iterable[Record], now: float, again: Sequence[Record] = ()) -> None:
        """What was taken together is done with, but for those that are to be taken again."""
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
