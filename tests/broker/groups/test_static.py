"""Members with a name of their own (group.instance.id): they may be restarted without a rebalance, and exist once."""

from __future__ import annotations

import pytest

from broker.group_members import COOPERATIVE, KIP_848, PROTOCOLS, LiveGroup, fill, partitions_of
from broker.group_processes import ProcessMember
from multilane.errors import InstanceFenced, InstanceInUse

pytestmark = [pytest.mark.broker, pytest.mark.cluster]

ALL = [*PROTOCOLS, COOPERATIVE]


@pytest.mark.parametrize("variant", ALL)
def test_a_restart_is_no_rebalance_for_the_others(kafka, topic, variant):
    partitions = partitions_of(topic(4), 4)
    fill(kafka, partitions, 0, 10)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        [restarts] = live_group.join(group_instance_id="one")
        [stays] = live_group.join(group_instance_id="two")
        live_group.settle(partitions)
        live_group.until(lambda: sum(m.count() for m in live_group.members) == 40)
        mine, epoch = restarts.assignment, stays.consumer.group_metadata().epoch
        stays.steps.clear()
        live_group.leave(restarts)
        [again] = live_group.join(group_instance_id="one")
        ends = fill(kafka, partitions, 10, 10)
        live_group.until(lambda: again.assignment == mine)
        live_group.until(lambda: live_group.has_read(ends))
        assert not stays.steps
        assert stays.consumer.group_metadata().epoch == epoch
        assert all(again.offsets[p] == list(range(10, 20)) for p in mine)  # from where its former self was


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_who_does_not_come_back_loses_its_place_with_its_session(kafka, topic, variant):
    partitions = partitions_of(topic(4), 4)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        [leaves] = live_group.join(group_instance_id="one")
        [stays] = live_group.join(group_instance_id="two")
        live_group.settle(partitions)
        live_group.leave(leaves)
        live_group.until(lambda: stays.assignment == frozenset(partitions), timeout=15)


@pytest.mark.parametrize("variant", ["range", COOPERATIVE])
def test_classic_a_second_one_of_the_same_name_takes_the_place_of_the_first(kafka, topic, variant):
    partitions = partitions_of(topic(2), 2)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        [first] = live_group.join(group_instance_id="one")
        live_group.settle(partitions)
        [second] = live_group.join(group_instance_id="one")
        with pytest.raises(InstanceFenced, match="one"):
            live_group.until(lambda: False, timeout=10)
        live_group.members.remove(first)
        live_group.until(lambda: second.assignment == frozenset(partitions))
        for _ in range(3):  # it goes on saying why
            with pytest.raises(InstanceFenced, match="one"):
                first.poll(1.0)
        assert not first.assignment
        assert first.steps[-1] == ("lost", frozenset(partitions))
        first.close()
        fill(kafka, partitions, 0, 5)
        live_group.until(lambda: second.count() == 10)  # the close of the first did not put the second out
        assert not second.changes("lost")


def test_kip_848_a_second_one_of_the_same_name_is_refused(kafka, topic):
    partitions = partitions_of(topic(2), 2)
    with LiveGroup(kafka, KIP_848, [partitions[0].topic]) as live_group:
        [first] = live_group.join(group_instance_id="one")
        live_group.settle(partitions)
        [second] = live_group.join(group_instance_id="one")
        with pytest.raises(InstanceInUse, match="one"):
            live_group.until(lambda: False, timeout=10)
        live_group.leave(second)
        fill(kafka, partitions, 0, 5)
        live_group.until(lambda: first.count() == 10)
        assert [partitions for _, partitions in first.steps if partitions] == [frozenset(partitions)]


def test_classic_a_killed_process_is_replaced_by_another_of_its_name(kafka, topic, eventually):
    partitions = partitions_of(topic(4), 4)
    with LiveGroup(kafka, "range", [partitions[0].topic]) as live_group:
        [stays] = live_group.join(group_instance_id="two")
        usual = {"kafka": kafka, "group": live_group.group, "topics": [partitions[0].topic], "variant": "range"}
        with ProcessMember(**usual, group_instance_id="one", session_timeout_ms=10_000) as dies:
            live_group.until(lambda: len(stays.assignment) == len(dies.assignment) == 2)
            stays.steps.clear()
            mine = dies.assignment
            dies.kill()
        [again] = live_group.join(group_instance_id="one", session_timeout_ms=10_000)
        live_group.until(lambda: again.assignment == mine)
        assert not stays.steps
