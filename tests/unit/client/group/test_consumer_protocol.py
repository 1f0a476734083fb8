"""A member under KIP-848: joining, reconciling, acknowledging, leaving."""

from __future__ import annotations

from uuid import UUID

import pytest

from consumer_desk import INTERVAL, MAX_POLL, Desk, T, U, owned_in, partitions, picture
from multilane.client.group.consumer_protocol.states import MemberState
from multilane.client.group.membership import HEARTBEAT_FRACTION, UNASSIGNED_FOR, UNASSIGNED_INTERVAL, Change, Identity
from multilane.client.net.requests import CONTROL, NEVER
from multilane.errors import NetworkError

MS_1 = -0.001  # what a rebalance timeout that has not changed looks like


def test_nothing_is_done_without_a_subscription():
    desk = Desk()
    assert desk.poll() == []
    assert (desk.wait, desk.member.identity, desk.member.state) == (NEVER, None, MemberState.UNSUBSCRIBED)


def test_a_join_says_everything_with_an_empty_list_of_partitions():
    desk = Desk(rack="r1", group_remote_assignor="uniform")
    desk.subscribe("u", "t")
    said = desk.said()
    assert (said.group_id, said.member_epoch, said.instance_id, said.rack_id) == ("g", 0, None, "r1")
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("t", "u"), None)
    assert (said.server_assignor, said.topic_partitions) == ("uniform", ())
    assert said.rebalance_timeout.total_seconds() == MAX_POLL
    assert str(UUID(said.member_id)) == said.member_id
    assert (desk.requests[0].channel, desk.requests[0].node, desk.requests[0].at_least) == (CONTROL, 1, 0)
    assert desk.poll() == [], "one at a time"
    assert desk.member.identity is None


def test_an_assignment_is_begun_with_and_acknowledged_at_once():
    desk = Desk()
    desk.subscribe("t")
    member_id = desk.said().member_id
    desk.answer(3, {T: [0, 1]})
    assert desk.member.state is MemberState.RECONCILING
    assert desk.member.identity == Identity("g", member_id, 3, None, "consumer")
    assert desk.poll() == [], "not before the application is through"
    assert desk.steps[0].deadline == MAX_POLL
    desk.done(Change.ASSIGNED, partitions("t", 0, 1))
    assert desk.member.state is MemberState.ACKNOWLEDGING
    said = desk.said()
    assert (said.member_epoch, owned_in(said)) == (3, {T: {0, 1}})
    assert (said.subscribed_topic_names, said.rack_id, said.server_assignor) == (None, None, None)
    assert said.rebalance_timeout.total_seconds() == MS_1
    desk.answer(3)
    assert desk.member.state is MemberState.STABLE
    assert desk.member.owned == partitions("t", 0, 1)
    assert desk.poll() == []
    assert desk.wait == INTERVAL


def test_heartbeats_keep_the_interval_of_the_broker_and_say_nothing_new():
    desk = Desk()
    desk.settle(0)
    assert desk.poll(INTERVAL - 0.1) == []
    assert desk.wait == pytest.approx(0.1)
    assert owned_in(desk.said(INTERVAL)) is None
    desk.answer(1, interval=2.0)
    assert desk.poll(INTERVAL + 1.9) == []
    assert desk.wait == pytest.approx(INTERVAL - 1.9), "the new one counts from the next on"
    assert desk.said(2 * INTERVAL).subscribed_topic_names is None
    desk.answer(1, interval=2.0)
    assert desk.poll(2 * INTERVAL + HEARTBEAT_FRACTION * 2.0 - 0.1) == []
    assert desk.said(2 * INTERVAL + HEARTBEAT_FRACTION * 2.0)


def test_one_who_has_just_joined_and_has_nothing_asks_more_often():
    desk = Desk()
    desk.settle()
    asked = []
    for tenth in range(200):
        if desk.poll(tenth / 10):
            asked.append(tenth / 10)
            desk.answer(1)
    unassigned = [t for t in asked if t <= UNASSIGNED_FOR]
    assert len(unassigned) == pytest.approx(UNASSIGNED_FOR / UNASSIGNED_INTERVAL, abs=2)
    assert len(asked) - len(unassigned) <= 3, "a spare member does not ask like that for ever"


def test_heartbeats_go_on_while_a_step_is_open():
    desk = Desk()
    desk.settle(0, 1)
    desk.said(INTERVAL)
    desk.answer(1, {T: [0]})
    for beat in range(2, 5):
        said = desk.said(beat * INTERVAL)
        assert owned_in(said) is None
        desk.answer(1)
    assert [s.change for s in desk.steps] == [Change.ASSIGNED, Change.REVOKED]


def test_what_is_taken_away_is_given_up_first_and_told_at_once():
    desk = Desk()
    desk.settle(0, 1, 2)
    desk.said(INTERVAL)
    desk.answer(1, {T: [1, 2]})
    assert desk.member.owned == partitions("t", 0, 1, 2), "ours until the step is done"
    assert desk.poll() == []
    desk.now = INTERVAL + 1
    desk.done(Change.REVOKED, partitions("t", 0))
    assert owned_in(desk.said()) == {T: {1, 2}}, "the next owner need not wait for more"
    desk.done(Change.ASSIGNED, frozenset())
    desk.answer(2)
    assert desk.member.state is MemberState.STABLE
    assert desk.poll() == [], "told once"
    assert desk.member.owned == partitions("t", 1, 2)
    assert [s.deadline for s in desk.steps[1:]] == [INTERVAL + MAX_POLL] * 2, "since the assignment came"


def test_taken_and_given_in_one_assignment():
    desk = Desk()
    desk.settle(0, 1)
    desk.said(INTERVAL)
    desk.answer(2, {T: [1, 5]})
    desk.done(Change.REVOKED, partitions("t", 0))
    desk.done(Change.ASSIGNED, partitions("t", 5))
    assert owned_in(desk.said()) == {T: {1, 5}}


def test_a_newer_assignment_waits_for_the_open_step_and_only_the_newest_counts():
    desk = Desk()
    desk.settle(0, 1)
    for beat, assigned in enumerate(([0], [0, 2], [0, 1, 3]), start=1):
        desk.said(beat * INTERVAL)
        desk.answer(1, {T: assigned})
    assert len(desk.steps) == 2
    desk.done(Change.REVOKED, partitions("t", 1))
    desk.done(Change.ASSIGNED, partitions("t", 1, 3))
    assert len({s.ticket for s in desk.steps}) == 3
    assert desk.member.owned == partitions("t", 0, 1, 3)


def test_an_old_ticket_means_nothing():
    desk = Desk()
    desk.settle(0, 1)
    desk.said(INTERVAL)
    desk.answer(1, {T: [0]})
    desk.member.step_done(desk.steps[0].ticket, desk.now)
    desk.member.step_done(99, desk.now)
    assert desk.member.owned == partitions("t", 0, 1)


def test_an_empty_assignment_is_told_once_and_the_same_one_never_again():
    desk = Desk()
    desk.settle()
    desk.said(INTERVAL)
    desk.answer(1, {})
    assert (len(desk.steps), desk.member.state) == (1, MemberState.STABLE)
    assert desk.poll() == []


def test_names_that_are_not_known_are_asked_for_and_the_rest_goes_ahead():
    desk = Desk()
    desk.subscribe("t", "u")
    desk.said()
    desk.answer(1, {T: [0], U: [0, 1]})
    assert desk.wanted == {U}
    desk.done(Change.ASSIGNED, partitions("t", 0))
    assert owned_in(desk.said()) == {T: {0}}
    desk.answer(1)
    assert desk.member.state is MemberState.RECONCILING
    assert desk.poll() == []
    desk.cluster = picture({"t": 8, "u": 1})
    desk.poll()
    desk.done(Change.ASSIGNED, partitions("u", 0))
    assert desk.wanted == {U}, "its second partition is not there yet"
    assert owned_in(desk.said()) == {T: {0}, U: {0}}
    desk.answer(1)
    desk.cluster = picture({"t": 8, "u": 2})
    desk.poll()
    assert desk.wanted == {U}, "until the application has begun, so that the picture keeps the topic"
    desk.done(Change.ASSIGNED, partitions("u", 1))
    assert owned_in(desk.said()) == {T: {0}, U: {0, 1}}
    desk.answer(1)
    assert (desk.wanted, desk.member.state) == (set(), MemberState.STABLE)


def test_partitions_that_a_topic_does_not_have_make_us_look_again_once_per_heartbeat():
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    desk.answer(1, {T: [8]})
    for _ in range(3):
        desk.cluster = picture({"t": 8})
        desk.poll()
    assert desk.refreshes == 1
    desk.answer(1)
    desk.poll(INTERVAL)
    desk.answer(1)
    assert desk.refreshes == 3
    assert desk.steps == []


def test_what_was_never_known_and_is_taken_away_is_acknowledged():
    desk = Desk()
    desk.settle(0)
    desk.said(INTERVAL)
    desk.answer(2, {T: [0], U: [0]})
    assert owned_in(desk.said()) == {T: {0}}
    desk.answer(2)
    desk.said(2 * INTERVAL)
    desk.answer(2, {T: [0]})
    assert owned_in(desk.said()) == {T: {0}}, "the coordinator waits to hear that we do not own u-0"
    desk.answer(3)
    assert (desk.member.state, desk.wanted, len(desk.steps)) == (MemberState.STABLE, set(), 1)


def test_a_topic_made_anew_is_given_up_and_begun_with_under_the_same_name():
    desk = Desk()
    desk.settle(0)
    other = UUID(int=77)
    desk.said(INTERVAL)
    desk.answer(2, {other: [0]})
    desk.cluster = picture({"t": 1}, {"t": other})
    desk.done(Change.REVOKED, partitions("t", 0))
    desk.done(Change.ASSIGNED, partitions("t", 0))
    assert owned_in(desk.said()) == {other: {0}}


def test_another_subscription_is_told_at_once_and_a_pattern_takes_back_the_names():
    desk = Desk()
    desk.settle(0)
    desk.subscribe("t")
    assert desk.poll() == [], "nothing new"
    desk.subscribe("t", "u")
    said = desk.said()
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("t", "u"), None)
    desk.answer(1)
    desk.subscribe(regex="t.*")
    said = desk.said()
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == ((), "t.*")
    assert desk.requests[0].at_least == 1
    desk.answer(1)
    desk.subscribe("t")
    said = desk.said()
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("t",), "")


def test_a_subscription_that_changes_while_an_answer_is_awaited_is_told_after_it():
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    desk.subscribe("t", "u")
    assert desk.poll() == []
    desk.answer(1, {})
    assert desk.said().subscribed_topic_names == ("t", "u")


def test_static_members_say_who_they_are_each_time_and_leave_with_minus_two():
    desk = Desk(group_instance_id="i1")
    desk.settle(0)
    assert desk.said(INTERVAL).instance_id == "i1"
    desk.answer(1)
    desk.leave()
    said = desk.said()
    assert (said.member_epoch, said.instance_id, said.topic_partitions) == (-2, "i1", None)


def test_leaving_is_said_at_once_and_known_when_answered():
    desk = Desk()
    desk.settle(0)
    desk.said(INTERVAL)
    desk.leave()
    assert (desk.member.owned, desk.member.identity) == (frozenset(), None)
    assert desk.said().member_epoch == -1, "though an answer is still awaited"
    assert desk.poll() == []
    desk.answer(9, {T: [0, 1]})
    assert (desk.left, desk.steps[1:]) == (0, []), "the old conversation is over"
    desk.answer(-1)
    assert (desk.left, desk.member.state) == (1, MemberState.UNSUBSCRIBED)
    assert desk.poll() == []


def test_leaving_ends_when_the_coordinator_is_gone_or_nobody_is_to_be_told():
    desk = Desk()
    desk.leave()
    assert desk.left == 1
    desk.subscribe("t")
    desk.leave()
    assert (desk.left, desk.member.state) == (2, MemberState.UNSUBSCRIBED), "nothing was said yet"
    desk.settle(0)
    desk.node = None
    desk.leave()
    assert desk.left == 2
    assert desk.poll() == []
    assert desk.left == 3


def test_leaving_is_said_when_a_coordinator_that_is_being_looked_for_is_found():
    desk = Desk()
    desk.settle(0)
    node, desk.node, desk.is_looking = desk.node, None, True
    desk.leave()
    assert (desk.poll(), desk.left) == ([], 0)
    desk.node = node
    assert desk.said().member_epoch == -1
    desk.answer(-1)
    assert desk.left == 1


def test_subscribing_while_leaving_joins_afterwards():
    desk = Desk()
    desk.settle(0)
    member_id = desk.member.identity.member_id
    desk.leave()
    desk.said()
    desk.subscribe("t")
    assert desk.poll() == []
    desk.answer(-1)
    said = desk.said()
    assert (said.member_epoch, said.member_id, said.topic_partitions) == (0, member_id, ())
    assert desk.left == 1


def test_an_absent_application_is_left_behind_and_loses_what_it_owned_when_it_polls():
    desk = Desk()
    desk.settle(0, 1)
    desk.poll_activity.is_polling, desk.poll_activity.last = False, 10.0
    for beat in range(1, 62):
        assert desk.said(beat * INTERVAL).member_epoch == 1
        desk.answer(1)
    assert desk.wait <= 10 + MAX_POLL - desk.now
    assert desk.said(10 + MAX_POLL).member_epoch == -1
    assert (desk.member.state, desk.member.identity) == (MemberState.STALE, None)
    assert desk.poll(400.0) == []
    assert desk.wait < 5
    assert len(desk.steps) == 1
    desk.poll_activity.last = 401.0
    assert desk.poll(401.0) == []
    desk.done(Change.LOST, partitions("t", 0, 1))
    said = desk.said()
    assert (said.member_epoch, said.topic_partitions) == (0, ())


def test_an_absent_application_that_owns_nothing_just_joins_again():
    desk = Desk(group_instance_id="i1")
    desk.settle()
    desk.poll_activity.is_polling = False
    assert desk.said(MAX_POLL).member_epoch == -2
    desk.poll_activity.is_polling = True
    assert desk.said().member_epoch == 0
    assert len(desk.steps) == 1


def test_a_rebalance_cannot_be_forced():
    desk = Desk()
    desk.settle(0)
    desk.member.rejoin("because", desk.now)
    assert desk.poll() == []


def test_nothing_is_begun_with_while_a_list_without_it_is_under_way():
    desk = Desk()
    desk.cluster = picture({})
    desk.subscribe("t")
    desk.said()
    desk.answer(1, {T: [0, 1]})
    assert owned_in(desk.said()) == {}
    desk.cluster = picture({"t": 8})
    desk.poll()
    assert desk.steps == [], "who hears that we own nothing may give t-0 to another member"
    desk.fail(NetworkError("lost"))
    desk.poll()
    assert desk.steps == [], "and may have heard it"
    assert owned_in(desk.said(0.2)) == {}
    desk.answer(2, {T: [1]})
    desk.done(Change.ASSIGNED, partitions("t", 1))


def test_taking_back_a_pattern_is_said_again_when_that_was_lost():
    desk = Desk()
    desk.subscribe(regex="t.*")
    desk.said()
    desk.answer(1, {})
    desk.subscribe("t")
    desk.said()
    assert desk.requests[-1].build(1).subscribed_topic_regex == ""
    desk.fail(NetworkError("lost"))
    said = desk.said(0.2)
    assert (said.subscribed_topic_names, said.subscribed_topic_regex) == (("t",), "")


def test_two_topics_that_had_the_same_name_are_not_owned_at_once():
    desk = Desk()
    desk.settle(0)
    other = UUID(int=77)
    desk.cluster = picture({"t": 1}, {"t": other})
    desk.said(INTERVAL)
    desk.answer(2, {T: [0], other: [0]})
    assert len(desk.steps) == 1, "t-0 is owned, as a partition of the topic that was"
    desk.said()
    desk.answer(2, {other: [0]})
    desk.done(Change.REVOKED, partitions("t", 0))
    desk.done(Change.ASSIGNED, partitions("t", 0))
    assert owned_in(desk.said()) == {other: {0}}
