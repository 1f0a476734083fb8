"""Who wants to be asked when: of a thousand consumers only those are asked that have something to say.

Thread: none (pure); owned by the network thread.

An item is due when it was touched (an event came for it, a request of its was answered) or when the time has come that
it named. Touching is cheap and may be done in vain. An item that is not on the agenda is not touched.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Generic, TypeVar

from multilane.client.net.requests import NEVER

T = TypeVar("T")


class Agenda(Generic[T]):
    def __init__(self) -> None:
        self._times: dict[T, float] = {}
        self._touched: dict[T, None] = {}  # a set that keeps the order
        self._queued: dict[T, float] = {}  # when each is next looked at: one entry of the heap for each
        self._heap: list[tuple[float, int, T]] = []
        self._numbers = count()

    def __iter__(self) -> Iterator[T]:
        return iter(tuple(self._times))

    def __len__(self) -> int:
        return len(self._times)

    def __contains__(self, item: object) -> bool:
        return item in self._times

    def add(self, item: T) -> None:
        self._times.setdefault(item, NEVER)
        self.touch(item)

    def remove(self, item: T) -> None:
        for table in (self._times, self._touched, self._queued):
            table.pop(item, None)

    def touch(self, item: T) -> None:
        if item in self._times:
            self._touched[item] = None

    def touch_all(self) -> None:
        self._touched = dict.fromkeys(self._times)

    def due(self, now: float) -> Iterable[T]:
        """Those to be asked now. Each is to be given its next time by `schedule`, or it waits for a touch."""
        while self._heap and self._heap[0][0] <= now:
            time, _, item = heapq.heappop(self._heap)
            if self._queued.get(item) != time:
                continue  # it has been brought forward since, or is gone
            del self._queued[item]
            if self._times[item] <= now:
                self._touched[item] = None
            else:  # it was put off since
                self._queue(item, self._times[item])
        due, self._touched = self._touched, {}
        for item in due:
            self._times[item] = NEVER
        return due

    def schedule(self, item: T, time: float) -> None:
        if item in self._times:
            self._times[item] = time
            self._queue(item, time)

    def wait(self, now: float) -> float:
        """Seconds until somebody may be due; never too long."""
        if self._touched:
            return 0.0
        return max(0.0, self._heap[0][0] - now) if self._heap else NEVER

    def _queue(self, item: T, time: float) -> None:
        """What is put off keeps its entry, so that one who changes his mind all the time does not fill the heap."""
        if time < self._queued.get(item, NEVER):
            self._queued[item] = time
            heapq.heappush(self._heap, (time, next(self._numbers), item))
