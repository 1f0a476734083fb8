"""Notices that a log was cut below a place that was read to, by the leader epoch that is kept with the place.

Thread: whichever plans; one at a time.

A log that was cut and has grown again past the place looks as if nothing had happened: only the epoch tells. Leaders
are asked when they have changed, and then once for a place.
"""

from __future__ import annotations

from collections.abc import Mapping

from multilane.client.consumer import Consumer
from multilane.errors import UnsupportedVersion
from multilane.types import OffsetAndEpoch, TopicPartition

Places = Mapping[TopicPartition, OffsetAndEpoch]


class CutLogs:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._sound: dict[TopicPartition, tuple[OffsetAndEpoch, int]] = {}  # places, and the leader that said so

    def find(self, places: Places, ends: Places) -> dict[TopicPartition, int]:
        """Where these logs were cut, of those that were; `ends` are those of now."""
        doubtful = {p: place for p, place in places.items() if p in ends and self._is_doubtful(p, place, ends[p])}
        if not doubtful:
            return {}
        cut = self._cut(doubtful)
        self._sound |= {p: (place, ends[p].leader_epoch) for p, place in doubtful.items() if p not in cut}
        return cut

    def _is_doubtful(self, partition: TopicPartition, place: OffsetAndEpoch, end: OffsetAndEpoch) -> bool:
        if place.leader_epoch == end.leader_epoch:  # no leader has changed since
            return False
        return self._sound.get(partition) != (place, end.leader_epoch)

    def _cut(self, places: Places) -> dict[TopicPartition, int]:
        try:
            ends = self._consumer.epoch_ends({p: place.leader_epoch for p, place in places.items()})
        except UnsupportedVersion:  # brokers before 2.3: as it is for every consumer of them
            return {}
        unknown = self._consumer.beginning_offsets([p for p in places if p not in ends])
        common = {p: int(end.offset) for p, end in ends.items()} | {p: int(begin) for p, begin in unknown.items()}
        return {p: common[p] for p, place in places.items() if common[p] < place.offset}
