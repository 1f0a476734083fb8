"""The assignors of the classic protocol, run by the leader of a group.

Thread: none (pure functions of frozen values).

Results are those of Kafka's Java client 4.3, so that it does not matter which member leads.
"""

from multilane.client.group.assignors.registry import all_cooperative, find_assignor
from multilane.client.group.assignors.values import Assignor, AssignorMember, GroupAssignment, TopicShape, TopicShapes

__all__ = [
    "Assignor",
    "AssignorMember",
    "GroupAssignment",
    "TopicShape",
    "TopicShapes",
    "all_cooperative",
    "find_assignor",
]
