"""Consumers of one process that close: each tells its group, whatever the others do."""

from __future__ import annotations

import pytest

from broker.group_members import PROTOCOLS, Team, partitions_of
from multilane import Admin

pytestmark = [pytest.mark.broker, pytest.mark.cluster]


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_several_consumers_of_a_group_close_and_no_member_is_left(kafka, topic, variant):
    partitions = partitions_of(topic(4), 4)
    long_session = {} if variant == "consumer" else {"session_timeout_ms": 45_000}
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin, Team(kafka, variant, [partitions[0].topic]) as team:
        team.join(4, **long_session)
        team.settle(partitions)
        for left in (3, 2, 1, 0):
            team.leave(team.members[0])
            described = admin.describe_groups([team.group])[team.group]
            assert len(described.members) == left, "a ghost until its session ends"
