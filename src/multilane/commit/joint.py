"""What a group may commit for a partition whose records go to several triggers.

Thread: none (pure).

The law: the committed offset is never above the position of any trigger that is here, nor of one that is absent and
still waited for. It never moves back. The runs beyond it are those that all of them have settled, so whoever does not
know triggers repeats records and skips none. What each trigger has settled itself is in its named position.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from multilane.commit.completion_map import MOST_RUNS
from multilane.commit.ledger import CommitPoint
from multilane.commit.runs import common
from multilane.commit.trigger_positions import Position
from multilane.types import NO_EPOCH


def joint(
    points: Mapping[str, CommitPoint], absent: Mapping[str, Position], floor: CommitPoint, wall: float, patience: float
) -> CommitPoint:
    """`points` of the triggers that are here, at least one; `floor` is the group's own start. A trigger that has been
    absent for `patience` seconds at the time `wall` is waited for no longer; its position stays named."""
    waited_for = {name: p for name, p in absent.items() if not is_over(p, wall, patience)}
    lowest = min((point.offset for point in points.values()), default=floor.offset)
    offset = max(floor.offset, min([lowest, *(position.offset for position in waited_for.values())]))
    settled = [(point.offset, point.runs) for point in points.values()]
    settled += [(position.offset, position.runs) for position in waited_for.values()]
    positions = {name: Position(point.offset, point.runs) for name, point in points.items()}
    return CommitPoint(
        offset,
        _epoch_at(offset, points, floor),
        common(settled, offset)[:MOST_RUNS],
        max([floor.end_epoch, *(point.end_epoch for point in points.values())]),
        {**absent, **positions},
    )


def missed(absent: Mapping[str, Position], wall: float) -> dict[str, Position]:
    """These positions, with the time since when their triggers are absent: now at the latest, whatever a clock said."""
    return {name: replace(p, absent_since=min(int(wall), _since(p, wall))) for name, p in absent.items()}


def is_over(position: Position, wall: float, patience: float) -> bool:
    """Whether an absent trigger is waited for no longer."""
    return position.absent_since is not None and wall - position.absent_since >= patience


def _since(position: Position, wall: float) -> int:
    return int(wall) if position.absent_since is None else position.absent_since


def _epoch_at(offset: int, points: Mapping[str, CommitPoint], floor: CommitPoint) -> int:
    """The epoch of the record before the offset, or a newer one of the same log."""
    if offset == floor.offset and floor.leader_epoch != NO_EPOCH:
        return floor.leader_epoch
    here = [point.leader_epoch for point in points.values() if point.offset == offset]
    known = [epoch for epoch in here or (point.leader_epoch for point in points.values()) if epoch != NO_EPOCH]
    return min(known, default=NO_EPOCH)
