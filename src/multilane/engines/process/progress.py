"""The progress of an application that runs in this process, logged every ten seconds and at the end.

Thread: loop; counts may come from any.

Owns the counters of the run. Reads the number of settled records from the groups, so a successful record is never
counted here.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from multilane.clock import Clock
from multilane.lanes.progress import RECEIVED, SETTLED, Progress
from multilane.metrics.observer import NO_OBSERVER, Count, CountsOnly, Gauge, Observer, ReportBuffer

_NOTE_EVERY: Final = 1.0  # seconds: how fresh the numbers of `multilane top --control` are


class Settles(Protocol):
    @property
    def settled(self) -> int: ...
    @property
    def received(self) -> int: ...


SettlingGroups = Mapping[str, Settles]


class SettledCounts:
    """Counts how many records each group has received and settled since the last call."""

    def __init__(self) -> None:
        self._known: Counter[tuple[str, str]] = Counter()

    def take(self, groups: SettlingGroups) -> list[Count]:
        counts: list[Count] = []
        for name, group in list(groups.items()):  # consumers come and go on another thread
            for metric, total in ((SETTLED, group.settled), (RECEIVED, group.received)):
                more = total - self._known[metric, name]
                if more > 0:  # the number is a sum, and the loop may be between two of its parts
                    self._known[metric, name] += more
                    counts.append((metric, {"consumer": name}, float(more)))
        return counts


class ProcessProgress:
    """For one run. The lanes count into `counts`, and report failures to `progress.failures`. It has no use for
    durations, so without another observer no call is timed."""

    def __init__(self, clock: Clock, observer: Observer = NO_OBSERVER) -> None:
        """`observer` receives the settled counts, which the lanes do not report themselves."""
        self._counts = ReportBuffer()
        self.counts = CountsOnly(self._counts)
        self._observer = observer
        self.progress = Progress(observer, clock)
        self._clock = clock
        self._settled = SettledCounts()

    async def run(self, groups: SettlingGroups, gauges: Callable[[], Sequence[Gauge]]) -> None:
        """Run until cancelled."""
        self.progress.begin(self._clock.monotonic())
        while True:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=_NOTE_EVERY)
            self.note(groups)
            if self._observer is not NO_OBSERVER:
                self.progress.note_gauges(gauges())
            if (now := self._clock.monotonic()) >= self.progress.due:
                self.progress.log_progress(now)

    def close(self, groups: SettlingGroups) -> None:
        self.note(groups)
        self.progress.forget()
        self.progress.close(self._clock.monotonic())

    def note(self, groups: SettlingGroups) -> None:
        settled = self._settled.take(groups)
        self.progress.note([*self._counts.take(), *settled])
        for name, labels, value in settled:
            self._observer.count(name, value, **labels)
