"""Which partitions a stable group has given to nobody."""

from __future__ import annotations

import pytest

from multilane.client.admin.answers import GroupDescription, GroupMember
from multilane.group.starvation import starved
from multilane.types import NodeId, TopicPartition

COUNTS = {"a": 2, "b": 1}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def group_of(*assignments, state="Stable", target=()):
    members = tuple(GroupMember(str(n), None, "c", "h", given, target) for n, given in enumerate(assignments))
    return GroupDescription("g", "classic", state, "consumer", "range", NodeId(1), members)


@pytest.mark.parametrize(
    ("group", "found"),
    [
        (group_of((A0, A1), (B0,)), ()),
        (group_of((A0, A1), ()), (B0,)),
        (group_of((), ()), (A0, A1, B0)),
        (group_of((A0,), (B0,)), (A1,)),
        (group_of((A0,), (B0,), target=(A1,)), ()),  # on its way
        (group_of((A0, A1), (), state="CompletingRebalance"), ()),
        (group_of((A0, A1), None), ()),  # who knows what that one has
    ],
)
def test_what_nobody_has(group, found):
    assert starved(COUNTS, group) == found
