"""Finds partitions that a stable group has given to nobody, although a member subscribes to their topic.

Thread: none (pure).

The leader of a classic group divides the partitions of all topics, also of those that only others read. One that knows
only its own topics leaves the others unread, and no error says so.
"""

from __future__ import annotations

from collections.abc import Mapping

from multilane.client.admin.answers import GroupDescription
from multilane.types import TopicPartition

_STABLE = "stable"


def starved(counts: Mapping[str, int], group: GroupDescription) -> tuple[TopicPartition, ...]:
    """Of the topics with so many partitions. None while the group rebalances, or if an assignment cannot be read."""
    if group.state.casefold() != _STABLE or any(member.assignment is None for member in group.members):
        return ()
    given = {p for member in group.members for p in (*(member.assignment or ()), *(member.target or ()))}
    return tuple(
        partition
        for topic, count in sorted(counts.items())
        for number in range(count)
        if (partition := TopicPartition(topic, number)) not in given
    )
