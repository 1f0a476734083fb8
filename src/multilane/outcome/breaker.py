"""The breaker that stops a group when too many of its records fail, before all of them are in the error topic.

Thread: none (pure); its owner passes in outcomes and the time.

Owns counts for a window that slides in a fixed number of steps, so that memory is bounded. Never closes: a flood of
failures that stops because nothing consumes is not over. An operator restarts the group, which gets a new breaker.
"""

from __future__ import annotations

from typing import Final

_STEPS: Final = 20


class Breaker:
    """Opens when more than `share` (0..1) of at least `minimum` outcomes within `window` seconds are failures."""

    __slots__ = ("_counts", "_minimum", "_reason", "_share", "_step", "_window", "is_open")

    def __init__(self, share: float, window: float, minimum: int) -> None:
        if not 0 <= share <= 1 or window <= 0 or minimum < 1:
            raise ValueError(
                f"share {share} must be from 0 to 1, window {window} above 0, minimum {minimum} at least 1"
            )
        self._share = share
        self._window = window
        self._minimum = minimum
        self._step = window / _STEPS
        self.is_open = False
        self._reason = ""
        # a ring of (step number, ok, failed), indexed by step number modulo _STEPS
        self._counts = [(-1, 0, 0)] * _STEPS

    def note(self, ok: int, failed: int, now: float) -> bool:
        """Count outcomes; true if this call opened the breaker."""
        if ok <= 0 and failed <= 0:
            return False
        step = int(now / self._step)
        index = step % _STEPS
        known, oks, fails = self._counts[index]
        self._counts[index] = (step, oks + ok, fails + failed) if known == step else (step, ok, failed)
        if self.is_open or failed <= 0:
            return False
        return self._judge(step)

    def _judge(self, step: int) -> bool:
        ok, failed = self._window_counts(step)
        if ok + failed < self._minimum or failed <= self._share * (ok + failed):
            return False
        self.is_open = True
        self._reason = (
            f"{failed} of {ok + failed} records failed within {self._window:g} s: more than {self._share:.0%}"
        )
        return True

    def _window_counts(self, step: int) -> tuple[int, int]:
        recent = [(ok, failed) for known, ok, failed in self._counts if step - _STEPS < known <= step]
        return sum(ok for ok, _ in recent), sum(failed for _, failed in recent)

    @property
    def reason(self) -> str:
        """Why it is open; empty while it is not."""
        return self._reason
