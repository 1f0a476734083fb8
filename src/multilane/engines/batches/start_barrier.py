"""The first batch of a run: whether all of its tasks find a slot, and make the application there.

Thread: loop (one owner, the keeper).

Its tasks are lent nothing. Each waits until all have come, so that they need as many slots at the same time as the
run will. Nobody has joined a group by then: a module that cannot be imported on an executor, or a cluster that is too
small, is known before anything was read.
"""

from __future__ import annotations

from contextlib import suppress

from multilane.engines.batches.messages import Says
from multilane.errors import LineLost


class StartBarrier:
    def __init__(self, tasks: int) -> None:
        self.numbers = list(range(-tasks, 0))  # loans have numbers above zero
        self._present: dict[int, Says] = {}

    @property
    def is_complete(self) -> bool:
        return len(self._present) == len(self.numbers)

    @property
    def told(self) -> str:
        """How it is, for people."""
        return f"{len(self._present)} of {len(self.numbers)} tasks have found a slot"

    def arrive(self, number: int, line: Says) -> None:
        """A task has begun, or was started again."""
        self._present[number] = line

    def end(self) -> None:
        """The tasks may end."""
        for number, line in self._present.items():
            with suppress(LineLost):  # its task is started again, and comes again
                line.send("loan", number=number, loan=None)
