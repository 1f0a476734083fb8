"""The first batch of a run: waits until each task has a slot and has made the application there.

Thread: loop (one owner, the lease coordinator).

These tasks get no leases. Each waits until all have arrived, so that they need as many slots at once as the run will.
No group is joined before that: a module that an executor cannot import, or a cluster that is too small, is noticed
before anything is read.
"""

from __future__ import annotations

from contextlib import suppress

from multilane.engines.batches.messages import ToWorker, WorkerChannel
from multilane.errors import ChannelLost


class StartBarrier:
    def __init__(self, tasks: int) -> None:
        self.numbers = list(range(-tasks, 0))  # tasks with leases have numbers above zero
        self._arrived: dict[int, WorkerChannel] = {}

    @property
    def is_complete(self) -> bool:
        return len(self._arrived) == len(self.numbers)

    @property
    def progress(self) -> str:
        """For an error message."""
        return f"{len(self._arrived)} of {len(self.numbers)} tasks found a slot"

    def arrive(self, number: int, channel: WorkerChannel) -> None:
        """A task has begun, or was restarted."""
        self._arrived[number] = channel

    def release(self) -> None:
        """Let the tasks end."""
        for number, channel in self._arrived.items():
            with suppress(ChannelLost):  # Spark restarts the task, and it arrives again
                channel.send(ToWorker.GRANT, number=number, loan=None)
