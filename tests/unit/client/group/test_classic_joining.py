"""Joining a classic group: ids, generations, steps of the application, eager and cooperative."""

from __future__ import annotations

import pytest

from classic_harness import HEARTBEAT, MAX_POLL, Harness, metadata_of, partitions
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
    harness = Harness()
    assert harness.poll() == []
    assert (harness.wait, harness.member.identity, harness.state) == (NEVER, None, ClassicState.OUTSIDE)


def test_the_first_join_gets_an_id_and_is_repeated_with_it_at_once():
    harness = Harness(rack="r1")
    harness.subscribe("t", "u")
    request, said = harness.sent(JOIN)
    assert (said.group_id, said.member_id, said.group_instance_id, said.protocol_type) == ("g", "", None, "consumer")
    assert (said.session_timeout.total_seconds(), said.rebalance_timeout.total_seconds()) == (45.0, MAX_POLL)
    assert (request.channel.owner, request.timeout, request.node) == ("join-c1", MAX_POLL + 5, 1)
    subscription = subscriptions(said)["range"]
    assert (subscription.topics, subscription.owned, subscription.rack) == (("t", "u"), (), "r1")
    harness.answer(JOIN, error_code=MEMBER_ID_REQUIRED, member_id="m1")
    assert harness.member.identity is None
    _, said = harness.sent(JOIN)
    assert said.member_id == "m1"
    harness.join(generation=3)
    assert harness.member.identity == Identity("g", "m1", 3, None, "classic")


def test_a_follower_is_assigned_what_the_leader_says():
    harness = Harness()
    harness.subscribe()
    harness.join(generation=3)
    request, said = harness.sent(SYNC)
    assert (said.generation_id, said.member_id, said.assignments) == (3, "m1", ())
    assert (said.protocol_type, said.protocol_name) == ("consumer", "range")
    assert request.channel.owner == "join-c1"
    assert harness.hung_up == []
    harness.sync(partitions("t", 1))
    assert harness.state is ClassicState.RECONCILING
    assert harness.member.owned == partitions("t", 1)
    harness.poll()
    assert harness.hung_up == ["join-c1"]
    harness.done(Change.ASSIGNED, partitions("t", 1))
    assert harness.state is ClassicState.STABLE
    harness.poll(10.0)
    assert harness.hung_up == ["join-c1"]
    assert len(harness.steps) == 1


def test_an_empty_assignment_is_reported_too():
    harness = Harness()
    harness.settle(frozenset())
    assert [s.change for s in harness.steps] == [Change.ASSIGNED]


def test_eager_everything_is_given_up_before_the_join():
    harness = Harness()
    harness.settle(ALL)
    harness.now = 10.0
    harness.answer(BEAT, error_code=REBALANCE)
    assert harness.none_sent(JOIN)
    assert harness.state is ClassicState.REVOKING
    step = harness.step(Change.REVOKED, ALL)
    assert step.deadline == 10.0 + MAX_POLL
    assert harness.member.owned == ALL
    assert harness.member.identity is not None  # there is time to commit
    harness.now += HEARTBEAT
    harness.answer(BEAT, error_code=REBALANCE)  # heartbeats go on
    assert harness.none_sent(JOIN)
    harness.done(Change.REVOKED, ALL)
    assert harness.member.owned == frozenset()
    _, said = harness.sent(JOIN)
    assert subscriptions(said)["range"].owned == ()
    harness.join(generation=2)
    harness.sync(partitions("t", 0))
    harness.done(Change.ASSIGNED, partitions("t", 0))
    assert harness.member.owned == partitions("t", 0)


def test_nothing_owned_nothing_revoked():
    harness = Harness()
    harness.settle(frozenset())
    harness.now = 10.0
    harness.answer(BEAT, error_code=REBALANCE)
    harness.join(generation=2)
    harness.sync(ALL)
    assert [s.change for s in harness.steps] == [Change.ASSIGNED, Change.ASSIGNED]


def test_cooperative_kept_partitions_never_stop():
    harness = Harness(COOPERATIVE)
    harness.settle(ALL, generation=4, protocol=COOPERATIVE)
    harness.now = 10.0
    harness.answer(BEAT, error_code=REBALANCE)
    _, said = harness.sent(JOIN)
    subscription = subscriptions(said)[COOPERATIVE]
    assert (frozenset(subscription.owned), subscription.generation) == (ALL, 4)
    assert harness.member.identity.epoch == 4
    harness.join(generation=5, protocol=COOPERATIVE)
    harness.sync(partitions("t", 0, 1))
    step = harness.step(Change.REVOKED, partitions("t", 2, 3))
    assert step.deadline == 10.0 + MAX_POLL
    assert harness.member.owned == ALL
    assert harness.none_sent(JOIN)
    harness.done(Change.REVOKED, partitions("t", 2, 3))
    harness.done(Change.ASSIGNED, frozenset())
    assert harness.hung_up == ["join-c1"]  # of the first rebalance; this one goes on
    _, said = harness.sent(JOIN)
    subscription = subscriptions(said)[COOPERATIVE]
    assert (frozenset(subscription.owned), subscription.generation) == (partitions("t", 0, 1), 5)
    harness.join(generation=6, protocol=COOPERATIVE)
    harness.sync(partitions("t", 0, 1))
    harness.done(Change.ASSIGNED, frozenset())
    harness.poll()
    assert harness.state is ClassicState.STABLE
    assert harness.hung_up == ["join-c1"] * 2
    assert [s.change for s in harness.steps] == [Change.ASSIGNED, Change.REVOKED, Change.ASSIGNED, Change.ASSIGNED]


def test_new_partitions_are_reported_alone():
    harness = Harness(COOPERATIVE)
    harness.settle(partitions("t", 0), protocol=COOPERATIVE)
    harness.now = 10.0
    harness.answer(BEAT, error_code=REBALANCE)
    harness.join(generation=2, protocol=COOPERATIVE)
    harness.sync(partitions("t", 0, 2))
    harness.done(Change.ASSIGNED, partitions("t", 2))
    assert harness.member.owned == partitions("t", 0, 2)


def test_one_eager_assignor_makes_the_member_eager():
    harness = Harness("range", COOPERATIVE)
    harness.settle(ALL, protocol=COOPERATIVE)
    _, said = harness.sent(BEAT, 10.0)
    harness.answer(BEAT, error_code=REBALANCE)
    harness.poll()
    harness.done(Change.REVOKED, ALL)
    _, said = harness.sent(JOIN)
    assert [p.name for p in said.protocols] == ["range", COOPERATIVE]
    assert all(s.owned == () for s in subscriptions(said).values())


def test_a_sticky_member_tells_what_it_had():
    harness = Harness("sticky")
    harness.settle(ALL, protocol="sticky")
    harness.member.rejoin("test", harness.now)
    harness.poll()
    harness.done(Change.REVOKED, ALL)
    _, said = harness.sent(JOIN)
    (subscription,) = subscriptions(said).values()
    assert subscription.user_data
    assert subscription.owned == ()
    assert said.reason == "test"


def test_another_subscription_is_reported_to_the_group():
    harness = Harness()
    harness.settle(ALL)
    harness.subscribe("u")
    harness.poll()
    harness.done(Change.REVOKED, ALL)
    _, said = harness.sent(JOIN)
    assert subscriptions(said)["range"].topics == ("u",)
    harness.join(generation=2)
    harness.sync(partitions("u", 0))
    harness.done(Change.ASSIGNED, partitions("u", 0))
    harness.subscribe("u")
    assert harness.none_sent(JOIN, 1.0)


def test_cooperative_only_what_is_no_longer_subscribed_is_given_up_before_the_join():
    harness = Harness(COOPERATIVE, topics={"t": 2, "u": 2})
    harness.subscribe("t", "u")
    harness.join(protocol=COOPERATIVE)
    held = partitions("t", 0) | partitions("u", 0)
    harness.sync(held)
    harness.done(Change.ASSIGNED, held)
    harness.subscribe("u")
    assert harness.none_sent(JOIN)
    harness.done(Change.REVOKED, partitions("t", 0))
    _, said = harness.sent(JOIN)
    assert subscriptions(said)[COOPERATIVE].owned == (TopicPartition("u", 0),)


def test_a_subscription_that_changes_during_the_join_is_reported_afterwards():
    harness = Harness(COOPERATIVE, topics={"t": 2, "u": 2})
    harness.subscribe("t")
    harness.poll()
    harness.subscribe("u")
    harness.join(protocol=COOPERATIVE)
    harness.sync(partitions("t", 0))  # not wanted any more
    harness.done(Change.ASSIGNED, frozenset())
    _, said = harness.sent(JOIN)
    assert subscriptions(said)[COOPERATIVE].topics == ("u",)


def test_a_subscription_that_changes_while_the_join_fails_is_obeyed_before_the_next():
    harness = Harness(COOPERATIVE, topics={"t": 2, "u": 2})
    harness.settle(partitions("t", 0), protocol=COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    harness.fail(JOIN, NetworkError("gone"))
    harness.subscribe("u")
    assert harness.none_sent(JOIN, 1.0)
    assert harness.state is ClassicState.REVOKING
    harness.done(Change.REVOKED, partitions("t", 0))
    _, said = harness.sent(JOIN)
    assert subscriptions(said)[COOPERATIVE].topics == ("u",)


def test_a_subscription_that_changes_while_the_sync_fails_is_obeyed_before_the_next_join():
    harness = Harness(COOPERATIVE, topics={"t": 2, "u": 2})
    harness.settle(partitions("t", 0), protocol=COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    harness.join(generation=2, protocol=COOPERATIVE)
    harness.subscribe("u")
    harness.answer(SYNC, error_code=REBALANCE)
    assert harness.none_sent(JOIN)
    harness.done(Change.REVOKED, partitions("t", 0))
    _, said = harness.sent(JOIN)
    assert subscriptions(said)[COOPERATIVE].topics == ("u",)


def test_the_subscription_may_change_again_while_the_application_gives_up():
    harness = Harness(COOPERATIVE, topics={"t": 1, "u": 1, "v": 1})
    harness.subscribe("t", "u")
    harness.join(protocol=COOPERATIVE)
    held = partitions("t", 0) | partitions("u", 0)
    harness.sync(held)
    harness.done(Change.ASSIGNED, held)
    harness.subscribe("u")
    harness.poll()
    harness.subscribe("v")
    harness.done(Change.REVOKED, partitions("t", 0))
    assert harness.none_sent(JOIN)
    harness.done(Change.REVOKED, partitions("u", 0))
    harness.sent(JOIN)


def test_no_topics_is_a_membership_too():
    harness = Harness()
    harness.member.subscribe(Subscription(), 0.0)
    _, said = harness.sent(JOIN)
    assert subscriptions(said)["range"].topics == ()


def test_a_rebalance_announced_while_a_step_is_open_comes_after_it():
    harness = Harness()
    harness.subscribe()
    harness.join()
    harness.sync(ALL)
    harness.now = 5.0
    harness.answer(BEAT, error_code=REBALANCE)
    assert harness.state is ClassicState.RECONCILING
    harness.now = 9.0
    harness.done(Change.ASSIGNED, ALL)
    harness.poll()
    assert harness.step(Change.REVOKED, ALL).deadline == 5.0 + MAX_POLL


def test_a_rejoin_wished_during_a_rebalance_comes_after_it():
    harness = Harness()
    harness.subscribe()
    harness.join()
    harness.member.rejoin("again", harness.now)
    harness.sync(frozenset())
    harness.done(Change.ASSIGNED, frozenset())
    _, said = harness.sent(JOIN)
    assert said.reason == "again"


def test_a_new_rebalance_during_the_sync():
    harness = Harness(COOPERATIVE)
    harness.settle(ALL, protocol=COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    harness.join(generation=2, protocol=COOPERATIVE)
    harness.answer(SYNC, error_code=REBALANCE)
    _, said = harness.sent(JOIN)  # at once
    subscription = subscriptions(said)[COOPERATIVE]
    assert (said.member_id, frozenset(subscription.owned), subscription.generation) == ("m1", ALL, 2)
    harness.join(generation=3, protocol=COOPERATIVE)
    harness.answer(SYNC, error_code=REBALANCE)
    assert harness.none_sent(JOIN)  # not in a circle
    harness.sent(JOIN, 1.0)
    assert len(harness.steps) == 1


def test_an_old_ticket_means_nothing():
    harness = Harness()
    harness.settle(ALL)
    old = harness.steps[0].ticket
    harness.member.rejoin("test", harness.now)
    harness.poll()
    harness.member.step_done(old, harness.now)
    harness.member.step_done(99, harness.now)
    assert harness.state is ClassicState.REVOKING


def test_what_was_not_subscribed_to_is_left_alone(caplog):
    harness = Harness()
    harness.subscribe()
    harness.join()
    harness.sync([TopicPartition("t", 0), TopicPartition("evil\n", 0), TopicPartition("t", -1)])
    harness.done(Change.ASSIGNED, partitions("t", 0))
    assert "ignoring 2 assigned partitions that are not subscribed to" in caplog.text
    assert "evil\n" not in caplog.text
    harness.poll()
    harness.done(Change.REVOKED, partitions("t", 0))  # it is said to the group, once
    _, said = harness.sent(JOIN)
    assert "another subscription" in said.reason
    harness.join(generation=2)
    harness.sync([TopicPartition("t", 0), TopicPartition("evil", 0)])
    harness.done(Change.ASSIGNED, partitions("t", 0))
    assert harness.none_sent(JOIN, 1.0)


def test_partitions_that_nobody_has_seen_are_waited_for():
    harness = Harness()
    harness.subscribe()
    harness.join()
    harness.sync(partitions("t", 0, 77))
    harness.step(Change.ASSIGNED, partitions("t", 0, 77))
    assert harness.refreshes == 1


@pytest.mark.parametrize("version", [5, 6, 7, 8, 9])
def test_all_versions_are_spoken(version):
    harness = Harness()
    harness.subscribe()
    request, _ = harness.sent(JOIN)
    assert request.at_least == 5
    assert request.build(version).group_id == "g"


def test_the_line_is_not_the_one_that_heartbeats_use():
    harness = Harness()
    harness.settle(ALL)
    request, said = harness.sent(BEAT, HEARTBEAT)
    assert (request.channel, request.timeout) == (CONTROL, 45.0)
    assert (said.group_id, said.generation_id, said.member_id, said.group_instance_id) == ("g", 1, "m1", None)


def test_a_static_member_gets_its_place_back():
    harness = Harness(instance="i1")
    harness.subscribe()
    _, said = harness.sent(JOIN)
    assert (said.member_id, said.group_instance_id) == ("", "i1")
    harness.join(generation=7, member="m2")
    _, said = harness.sent(SYNC)
    assert (said.group_instance_id, said.generation_id) == ("i1", 7)
    harness.sync(ALL)
    harness.done(Change.ASSIGNED, ALL)
    _, said = harness.sent(BEAT, HEARTBEAT)
    assert said.group_instance_id == "i1"
    assert harness.member.identity == Identity("g", "m2", 7, "i1", "classic")


def test_a_static_leader_that_comes_back_assigns_nothing():
    harness = Harness(instance="i1", topics={"t": 4, "u": 1})
    harness.subscribe()
    members = [("m1", metadata_of("t")), ("m2", metadata_of("u"))]
    harness.answer(JOIN, leader="m1", member_id="m1", members=members, skip_assignment=True)
    _, said = harness.sent(SYNC)
    assert said.assignments == ()
    harness.answer(SYNC, assignment=write_assignment(ALL))
    harness.done(Change.ASSIGNED, ALL)
    assert harness.member.is_leader
    assert harness.member.topics_to_watch == {"t", "u"}
