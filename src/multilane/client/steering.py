"""What a consumer is told without waiting for anything: the same for threads and for event loops.

Thread: application, one at a time; `wakeup` from any.

`Consumer` and `AsyncConsumer` add the calls that wait.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from multilane.client.front import Front, at_offset, at_time
from multilane.errors import MultilaneError
from multilane.types import TopicPartition
from multilane.wire.compose import EARLIEST, LATEST


class Steering:
    _front: Front

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._front}>"

    # --- assignment --------------------------------------------------------------------------------------------------

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions from now on. Those that were assigned before keep their position."""
        with self._front.used() as front:
            front.assign(partitions)

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._front.assignment

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing of these until resumed."""
        with self._front.used() as front:
            front.set_paused(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        with self._front.used() as front:
            front.set_paused(partitions, False)

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return self._front.paused

    @property
    def stopped(self) -> Mapping[TopicPartition, MultilaneError]:
        """Partitions that cannot go on, and why. Seeking one makes it go on from there."""
        return self._front.failures()

    # --- positions ---------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Go on at this offset. With the epoch of the record before it, a cut log is noticed."""
        with self._front.used() as front:
            front.seek(partition, at_offset(offset, leader_epoch))

    def seek_to_beginning(self, partitions: Collection[TopicPartition] = ()) -> None:
        """Go on at the first record there is; all assigned partitions when none is named."""
        with self._front.used() as front:
            front.seek_lookup(partitions, EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition] = ()) -> None:
        with self._front.used() as front:
            front.seek_lookup(partitions, LATEST)

    def seek_to_times(self, timestamps: Mapping[TopicPartition, int]) -> None:
        """Go on at the first record at or after a time (ms since 1970), or at the end when there is none."""
        places = {partition: at_time(timestamp) for partition, timestamp in timestamps.items()}
        with self._front.used() as front:
            for partition, place in places.items():
                front.seek(partition, place)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """Records between the position and the end of the log, as of the last block; None before the first."""
        with self._front.used() as front:
            return front.lag(partition)

    # --- life --------------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """From any thread: make a poll that waits, or the next one, raise WakeupError."""
        self._front.wakeup()
