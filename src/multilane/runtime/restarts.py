"""When to restart what has died, a process or a shared consumer: the back-off doubles with each death in a row.

Thread: none (pure); one owner.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_STEADY_AFTER: Final = 60.0  # seconds of life after which earlier deaths no longer count


@dataclass(slots=True)
class Restarts:
    started_at: float = 0.0
    deaths: int = 0  # in a row

    def start(self, now: float) -> None:
        self.started_at = now

    def deaths_in_a_row(self, now: float) -> int:
        return 0 if now - self.started_at >= _STEADY_AFTER else self.deaths

    def wait_after_death(self, now: float) -> float:
        """Count a death. Returns the seconds until the restart."""
        self.deaths = self.deaths_in_a_row(now) + 1
        return min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (self.deaths - 1))
