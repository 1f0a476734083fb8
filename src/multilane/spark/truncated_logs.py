"""Detects logs that were truncated below a position, by the leader epoch stored with the position.

Thread: the planner's; one at a time.

A log that was truncated and has grown past the position again looks unchanged: only the epoch differs. A leader is
queried when it has changed, and then once per position.
"""

from __future__ import annotations

from collections.abc import Mapping

from multilane.client.consumer import Consumer
from multilane.errors import UnsupportedVersion
from multilane.types import OffsetAndEpoch, TopicPartition

Positions = Mapping[TopicPartition, OffsetAndEpoch]


class TruncatedLogs:
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._verified: dict[TopicPartition, tuple[OffsetAndEpoch, int]] = {}  # with the confirming epoch

    def find(self, positions: Positions, ends: Positions) -> dict[TopicPartition, int]:
        """The truncation offsets of the logs that were truncated; `ends` are the current ones."""
        unchecked = {
            p: position for p, position in positions.items() if p in ends and self._needs_check(p, position, ends[p])
        }
        if not unchecked:
            return {}
        cut = self._cut(unchecked)
        self._verified |= {p: (position, ends[p].leader_epoch) for p, position in unchecked.items() if p not in cut}
        return cut

    def _needs_check(self, partition: TopicPartition, position: OffsetAndEpoch, end: OffsetAndEpoch) -> bool:
        if position.leader_epoch == end.leader_epoch:  # no leader change since
            return False
        return self._verified.get(partition) != (position, end.leader_epoch)

    def _cut(self, positions: Positions) -> dict[TopicPartition, int]:
        try:
            ends = self._consumer.epoch_ends({p: position.leader_epoch for p, position in positions.items()})
        except UnsupportedVersion:  # brokers before 2.3: truncation goes unnoticed, as for every consumer
            return {}
        unknown = self._consumer.beginning_offsets([p for p in positions if p not in ends])
        common = {p: int(end.offset) for p, end in ends.items()} | {p: int(begin) for p, begin in unknown.items()}
        return {p: common[p] for p, position in positions.items() if common[p] < position.offset}
