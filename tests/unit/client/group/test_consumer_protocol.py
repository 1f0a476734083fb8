"""A member under KIP-848: joining, reconciling, acknowledging, leaving."""

from __future__ import annotations

from uuid import UUID

import pytest

from consumer_harness import INTERVAL, MAX_POLL, Harness, T, U, owned_in, partitions, picture
from multilane.client.group.consumer_protocol.states import MemberState
from multilane.client.group.membership import HEARTBEAT_FRACTION, UNASSIGNED_FOR, UNASSIGNED_INTERVAL, Change, Identity
from multilane.client.net.requests import CONTROL, NEVER
from multilane.errors import NetworkError

MS_1 = -0.001  # what a rebalance timeout that has not changed looks like


def test_nothing_is_done_without_a_subscription():
    harness = Harness()
    assert harness.poll() == []
    assert (harness.wait, harness.member.identity, harness.member.state) == (NEVER, None, MemberState.UNSUBSCRIBED)


def test_a_join_says_everything_with_an_empty_list_of_partitions():
    harness = Harness(rack="r1", group_remote_assignor="uniform")
    harness.subscribe("u", "t")
    said = harness.said()
    assert (said.group_id, said.member_epoch, said.instance_id, said.rack_id) == ("g", 0, None, "r1")
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("t", "u"), None)
    assert (said.server_assignor, said.topic_partitions) == ("uniform", ())
    assert said.rebalance_timeout.total_seconds() == MAX_POLL
    assert str(UUID(said.member_id)) == said.member_id
    assert (harness.requests[0].channel, harness.requests[0].node, harness.requests[0].at_least) == (CONTROL, 1, 0)
    assert harness.poll() == [], "one at a time"
    assert harness.member.identity is None


def test_an_assignment_is_begun_with_and_acknowledged_at_once():
    harness = Harness()
    harness.subscribe("t")
    member_id = harness.said().member_id
    harness.answer(3, {T: [0, 1]})
    assert harness.member.state is MemberState.RECONCILING
    assert harness.member.identity == Identity("g", member_id, 3, None, "consumer")
    assert harness.poll() == [], "not before the application is through"
    assert harness.steps[0].deadline == MAX_POLL
    harness.done(Change.ASSIGNED, partitions("t", 0, 1))
    assert harness.member.state is MemberState.ACKNOWLEDGING
    said = harness.said()
    assert (said.member_epoch, owned_in(said)) == (3, {T: {0, 1}})
    assert (said.subscribed_topic_names, said.rack_id, said.server_assignor) == (None, None, None)
    assert said.rebalance_timeout.total_seconds() == MS_1
    harness.answer(3)
    assert harness.member.state is MemberState.STABLE
    assert harness.member.owned == partitions("t", 0, 1)
    assert harness.poll() == []
    assert harness.wait == INTERVAL


def test_heartbeats_keep_the_interval_of_the_broker_and_say_nothing_new():
    harness = Harness()
    harness.settle(0)
    assert harness.poll(INTERVAL - 0.1) == []
    assert harness.wait == pytest.approx(0.1)
    assert owned_in(harness.said(INTERVAL)) is None
    harness.answer(1, interval=2.0)
    assert harness.poll(INTERVAL + 1.9) == []
    assert harness.wait == pytest.approx(INTERVAL - 1.9), "the new one counts from the next on"
    assert harness.said(2 * INTERVAL).subscribed_topic_names is None
    harness.answer(1, interval=2.0)
    assert harness.poll(2 * INTERVAL + HEARTBEAT_FRACTION * 2.0 - 0.1) == []
    assert harness.said(2 * INTERVAL + HEARTBEAT_FRACTION * 2.0)


def test_one_who_has_just_joined_and_has_nothing_asks_more_often():
    harness = Harness()
    harness.settle()
    asked = []
    for tenth in range(200):
        if harness.poll(tenth / 10):
            asked.append(tenth / 10)
            harness.answer(1)
    unassigned = [t for t in asked if t <= UNASSIGNED_FOR]
    assert len(unassigned) == pytest.approx(UNASSIGNED_FOR / UNASSIGNED_INTERVAL, abs=2)
    assert len(asked) - len(unassigned) <= 3, "a spare member does not ask like that for ever"


def test_heartbeats_go_on_while_a_step_is_open():
    harness = Harness()
    harness.settle(0, 1)
    harness.said(INTERVAL)
    harness.answer(1, {T: [0]})
    for beat in range(2, 5):
        said = harness.said(beat * INTERVAL)
        assert owned_in(said) is None
        harness.answer(1)
    assert [s.change for s in harness.steps] == [Change.ASSIGNED, Change.REVOKED]


def test_what_is_taken_away_is_given_up_first_and_reported_at_once():
    harness = Harness()
    harness.settle(0, 1, 2)
    harness.said(INTERVAL)
    harness.answer(1, {T: [1, 2]})
    assert harness.member.owned == partitions("t", 0, 1, 2), "ours until the step is done"
    assert harness.poll() == []
    harness.now = INTERVAL + 1
    harness.done(Change.REVOKED, partitions("t", 0))
    assert owned_in(harness.said()) == {T: {1, 2}}, "the next owner need not wait for more"
    harness.done(Change.ASSIGNED, frozenset())
    harness.answer(2)
    assert harness.member.state is MemberState.STABLE
    assert harness.poll() == [], "told once"
    assert harness.member.owned == partitions("t", 1, 2)
    assert [s.deadline for s in harness.steps[1:]] == [INTERVAL + MAX_POLL] * 2, "since the assignment came"


def test_taken_and_given_in_one_assignment():
    harness = Harness()
    harness.settle(0, 1)
    harness.said(INTERVAL)
    harness.answer(2, {T: [1, 5]})
    harness.done(Change.REVOKED, partitions("t", 0))
    harness.done(Change.ASSIGNED, partitions("t", 5))
    assert owned_in(harness.said()) == {T: {1, 5}}


def test_a_newer_assignment_waits_for_the_open_step_and_only_the_newest_counts():
    harness = Harness()
    harness.settle(0, 1)
    for beat, assigned in enumerate(([0], [0, 2], [0, 1, 3]), start=1):
        harness.said(beat * INTERVAL)
        harness.answer(1, {T: assigned})
    assert len(harness.steps) == 2
    harness.done(Change.REVOKED, partitions("t", 1))
    harness.done(Change.ASSIGNED, partitions("t", 1, 3))
    assert len({s.ticket for s in harness.steps}) == 3
    assert harness.member.owned == partitions("t", 0, 1, 3)


def test_an_old_ticket_means_nothing():
    harness = Harness()
    harness.settle(0, 1)
    harness.said(INTERVAL)
    harness.answer(1, {T: [0]})
    harness.member.step_done(harness.steps[0].ticket, harness.now)
    harness.member.step_done(99, harness.now)
    assert harness.member.owned == partitions("t", 0, 1)


def test_an_empty_assignment_is_reported_once_and_the_same_one_never_again():
    harness = Harness()
    harness.settle()
    harness.said(INTERVAL)
    harness.answer(1, {})
    assert (len(harness.steps), harness.member.state) == (1, MemberState.STABLE)
    assert harness.poll() == []


def test_names_that_are_not_known_are_asked_for_and_the_rest_goes_ahead():
    harness = Harness()
    harness.subscribe("t", "u")
    harness.said()
    harness.answer(1, {T: [0], U: [0, 1]})
    assert harness.wanted == {U}
    harness.done(Change.ASSIGNED, partitions("t", 0))
    assert owned_in(harness.said()) == {T: {0}}
    harness.answer(1)
    assert harness.member.state is MemberState.RECONCILING
    assert harness.poll() == []
    harness.cluster = picture({"t": 8, "u": 1})
    harness.poll()
    harness.done(Change.ASSIGNED, partitions("u", 0))
    assert harness.wanted == {U}, "its second partition is not there yet"
    assert owned_in(harness.said()) == {T: {0}, U: {0}}
    harness.answer(1)
    harness.cluster = picture({"t": 8, "u": 2})
    harness.poll()
    assert harness.wanted == {U}, "until the application has begun, so that the picture keeps the topic"
    harness.done(Change.ASSIGNED, partitions("u", 1))
    assert owned_in(harness.said()) == {T: {0}, U: {0, 1}}
    harness.answer(1)
    assert (harness.wanted, harness.member.state) == (set(), MemberState.STABLE)


def test_partitions_that_a_topic_does_not_have_make_us_look_again_once_per_heartbeat():
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    harness.answer(1, {T: [8]})
    for _ in range(3):
        harness.cluster = picture({"t": 8})
        harness.poll()
    assert harness.refreshes == 1
    harness.answer(1)
    harness.poll(INTERVAL)
    harness.answer(1)
    assert harness.refreshes == 3
    assert harness.steps == []


def test_what_was_never_known_and_is_taken_away_is_acknowledged():
    harness = Harness()
    harness.settle(0)
    harness.said(INTERVAL)
    harness.answer(2, {T: [0], U: [0]})
    assert owned_in(harness.said()) == {T: {0}}
    harness.answer(2)
    harness.said(2 * INTERVAL)
    harness.answer(2, {T: [0]})
    assert owned_in(harness.said()) == {T: {0}}, "the coordinator waits to hear that we do not own u-0"
    harness.answer(3)
    assert (harness.member.state, harness.wanted, len(harness.steps)) == (MemberState.STABLE, set(), 1)


def test_a_topic_made_anew_is_given_up_and_begun_with_under_the_same_name():
    harness = Harness()
    harness.settle(0)
    other = UUID(int=77)
    harness.said(INTERVAL)
    harness.answer(2, {other: [0]})
    harness.cluster = picture({"t": 1}, {"t": other})
    harness.done(Change.REVOKED, partitions("t", 0))
    harness.done(Change.ASSIGNED, partitions("t", 0))
    assert owned_in(harness.said()) == {other: {0}}


def test_another_subscription_is_reported_at_once_and_a_pattern_takes_back_the_names():
    harness = Harness()
    harness.settle(0)
    harness.subscribe("t")
    assert harness.poll() == [], "nothing new"
    harness.subscribe("t", "u")
    said = harness.said()
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("t", "u"), None)
    harness.answer(1)
    harness.subscribe(regex="t.*")
    said = harness.said()
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == ((), "t.*")
    assert harness.requests[0].at_least == 1
    harness.answer(1)
    harness.subscribe("t")
    said = harness.said()
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("t",), "")


def test_a_subscription_that_changes_while_an_answer_is_awaited_is_reported_after_it():
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    harness.subscribe("t", "u")
    assert harness.poll() == []
    harness.answer(1, {})
    assert harness.said().subscribed_topic_names == ("t", "u")


def test_static_members_say_who_they_are_each_time_and_leave_with_minus_two():
    harness = Harness(group_instance_id="i1")
    harness.settle(0)
    assert harness.said(INTERVAL).instance_id == "i1"
    harness.answer(1)
    harness.leave()
    said = harness.said()
    assert (said.member_epoch, said.instance_id, said.topic_partitions) == (-2, "i1", None)


def test_leaving_is_said_at_once_and_known_when_answered():
    harness = Harness()
    harness.settle(0)
    harness.said(INTERVAL)
    harness.leave()
    assert (harness.member.owned, harness.member.identity) == (frozenset(), None)
    assert harness.said().member_epoch == -1, "though an answer is still awaited"
    assert harness.poll() == []
    harness.answer(9, {T: [0, 1]})
    assert (harness.left, harness.steps[1:]) == (0, []), "the old conversation is over"
    harness.answer(-1)
    assert (harness.left, harness.member.state) == (1, MemberState.UNSUBSCRIBED)
    assert harness.poll() == []


def test_leaving_ends_when_the_coordinator_is_gone_or_nobody_is_to_be_informed():
    harness = Harness()
    harness.leave()
    assert harness.left == 1
    harness.subscribe("t")
    harness.leave()
    assert (harness.left, harness.member.state) == (2, MemberState.UNSUBSCRIBED), "nothing was said yet"
    harness.settle(0)
    harness.node = None
    harness.leave()
    assert harness.left == 2
    assert harness.poll() == []
    assert harness.left == 3


def test_leaving_is_said_when_a_coordinator_that_is_being_looked_for_is_found():
    harness = Harness()
    harness.settle(0)
    node, harness.node, harness.is_looking = harness.node, None, True
    harness.leave()
    assert (harness.poll(), harness.left) == ([], 0)
    harness.node = node
    assert harness.said().member_epoch == -1
    harness.answer(-1)
    assert harness.left == 1


def test_subscribing_while_leaving_joins_afterwards():
    harness = Harness()
    harness.settle(0)
    member_id = harness.member.identity.member_id
    harness.leave()
    harness.said()
    harness.subscribe("t")
    assert harness.poll() == []
    harness.answer(-1)
    said = harness.said()
    assert (said.member_epoch, said.member_id, said.topic_partitions) == (0, member_id, ())
    assert harness.left == 1


def test_an_absent_application_is_left_behind_and_loses_what_it_owned_when_it_polls():
    harness = Harness()
    harness.settle(0, 1)
    harness.poll_activity.is_polling, harness.poll_activity.last = False, 10.0
    for beat in range(1, 62):
        assert harness.said(beat * INTERVAL).member_epoch == 1
        harness.answer(1)
    assert harness.wait <= 10 + MAX_POLL - harness.now
    assert harness.said(10 + MAX_POLL).member_epoch == -1
    assert (harness.member.state, harness.member.identity) == (MemberState.STALE, None)
    assert harness.poll(400.0) == []
    assert harness.wait < 5
    assert len(harness.steps) == 1
    harness.poll_activity.last = 401.0
    assert harness.poll(401.0) == []
    harness.done(Change.LOST, partitions("t", 0, 1))
    said = harness.said()
    assert (said.member_epoch, said.topic_partitions) == (0, ())


def test_an_absent_application_that_owns_nothing_just_joins_again():
    harness = Harness(group_instance_id="i1")
    harness.settle()
    harness.poll_activity.is_polling = False
    assert harness.said(MAX_POLL).member_epoch == -2
    harness.poll_activity.is_polling = True
    assert harness.said().member_epoch == 0
    assert len(harness.steps) == 1


def test_a_rebalance_cannot_be_forced():
    harness = Harness()
    harness.settle(0)
    harness.member.rejoin("because", harness.now)
    assert harness.poll() == []


def test_nothing_is_begun_with_while_a_list_without_it_is_under_way():
    harness = Harness()
    harness.cluster = picture({})
    harness.subscribe("t")
    harness.said()
    harness.answer(1, {T: [0, 1]})
    assert owned_in(harness.said()) == {}
    harness.cluster = picture({"t": 8})
    harness.poll()
    assert harness.steps == [], "who hears that we own nothing may give t-0 to another member"
    harness.fail(NetworkError("lost"))
    harness.poll()
    assert harness.steps == [], "and may have heard it"
    assert owned_in(harness.said(0.2)) == {}
    harness.answer(2, {T: [1]})
    harness.done(Change.ASSIGNED, partitions("t", 1))


def test_taking_back_a_pattern_is_said_again_when_that_was_lost():
    harness = Harness()
    harness.subscribe(regex="t.*")
    harness.said()
    harness.answer(1, {})
    harness.subscribe("t")
    harness.said()
    assert harness.requests[-1].build(1).subscribed_topic_regex == ""
    harness.fail(NetworkError("lost"))
    said = harness.said(0.2)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("t",), "")


def test_two_topics_that_had_the_same_name_are_not_owned_at_once():
    harness = Harness()
    harness.settle(0)
    other = UUID(int=77)
    harness.cluster = picture({"t": 1}, {"t": other})
    harness.said(INTERVAL)
    harness.answer(2, {T: [0], other: [0]})
    assert len(harness.steps) == 1, "t-0 is owned, as a partition of the topic that was"
    harness.said()
    harness.answer(2, {other: [0]})
    harness.done(Change.REVOKED, partitions("t", 0))
    harness.done(Change.ASSIGNED, partitions("t", 0))
    assert owned_in(harness.said()) == {other: {0}}
