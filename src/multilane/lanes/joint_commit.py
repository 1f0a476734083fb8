"""What the group may commit for one partition of several triggers, from when it was assigned until it is revoked.

Thread: loop (one owner).

Owns the floor below which the commit never moves, and the positions of triggers that are absent. See `commit.joint`.
Never reads the points of triggers itself: they are given to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from multilane.clock import Clock
from multilane.commit.joint import is_over, joint, missed
from multilane.commit.ledger import CommitPoint
from multilane.commit.trigger_positions import Position
from multilane.logs import logger
from multilane.types import NO_EPOCH, TopicPartition

log = logger(__name__)


class JointCommit:
    def __init__(
        self,
        partition: TopicPartition,
        start: CommitPoint,
        absent: Mapping[str, Position],
        clock: Clock,
        absent_after: float,
    ) -> None:
        """`start` is the group's own position."""
        self._partition = partition
        self._floor = start
        self._clock = clock
        self._absent_after = absent_after
        self._absent = missed(absent, clock.wall())
        self._given_up = {n for n, p in self._absent.items() if is_over(p, clock.wall(), absent_after)}

    @property
    def absent(self) -> Mapping[str, Position]:
        """Triggers that the commit names and that are not here."""
        return self._absent

    def point(self, points: Mapping[str, CommitPoint]) -> CommitPoint:
        """`points` of the triggers that are here."""
        point = joint(points, self._absent, self._floor, self._clock.wall(), self._absent_after)
        self._floor = CommitPoint(point.offset, point.leader_epoch, (), point.end_epoch)
        self._report_given_up()
        return point

    def drop(self, name: str) -> None:
        """It is here now, or has left for good: nobody waits for it as for one that is absent."""
        self._absent.pop(name, None)
        self._given_up.discard(name)

    def forget_from(self, offset: int) -> None:
        """The log has other records from this offset on, or none: the commit may move back to it."""
        floor = self._floor
        epoch = floor.leader_epoch if floor.offset <= offset else NO_EPOCH
        self._floor = CommitPoint(min(floor.offset, offset), epoch, ())
        self._absent = {name: position.below(offset) for name, position in self._absent.items()}

    def _report_given_up(self) -> None:
        now = self._clock.wall()
        over = {name for name, position in self._absent.items() if is_over(position, now, self._absent_after)}
        for name in sorted(over - self._given_up):
            log.warning(
                "%s: trigger %s has been absent for %g s (absentAfter): commits no longer wait for it at offset %d",
                *(self._partition, name, self._absent_after, self._absent[name].offset),
            )
        self._given_up |= over
