"""Who is a member of a group, and what each member gets: joining, leaving, coming back."""

from __future__ import annotations

import logging
import threading

import pytest

from broker.group_members import INCREMENTAL, KIP_848, PROTOCOLS, VARIANTS, LiveGroup, fill, new_group, partitions_of
from broker.topics import topic_factory
from multilane import Admin, Consumer
from multilane.dev.kafka import KafkaCluster
from multilane.errors import GroupError, GroupRefused, NoOffsetForPartition, WrongSubscription

pytestmark = [pytest.mark.broker, pytest.mark.cluster]


def network_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("multilane-network")]


@pytest.mark.parametrize("variant", VARIANTS)
def test_members_come_and_go_and_every_partition_has_one_owner(kafka, topic, variant):
    partitions = partitions_of(topic(6), 6)
    ends = fill(kafka, partitions, 0, 50)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        live_group.join()
        live_group.settle(partitions)
        live_group.join(2)
        live_group.settle(partitions)
        live_group.leave(live_group.members[0])
        live_group.settle(partitions)
        ends = fill(kafka, partitions, 50, 50)
        live_group.until(lambda: live_group.has_read(ends))
        # Whoever gave up a partition had committed what it read: the next owner went on exactly there.
        for partition in partitions:
            read = sorted(o for m in live_group.members + live_group.gone for o in m.offsets.get(partition, ()))
            assert read == list(range(100))


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_whoever_unsubscribes_may_subscribe_again(kafka, topic, variant):
    partitions = partitions_of(topic(4), 4)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        stays, goes = live_group.join(2)
        live_group.settle(partitions)
        mine = goes.assignment
        goes.consumer.unsubscribe()
        assert not goes.assignment
        assert goes.consumer.subscription is None
        assert goes.steps[-1] == ("revoked", mine)
        live_group.until(lambda: stays.assignment == frozenset(partitions))
        goes.consumer.subscribe([partitions[0].topic], goes)
        live_group.settle(partitions)


@pytest.mark.parametrize("variant", VARIANTS)
def test_another_subscription_replaces_the_first(kafka, topic, variant):
    old, both, new = (partitions_of(topic(2), 2) for _ in range(3))
    with LiveGroup(kafka, variant, [old[0].topic, both[0].topic]) as live_group:
        [member] = live_group.join()
        live_group.settle([*old, *both])
        member.steps.clear()
        member.consumer.subscribe([both[0].topic, new[0].topic], member)
        live_group.settle([*both, *new])
        revoked, assigned = (frozenset().union(*member.changes(change)) for change in ("revoked", "assigned"))
        if variant in INCREMENTAL:
            assert (revoked, assigned) == (frozenset(old), frozenset(new))
        else:
            assert (revoked, assigned) == (frozenset(old + both), frozenset(both + new))


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_twenty_consumers_of_a_process_share_one_network_thread(kafka, topic, variant):
    partitions = partitions_of(topic(40), 40)
    ends = fill(kafka, partitions, 0, 10)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        live_group.join(20)
        live_group.settle(partitions, timeout=60)
        live_group.until(lambda: live_group.has_read(ends))
        assert len(network_threads()) == 1
        for member in list(live_group.members):
            live_group.leave(member)
    assert not network_threads()


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_a_member_knows_who_it_is(kafka, topic, variant):
    partitions = partitions_of(topic(2), 2)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        first, second = live_group.join(2)
        with pytest.raises(GroupError, match="not a member"):
            first.consumer.group_metadata()
        live_group.settle(partitions)
        one, other = (member.consumer.group_metadata() for member in (first, second))
        assert one.group == other.group == live_group.group
        assert one.member_id
        assert one.member_id != other.member_id
        assert one.epoch == other.epoch > 0
        assert one.protocol == ("consumer" if variant == KIP_848 else "classic")


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_rebalance_may_be_asked_for(kafka, topic, variant):
    partitions = partitions_of(topic(4), 4)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        asks, hears = live_group.join(2)
        live_group.settle(partitions)
        before = asks.consumer.group_metadata().epoch
        for member in live_group.members:
            member.steps.clear()
        asks.consumer.enforce_rebalance("a test")
        if variant == KIP_848:
            fill(kafka, partitions, 0, 1)
            live_group.until(lambda: asks.count() + hears.count() == 4)
            # The broker assigns when there is something to assign. The end of the joining may be heard late.
            assert not [partitions for _, partitions in asks.steps + hears.steps if partitions]
            return
        live_group.until(lambda: asks.consumer.group_metadata().epoch > before)
        live_group.settle(partitions)
        assert all(not member.changes("lost") for member in live_group.members)


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_no_committed_offset_and_no_reset_is_said(kafka, topic, variant):
    partitions = partitions_of(topic(1), 1)
    fill(kafka, partitions, 0, 10)
    with LiveGroup(kafka, variant, [partitions[0].topic], auto_offset_reset="none") as live_group:
        [member] = live_group.join()
        with pytest.raises(NoOffsetForPartition, match=r"auto\.offset\.reset") as caught:
            live_group.until(member.count)
        assert str(partitions[0]) in str(caught.value)
        assert list(member.consumer.stopped) == partitions
        member.consumer.seek(partitions[0], 4)
        live_group.until(lambda: member.offsets.get(partitions[0]) == list(range(4, 10)))


def test_without_a_group_there_is_no_subscription(kafka, topic):
    lone = Consumer({"bootstrap.servers": kafka.bootstrap()})
    with lone as consumer, pytest.raises(WrongSubscription, match=r"group\.id"):
        consumer.subscribe([topic()])


def test_subscribing_and_assigning_exclude_each_other(kafka, topic):
    partitions = partitions_of(topic(1), 1)
    with LiveGroup(kafka, "range", [partitions[0].topic]) as live_group:
        [member] = live_group.join()
        with pytest.raises(WrongSubscription, match="unsubscribe"):
            member.consumer.assign(partitions)
        member.consumer.unsubscribe()
        member.consumer.assign(partitions)
        with pytest.raises(WrongSubscription, match="assign"):
            member.consumer.subscribe([partitions[0].topic])


# --- which protocol --------------------------------------------------------------------------------------------------


def by_default(kafka: KafkaCluster, **more: object) -> Consumer:
    usual = {"bootstrap.servers": kafka.bootstrap(), "group.id": new_group(), "auto.offset.reset": "earliest"}
    return Consumer({**usual, **{key.replace("_", "."): value for key, value in more.items()}})


def is_member(consumer: Consumer) -> bool:
    consumer.poll(0.02)
    return bool(consumer.assignment)


def test_by_default_the_newer_protocol_is_used(kafka, topic, caplog, eventually):
    caplog.set_level(logging.INFO, "multilane.client.group")
    with by_default(kafka) as consumer:
        consumer.subscribe([topic()])
        eventually(lambda: is_member(consumer))
        assert consumer.group_metadata().protocol == "consumer"
    assert "with KIP-848" in caplog.text


def test_where_brokers_have_no_newer_protocol_the_classic_one_is_used(caplog, eventually):
    caplog.set_level(logging.INFO, "multilane.client.group")
    without = {"group.coordinator.rebalance.protocols": "classic"}
    with KafkaCluster(heap="256m", properties=without) as kafka:
        name = topic_factory(kafka)()
        with by_default(kafka) as consumer:
            consumer.subscribe([name])
            eventually(lambda: is_member(consumer))
            assert consumer.group_metadata().protocol == "classic"
        assert "Joining with the classic protocol" in caplog.text
        with by_default(kafka, group_protocol="consumer") as consumer:
            consumer.subscribe([name])
            with pytest.raises(GroupRefused, match="classic"):
                eventually(lambda: is_member(consumer))


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_by_default_polls_begin_small_and_grow_with_the_pace_of_the_application(kafka, topic, variant):
    partitions = partitions_of(topic(1), 1)
    ends = fill(kafka, partitions, 0, 20_000)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        [member] = live_group.join()
        polls = []
        while sum(polls) < ends[partitions[0]]:
            polls.append(member.poll().rows)
        polls = [rows for rows in polls if rows]
        assert polls[0] <= 500
        assert max(polls) > 500
        assert member.offsets[partitions[0]] == list(range(20_000))


def test_the_partition_of_a_groups_offsets_is_led_by_its_coordinator(kafka, topic):
    name = topic(1)
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        for _ in range(4):  # by chance one in eighty would pass with any formula
            with LiveGroup(kafka, KIP_848, [name]) as live_group:
                [member] = live_group.join()
                live_group.until(lambda member=member: member.assignment)
                leaders = {
                    p.number: p.leader for p in admin.topics(["__consumer_offsets"])["__consumer_offsets"].partitions
                }
                coordinator = admin.describe_groups([live_group.group])[live_group.group].coordinator
                assert leaders[admin.offsets_partition(live_group.group)] == coordinator
