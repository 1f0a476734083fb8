"""Watches over calls that may kill their process: who is in work, who has to be alone, who is not handled any more.

Thread: loop.

`Caution` is one per event loop, because it is the process that dies. While any of its partitions has suspects, each of
them waits until no other call runs, and no other begins until it has ended. Lanes on the shortest way ask nobody, so
they take another one meanwhile. When all suspects are through, calls cost nothing again. `Watch` is what a team sees.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Protocol
from weakref import WeakSet

from multilane.clock import Clock, SystemClock
from multilane.lanes.begun import IDLE, LaneMarks
from multilane.lanes.crashes import Suspicion
from multilane.logs import logger
from multilane.outcome.poison import SuspectedPoison
from multilane.types import TopicPartition
from multilane.wire.records.keyed_rows import TakenRows
from multilane.wire.records.record import Record

log = logger(__name__)

_LOOK: Final = 0.002  # seconds between looks whether others have ended
_PATIENCE: Final = 30.0  # for others to end; a suspect that runs beside one of them is not alone, and the table says so


class Calls(Protocol):
    """A crew."""

    @property
    def is_calling(self) -> bool: ...

    def choose_way(self) -> None: ...


@dataclass(slots=True)
class _Watched:
    suspicion: Suspicion
    frontier: Callable[[], int]

    @property
    def is_through(self) -> bool:
        last = max((*(last for _, last in self.suspicion.suspects), *self.suspicion.convicted), default=IDLE)
        return self.frontier() > last


@dataclass(slots=True)
class Caution:
    clock: Clock = field(default_factory=SystemClock)
    is_careful: bool = False
    _pools: WeakSet[Calls] = field(default_factory=WeakSet)
    _watched: dict[TopicPartition, _Watched] = field(default_factory=dict)
    _one: asyncio.Lock = field(default_factory=asyncio.Lock)
    _opened: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._opened.set()

    def join(self, pool: Calls) -> None:
        self._pools.add(pool)

    def begin(self, partition: TopicPartition, suspicion: Suspicion, frontier: Callable[[], int]) -> None:
        """A partition has suspects. `frontier`: everything below is settled."""
        self._watched[partition] = _Watched(suspicion, frontier)
        self._choose()

    def end(self, partition: TopicPartition, frontier: Callable[[], int]) -> None:
        """It is others' now; unless somebody here has begun it anew since, whose frontier is another."""
        watched = self._watched.get(partition)
        if watched is not None and watched.frontier == frontier:
            del self._watched[partition]
            self._choose()

    def _choose(self) -> None:
        is_careful = bool(self._watched)
        if is_careful != self.is_careful:
            self.is_careful = is_careful
            for pool in list(self._pools):
                pool.choose_way()

    def is_suspect(self, record: Record) -> bool:
        watched = self._watched.get(TopicPartition(record.topic, record.partition))
        return watched is not None and any(a <= record.offset <= b for a, b in watched.suspicion.suspects)

    def crashes_of(self, record: Record) -> int:
        """At how many it was in work, if it is not to be handled again; else 0."""
        watched = self._watched.get(TopicPartition(record.topic, record.partition))
        return 0 if watched is None else watched.suspicion.convicted.get(record.offset, 0)

    @asynccontextmanager
    async def turn(self, records: Sequence[Record], gate: AbstractAsyncContextManager[object]) -> AsyncIterator[None]:
        """Around a call, which begins without another wait: nobody slips in between. The gate comes first."""
        async with gate:
            if any(map(self.is_suspect, records)):
                async with self._alone(records):
                    yield
            else:
                while not self._opened.is_set():
                    await self._opened.wait()
                yield
        self._look_whether_through()

    @asynccontextmanager
    async def _alone(self, records: Sequence[Record]) -> AsyncIterator[None]:
        async with self._one:
            self._opened.clear()
            try:
                await self._others_end()
                log.info("%s was in progress when its process died: handling it alone", records[0])
                yield
            finally:
                self._opened.set()

    async def _others_end(self) -> None:
        """And those that go the shortest way have seen that they may not."""
        deadline = self.clock.monotonic() + _PATIENCE
        is_first = True
        while is_first or (any(pool.is_calling for pool in self._pools) and self.clock.monotonic() < deadline):
            is_first = False
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=_LOOK)

    def _look_whether_through(self) -> None:
        for partition, watched in list(self._watched.items()):
            if watched.is_through:
                self.end(partition, watched.frontier)


class Watch:
    """Of one team. By itself it watches nothing."""

    def __init__(self, caution: Caution | None = None, marks: LaneMarks | None = None) -> None:
        self.caution = caution or Caution()
        self.marks = marks or LaneMarks()

    @property
    def is_careful(self) -> bool:
        return self.caution.is_careful

    def poison(self, record: Record) -> SuspectedPoison | None:
        """Why it is not handled."""
        crashes = self.caution.crashes_of(record) if self.caution.is_careful else 0
        return SuspectedPoison(crashes) if crashes else None

    def pieces(self, records: Sequence[Record]) -> Iterator[Sequence[Record]]:
        """A window in its order, each suspect by itself, and each record that is not handled any more."""
        for is_alone, some in groupby(records, self._is_alone):
            together = list(some)
            yield from ([one] for one in together) if is_alone else (together,)

    def _is_alone(self, record: Record) -> bool:
        return self.caution.is_suspect(record) or self.caution.crashes_of(record) > 0

    def begin(self, at: int, records: Sequence[Record]) -> None:
        """A lane, by its slot, is about to call the function with these."""
        words = self.marks.words
        if len(self.marks.numbers) > 1:
            words[at - 1] = self.marks.numbers.get(records[0].topic, IDLE)
        offsets = records.offsets if isinstance(records, TakenRows) else [record.offset for record in records]
        words[at + 1] = max(offsets) if len(offsets) > 1 else IDLE
        words[at] = min(offsets)

    def end(self, at: int) -> None:
        self.marks.words[at] = IDLE
