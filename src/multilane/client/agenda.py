"""Decides which items to poll next, so that a thousand idle consumers cost nothing.

Thread: none (pure); owned by the network thread.

An item is due after a touch (an event or a response arrived for it) or at the time for which it was scheduled. A touch
is cheap and need not lead to any work. Touching an item that is not on the agenda does nothing.
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
        self._queued: dict[T, float] = {}  # the time of each item's entry in the heap
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
        """The items to poll now. An item that is not scheduled again waits for a touch."""
        while self._heap and self._heap[0][0] <= now:
            time, _, item = heapq.heappop(self._heap)
            if self._queued.get(item) != time:
                continue  # since moved to an earlier time, or removed
            del self._queued[item]
            if self._times[item] <= now:
                self._touched[item] = None
            else:  # since moved to a later time
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
        """Seconds until an item may be due; never too long."""
        if self._touched:
            return 0.0
        return max(0.0, self._heap[0][0] - now) if self._heap else NEVER

    def _queue(self, item: T, time: float) -> None:
        """Moving an item to a later time keeps its entry, so that frequent rescheduling does not fill the heap."""
        if time < self._queued.get(item, NEVER):
            self._queued[item] = time
            heapq.heappush(self._heap, (time, next(self._numbers), item))
