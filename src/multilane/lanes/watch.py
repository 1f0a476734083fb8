"""Isolates records that may kill their process: suspects are handled alone, convicted ones not at all.

Thread: loop.

There is one `SuspectIsolation` per event loop, because a crash kills the whole process. While any partition has
suspects, each suspect waits until no other call runs, and no other call begins until it has ended. The lanes' shortest
loop does not check for that, so lanes use another loop meanwhile. Once all suspects are settled, calls cost nothing
again. `Watch` is the part that a processor sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Protocol
from weakref import WeakSet

from multilane.clock import Clock, SystemClock
from multilane.lanes.begun import IDLE, LaneMarks, Name
from multilane.lanes.crashes import Suspicion
from multilane.lanes.lane import Lane
from multilane.logs import logger
from multilane.outcome.poison import SuspectedPoison
from multilane.wire.records.record import Record
from multilane.wire.records.window_rows import WindowRows

log = logger(__name__)

_LOOK: Final = 0.002  # seconds between checks whether other calls have ended
_INNOCENT: Final = Suspicion()
_PATIENCE: Final = 30.0  # for other calls to end; after that a suspect is not alone, and the begun table shows it


class Calls(Protocol):
    """A lane pool."""

    @property
    def calling(self) -> Collection[Lane]: ...

    def choose_loop(self) -> None: ...


@dataclass(slots=True)
class _Watched:
    suspicion: Suspicion
    frontier: Callable[[], int]

    @property
    def is_settled(self) -> bool:
        last = max((*(last for _, last in self.suspicion.suspects), *self.suspicion.convicted), default=IDLE)
        return self.frontier() > last


@dataclass(slots=True)
class SuspectIsolation:
    clock: Clock = field(default_factory=SystemClock)
    is_active: bool = False  # suspects are known: no other call runs beside one of theirs
    _pools: WeakSet[Calls] = field(default_factory=WeakSet)
    _watched: dict[Name, _Watched] = field(default_factory=dict)  # several groups may handle the same partition
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _opened: asyncio.Event = field(default_factory=asyncio.Event)
    _alone_now: Sequence[Record] = ()  # the records that are handled alone now
    _alone_for: Watch | None = None  # whose records they are: another group may have the same

    def __post_init__(self) -> None:
        self._opened.set()

    def join(self, pool: Calls) -> None:
        self._pools.add(pool)

    def begin(self, name: Name, suspicion: Suspicion, frontier: Callable[[], int]) -> None:
        """A partition has suspects. Everything below `frontier` is settled."""
        self._watched[name] = _Watched(suspicion, frontier)
        self._choose()

    def end(self, name: Name, frontier: Callable[[], int]) -> None:
        """The partition was revoked. Ignored if a new processor has begun it since, which has another frontier."""
        watched = self._watched.get(name)
        if watched is not None and watched.frontier == frontier:
            del self._watched[name]
            self._choose()

    def _choose(self) -> None:
        is_active = bool(self._watched)
        if is_active != self.is_active:
            self.is_active = is_active
            for pool in list(self._pools):
                pool.choose_loop()

    def suspicion(self, name: Name) -> Suspicion:
        watched = self._watched.get(name)
        return _INNOCENT if watched is None else watched.suspicion

    @asynccontextmanager
    async def turn(
        self, watch: Watch, records: Sequence[Record], gate: AbstractAsyncContextManager[object]
    ) -> AsyncIterator[None]:
        """Surrounds a call, which must begin without another wait: no other call may slip in. The gate comes first."""
        async with gate:
            if any(map(watch.is_suspect, records)):
                async with self._alone(watch, records):
                    yield
            else:
                while not self._opened.is_set():
                    await self._opened.wait()
                yield
        self._end_settled()

    @asynccontextmanager
    async def _alone(self, watch: Watch, records: Sequence[Record]) -> AsyncIterator[None]:
        await self._one.acquire()
        self._alone_now, self._alone_for = records, watch
        self._opened.clear()
        try:
            await self._others_end()
            log.info("%s was in progress when its process died: handling it alone", records[0])
            yield
        finally:
            if self._alone_now is records:
                self._release_others()

    def _release_others(self) -> None:
        self._alone_now, self._alone_for = (), None
        self._opened.set()
        self._one.release()

    def hangs(self, watch: Watch, records: Sequence[Record]) -> None:
        """The call with these does not end. If they are handled alone, other lanes must not wait for it: the whole
        process would stand still."""
        if self._alone_for is watch and self._alone_now[0] in records:
            log.error("%s is handled alone and its call hangs: other lanes continue", self._alone_now[0])
            self._release_others()

    async def _others_end(self) -> None:
        """Wait until other calls have ended, and lanes have left the shortest loop."""
        deadline = self.clock.monotonic() + _PATIENCE
        is_first = True
        while is_first or (self._waits_for_calls() and self.clock.monotonic() < deadline):
            is_first = False
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=_LOOK)

    def _waits_for_calls(self) -> bool:
        return any(not lane.hangs for pool in self._pools for lane in pool.calling)

    def _end_settled(self) -> None:
        for name, watched in list(self._watched.items()):
            if watched.is_settled:
                self.end(name, watched.frontier)


class Watch:
    """The watch of one processor. Without arguments it watches nothing."""

    def __init__(
        self,
        isolation: SuspectIsolation | None = None,
        marks: LaneMarks | None = None,
        names: Mapping[str, Name] | None = None,
    ) -> None:
        """`names`: of the processor's partitions, by topic."""
        self.isolation = isolation or SuspectIsolation()
        self.marks = marks or LaneMarks()
        self.names = dict(names or {})

    @property
    def isolates_suspects(self) -> bool:
        return self.isolation.is_active

    def poison(self, record: Record) -> SuspectedPoison | None:
        """Why the record is not handled, or None if it is."""
        crashes = self._suspicion(record).convicted.get(record.offset, 0) if self.isolates_suspects else 0
        return SuspectedPoison(crashes) if crashes else None

    def pieces(self, records: Sequence[Record]) -> Iterator[Sequence[Record]]:
        """The window in order, with each suspect and each convicted record in a piece of its own."""
        for is_alone, some in groupby(records, self._is_alone):
            together = list(some)
            yield from ([one] for one in together) if is_alone else (together,)

    def _is_alone(self, record: Record) -> bool:
        return self.is_suspect(record) or record.offset in self._suspicion(record).convicted

    def is_suspect(self, record: Record) -> bool:
        return any(first <= record.offset <= last for first, last in self._suspicion(record).suspects)

    def _suspicion(self, record: Record) -> Suspicion:
        name = self.names.get(record.topic)
        return _INNOCENT if name is None else self.isolation.suspicion(name)

    def turn(
        self, records: Sequence[Record], gate: AbstractAsyncContextManager[object]
    ) -> AbstractAsyncContextManager[None]:
        """See `SuspectIsolation.turn`."""
        return self.isolation.turn(self, records, gate)

    def hangs(self, records: Sequence[Record]) -> None:
        """See `SuspectIsolation.hangs`."""
        self.isolation.hangs(self, records)

    def begin(self, slot: int, records: Sequence[Record]) -> None:
        """The lane with this slot is about to call the function with these records."""
        words = self.marks.words
        if len(self.marks.numbers) > 1:
            words[slot - 1] = self.marks.numbers.get(records[0].topic, IDLE)
        if isinstance(records, WindowRows):
            low, high = records.reach()
        else:
            offsets = [record.offset for record in records]
            low, high = min(offsets), max(offsets)
        words[slot + 1] = high if len(records) > 1 else IDLE
        words[slot] = low

    @contextmanager
    def marked(self, record: Record) -> Iterator[None]:
        """Other functions of the application run for this record, after its call."""
        slot = self.marks.take_slot()
        self.begin(slot, (record,))
        try:
            yield
        finally:
            self.marks.give_slot(slot)

    def end(self, slot: int) -> None:
        self.marks.words[slot] = IDLE
