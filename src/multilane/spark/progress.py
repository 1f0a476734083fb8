"""What members of a run have counted, added up: for the application's observer, and for a line in the log now and then.

Thread: none of its own; one owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from multilane.hooks import Observer
from multilane.logs import logger

log = logger(__name__)

Count = tuple[str, dict[str, str], float]  # name, labels, how many more
TELL_EVERY: Final = 10.0  # seconds
_SETTLED: Final = "lanes.records.settled"
_TOLD: Final = ((_SETTLED, "settled"), ("lanes.records.failed", "failed"), ("lanes.copies", "copied"))


class Progress:
    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._totals: Counter[str] = Counter()
        self._told_at = 0.0
        self._told_settled = 0.0

    def begin(self, now: float) -> None:
        self._told_at = now

    @property
    def due(self) -> float:
        """When the next line is to be told."""
        return self._told_at + TELL_EVERY

    def add(self, counts: Iterable[Count]) -> None:
        for name, labels, value in counts:
            self._totals[name] += value  # type: ignore[assignment]
            try:
                self._observer.count(name, value, **labels)
            except Exception:
                log.exception("the observer of the application failed")

    def line(self, now: float) -> str:
        """All so far, and how fast since the last line."""
        settled = self._totals[_SETTLED]
        rate = (settled - self._told_settled) / (now - self._told_at)
        self._told_at, self._told_settled = now, settled
        return ", ".join(f"{self._totals[name]:,.0f} {word}" for name, word in _TOLD) + f" ({rate:,.0f}/s now)"
