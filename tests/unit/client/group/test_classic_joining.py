"""Joining a classic group: ids, generations, steps of the application, eager and cooperative."""

from __future__ import annotations

import pytest

from classic_desk import HEARTBEAT, MAX_POLL, Desk, metadata_of, partitions
from multilane.client.group.classic import ClassicState
from multilane.client.group.membership import Change, Identity, Subscription
from multilane.client.net.requests import CONTROL, NEVER
from multilane.errors import NetworkError
from multilane.types import TopicPartition
from multilane.wire.messages import ApiKey
from multilane.wire.subscription import read_subscription, write_assignment

JOIN, SYNC, BEAT, LEAVE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
ALL = partitions("t", 0, 1, 2, 3)
MEMBER_ID_REQUIRED, UNKNOWN_MEMBER, REBALANCE = 79, 25, 27
COOPERATIVE = "cooperative-sticky"


def subscriptions(request):
    """assignor -> subscription in a JoinGroup."""
    return {p.name: read_subscription(p.metadata) for p in request.protocols}


def test_nothing_is_done_without_a_subscription():
    desk = Desk()
    assert desk.poll() == []
    assert (desk.wait, desk.member.identity, desk.state) == (NEVER, None, ClassicState.OUTSIDE)


def test_the_first_join_gets_an_id_and_is_repeated_with_it_at_once():
    desk = Desk(rack="r1")
    desk.subscribe("t", "u")
    request, said = desk.sent(JOIN)
    assert (said.group_id, said.member_id, said.group_instance_id, said.protocol_type) == ("g", "", None, "consumer")
    assert (said.session_timeout.total_seconds(), said.rebalance_timeout.total_seconds()) == (45.0, MAX_POLL)
    assert (request.channel.owner, request.timeout, request.node) == ("join-c1", MAX_POLL + 5, 1)
    subscription = subscriptions(said)["range"]
    assert (subscription.topics, subscription.owned, subscription.rack) == (("t", "u"), (), "r1")
    desk.answer(JOIN, error_code=MEMBER_ID_REQUIRED, member_id="m1")
    assert desk.member.identity is None
    _, said = desk.sent(JOIN)
    assert said.member_id == "m1"
    desk.join(generation=3)
    assert desk.member.identity == Identity("g", "m1", 3, None, "classic")


def test_a_follower_is_assigned_what_the_leader_says():
    desk = Desk()
    desk.subscribe()
    desk.join(generation=3)
    request, said = desk.sent(SYNC)
    assert (said.generation_id, said.member_id, said.assignments) == (3, "m1", ())
    assert (said.protocol_type, said.protocol_name) == ("consumer", "range")
    assert request.channel.owner == "join-c1"
    assert desk.hung_up == []
    desk.sync(partitions("t", 1))
    assert desk.state is ClassicState.RECONCILING
    assert desk.member.owned == partitions("t", 1)
    desk.poll()
    assert desk.hung_up == ["join-c1"]
    desk.done(Change.ASSIGNED, partitions("t", 1))
    assert desk.state is ClassicState.STABLE
    desk.poll(10.0)
    assert desk.hung_up == ["join-c1"]
    assert len(desk.steps) == 1


def test_an_empty_assignment_is_told_too():
    desk = Desk()
    desk.settle(frozenset())
    assert [s.change for s in desk.steps] == [Change.ASSIGNED]


def test_eager_everything_is_given_up_before_the_join():
    desk = Desk()
    desk.settle(ALL)
    desk.now = 10.0
    desk.answer(BEAT, error_code=REBALANCE)
    assert desk.none_sent(JOIN)
    assert desk.state is ClassicState.REVOKING
    step = desk.step(Change.REVOKED, ALL)
    assert step.deadline == 10.0 + MAX_POLL
    assert desk.member.owned == ALL
    assert desk.member.identity is not None  # there is time to commit
    desk.now += HEARTBEAT
    desk.answer(BEAT, error_code=REBALANCE)  # heartbeats go on
    assert desk.none_sent(JOIN)
    desk.done(Change.REVOKED, ALL)
    assert desk.member.owned == frozenset()
    _, said = desk.sent(JOIN)
    assert subscriptions(said)["range"].owned == ()
    desk.join(generation=2)
    desk.sync(partitions("t", 0))
    desk.done(Change.ASSIGNED, partitions("t", 0))
    assert desk.member.owned == partitions("t", 0)


def test_nothing_owned_nothing_revoked():
    desk = Desk()
    desk.settle(frozenset())
    desk.now = 10.0
    desk.answer(BEAT, error_code=REBALANCE)
    desk.join(generation=2)
    desk.sync(ALL)
    assert [s.change for s in desk.steps] == [Change.ASSIGNED, Change.ASSIGNED]


def test_cooperative_kept_partitions_never_stop():
    desk = Desk(COOPERATIVE)
    desk.settle(ALL, generation=4, protocol=COOPERATIVE)
    desk.now = 10.0
    desk.answer(BEAT, error_code=REBALANCE)
    _, said = desk.sent(JOIN)
    subscription = subscriptions(said)[COOPERATIVE]
    assert (frozenset(subscription.owned), subscription.generation) == (ALL, 4)
    assert desk.member.identity.epoch == 4
    desk.join(generation=5, protocol=COOPERATIVE)
    desk.sync(partitions("t", 0, 1))
    step = desk.step(Change.REVOKED, partitions("t", 2, 3))
    assert step.deadline == 10.0 + MAX_POLL
    assert desk.member.owned == ALL
    assert desk.none_sent(JOIN)
    desk.done(Change.REVOKED, partitions("t", 2, 3))
    desk.done(Change.ASSIGNED, frozenset())
    assert desk.hung_up == ["join-c1"]  # of the first rebalance; this one goes on
    _, said = desk.sent(JOIN)
    subscription = subscriptions(said)[COOPERATIVE]
    assert (frozenset(subscription.owned), subscription.generation) == (partitions("t", 0, 1), 5)
    desk.join(generation=6, protocol=COOPERATIVE)
    desk.sync(partitions("t", 0, 1))
    desk.done(Change.ASSIGNED, frozenset())
    desk.poll()
    assert desk.state is ClassicState.STABLE
    assert desk.hung_up == ["join-c1"] * 2
    assert [s.change for s in desk.steps] == [Change.ASSIGNED, Change.REVOKED, Change.ASSIGNED, Change.ASSIGNED]


def test_new_partitions_are_told_alone():
    desk = Desk(COOPERATIVE)
    desk.settle(partitions("t", 0), protocol=COOPERATIVE)
    desk.now = 10.0
    desk.answer(BEAT, error_code=REBALANCE)
    desk.join(generation=2, protocol=COOPERATIVE)
    desk.sync(partitions("t", 0, 2))
    desk.done(Change.ASSIGNED, partitions("t", 2))
    assert desk.member.owned == partitions("t", 0, 2)


def test_one_eager_assignor_makes_the_member_eager():
    desk = Desk("range", COOPERATIVE)
    desk.settle(ALL, protocol=COOPERATIVE)
    _, said = desk.sent(BEAT, 10.0)
    desk.answer(BEAT, error_code=REBALANCE)
    desk.poll()
    desk.done(Change.REVOKED, ALL)
    _, said = desk.sent(JOIN)
    assert [p.name for p in said.protocols] == ["range", COOPERATIVE]
    assert all(s.owned == () for s in subscriptions(said).values())


def test_a_sticky_member_tells_what_it_had():
    desk = Desk("sticky")
    desk.settle(ALL, protocol="sticky")
    desk.member.rejoin("test", desk.now)
    desk.poll()
    desk.done(Change.REVOKED, ALL)
    _, said = desk.sent(JOIN)
    (subscription,) = subscriptions(said).values()
    assert subscription.user_data
    assert subscription.owned == ()
    assert said.reason == "test"


def test_another_subscription_is_told_to_the_group():
    desk = Desk()
    desk.settle(ALL)
    desk.subscribe("u")
    desk.poll()
    desk.done(Change.REVOKED, ALL)
    _, said = desk.sent(JOIN)
    assert subscriptions(said)["range"].topics == ("u",)
    desk.join(generation=2)
    desk.sync(partitions("u", 0))
    desk.done(Change.ASSIGNED, partitions("u", 0))
    desk.subscribe("u")
    assert desk.none_sent(JOIN, 1.0)


def test_cooperative_only_what_is_no_longer_subscribed_is_given_up_before_the_join():
    desk = Desk(COOPERATIVE, topics={"t": 2, "u": 2})
    desk.subscribe("t", "u")
    desk.join(protocol=COOPERATIVE)
    held = partitions("t", 0) | partitions("u", 0)
    desk.sync(held)
    desk.done(Change.ASSIGNED, held)
    desk.subscribe("u")
    assert desk.none_sent(JOIN)
    desk.done(Change.REVOKED, partitions("t", 0))
    _, said = desk.sent(JOIN)
    assert subscriptions(said)[COOPERATIVE].owned == (TopicPartition("u", 0),)


def test_a_subscription_that_changes_during_the_join_is_told_afterwards():
    desk = Desk(COOPERATIVE, topics={"t": 2, "u": 2})
    desk.subscribe("t")
    desk.poll()
    desk.subscribe("u")
    desk.join(protocol=COOPERATIVE)
    desk.sync(partitions("t", 0))  # not wanted any more
    desk.done(Change.ASSIGNED, frozenset())
    _, said = desk.sent(JOIN)
    assert subscriptions(said)[COOPERATIVE].topics == ("u",)


def test_a_subscription_that_changes_while_the_join_fails_is_obeyed_before_the_next():
    desk = Desk(COOPERATIVE, topics={"t": 2, "u": 2})
    desk.settle(partitions("t", 0), protocol=COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    desk.fail(JOIN, NetworkError("gone"))
    desk.subscribe("u")
    assert desk.none_sent(JOIN, 1.0)
    assert desk.state is ClassicState.REVOKING
    desk.done(Change.REVOKED, partitions("t", 0))
    _, said = desk.sent(JOIN)
    assert subscriptions(said)[COOPERATIVE].topics == ("u",)


def test_a_subscription_that_changes_while_the_sync_fails_is_obeyed_before_the_next_join():
    desk = Desk(COOPERATIVE, topics={"t": 2, "u": 2})
    desk.settle(partitions("t", 0), protocol=COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    desk.join(generation=2, protocol=COOPERATIVE)
    desk.subscribe("u")
    desk.answer(SYNC, error_code=REBALANCE)
    assert desk.none_sent(JOIN)
    desk.done(Change.REVOKED, partitions("t", 0))
    _, said = desk.sent(JOIN)
    assert subscriptions(said)[COOPERATIVE].topics == ("u",)


def test_the_subscription_may_change_again_while_the_application_gives_up():
    desk = Desk(COOPERATIVE, topics={"t": 1, "u": 1, "v": 1})
    desk.subscribe("t", "u")
    desk.join(protocol=COOPERATIVE)
    held = partitions("t", 0) | partitions("u", 0)
    desk.sync(held)
    desk.done(Change.ASSIGNED, held)
    desk.subscribe("u")
    desk.poll()
    desk.subscribe("v")
    desk.done(Change.REVOKED, partitions("t", 0))
    assert desk.none_sent(JOIN)
    desk.done(Change.REVOKED, partitions("u", 0))
    desk.sent(JOIN)


def test_no_topics_is_a_membership_too():
    desk = Desk()
    desk.member.subscribe(Subscription(), 0.0)
    _, said = desk.sent(JOIN)
    assert subscriptions(said)["range"].topics == ()


def test_a_rebalance_announced_while_a_step_is_open_comes_after_it():
    desk = Desk()
    desk.subscribe()
    desk.join()
    desk.sync(ALL)
    desk.now = 5.0
    desk.answer(BEAT, error_code=REBALANCE)
    assert desk.state is ClassicState.RECONCILING
    desk.now = 9.0
    desk.done(Change.ASSIGNED, ALL)
    desk.poll()
    assert desk.step(Change.REVOKED, ALL).deadline == 5.0 + MAX_POLL


def test_a_rejoin_wished_during_a_rebalance_comes_after_it():
    desk = Desk()
    desk.subscribe()
    desk.join()
    desk.member.rejoin("again", desk.now)
    desk.sync(frozenset())
    desk.done(Change.ASSIGNED, frozenset())
    _, said = desk.sent(JOIN)
    assert said.reason == "again"


def test_a_new_rebalance_during_the_sync():
    desk = Desk(COOPERATIVE)
    desk.settle(ALL, protocol=COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    desk.join(generation=2, protocol=COOPERATIVE)
    desk.answer(SYNC, error_code=REBALANCE)
    _, said = desk.sent(JOIN)  # at once
    subscription = subscriptions(said)[COOPERATIVE]
    assert (said.member_id, frozenset(subscription.owned), subscription.generation) == ("m1", ALL, 2)
    desk.join(generation=3, protocol=COOPERATIVE)
    desk.answer(SYNC, error_code=REBALANCE)
    assert desk.none_sent(JOIN)  # not in a circle
    desk.sent(JOIN, 1.0)
    assert len(desk.steps) == 1


def test_an_old_ticket_means_nothing():
    desk = Desk()
    desk.settle(ALL)
    old = desk.steps[0].ticket
    desk.member.rejoin("test", desk.now)
    desk.poll()
    desk.member.step_done(old, desk.now)
    desk.member.step_done(99, desk.now)
    assert desk.state is ClassicState.REVOKING


def test_what_was_not_subscribed_to_is_left_alone(caplog):
    desk = Desk()
    desk.subscribe()
    desk.join()
    desk.sync([TopicPartition("t", 0), TopicPartition("evil\n", 0), TopicPartition("t", -1)])
    desk.done(Change.ASSIGNED, partitions("t", 0))
    assert "ignoring 2 assigned partitions that are not subscribed to" in caplog.text
    assert "evil\n" not in caplog.text
    desk.poll()
    desk.done(Change.REVOKED, partitions("t", 0))  # it is said to the group, once
    _, said = desk.sent(JOIN)
    assert "another subscription" in said.reason
    desk.join(generation=2)
    desk.sync([TopicPartition("t", 0), TopicPartition("evil", 0)])
    desk.done(Change.ASSIGNED, partitions("t", 0))
    assert desk.none_sent(JOIN, 1.0)


def test_partitions_that_nobody_has_seen_are_waited_for():
    desk = Desk()
    desk.subscribe()
    desk.join()
    desk.sync(partitions("t", 0, 77))
    desk.step(Change.ASSIGNED, partitions("t", 0, 77))
    assert desk.refreshes == 1


@pytest.mark.parametrize("version", [5, 6, 7, 8, 9])
def test_all_versions_are_spoken(version):
    desk = Desk()
    desk.subscribe()
    request, _ = desk.sent(JOIN)
    assert request.at_least == 5
    assert request.build(version).group_id == "g"


def test_the_line_is_not_the_one_that_heartbeats_use():
    desk = Desk()
    desk.settle(ALL)
    request, said = desk.sent(BEAT, HEARTBEAT)
    assert (request.channel, request.timeout) == (CONTROL, 45.0)
    assert (said.group_id, said.generation_id, said.member_id, said.group_instance_id) == ("g", 1, "m1", None)


def test_a_static_member_gets_its_place_back():
    desk = Desk(instance="i1")
    desk.subscribe()
    _, said = desk.sent(JOIN)
    assert (said.member_id, said.group_instance_id) == ("", "i1")
    desk.join(generation=7, member="m2")
    _, said = desk.sent(SYNC)
    assert (said.group_instance_id, said.generation_id) == ("i1", 7)
    desk.sync(ALL)
    desk.done(Change.ASSIGNED, ALL)
    _, said = desk.sent(BEAT, HEARTBEAT)
    assert said.group_instance_id == "i1"
    assert desk.member.identity == Identity("g", "m2", 7, "i1", "classic")


def test_a_static_leader_that_comes_back_assigns_nothing():
    desk = Desk(instance="i1", topics={"t": 4, "u": 1})
    desk.subscribe()
    members = [("m1", metadata_of("t")), ("m2", metadata_of("u"))]
    desk.answer(JOIN, leader="m1", member_id="m1", members=members, skip_assignment=True)
    _, said = desk.sent(SYNC)
    assert said.assignments == ()
    desk.answer(SYNC, assignment=write_assignment(ALL))
    desk.done(Change.ASSIGNED, ALL)
    assert desk.member.is_leader
    assert desk.member.topics_to_watch == {"t", "u"}
