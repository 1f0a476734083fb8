"""A member under KIP-848 in trouble: coordinators that move, fencing, refusals, answers that make no sense."""

from __future__ import annotations

import pytest

from consumer_desk import INTERVAL, MAX_POLL, Desk, T, heartbeat_response, owned_in, partitions
from multilane.client.group.consumer_protocol import reconciliation
from multilane.client.group.consumer_protocol.heartbeat_timer import LONGEST_INTERVAL
from multilane.client.group.consumer_protocol.states import MemberState
from multilane.client.group.membership import HEARTBEAT_FRACTION, Change
from multilane.errors import (
    BrokerError,
    GroupError,
    GroupRefused,
    InstanceFenced,
    InstanceInUse,
    NetworkError,
    OperationTimeout,
    SaslError,
    UnsendableRequest,
    UnsupportedVersion,
    broker_error,
)
from multilane.types import NodeId

LOADING, UNAVAILABLE, NOT_COORDINATOR, UNKNOWN_MEMBER, FENCED_EPOCH = 14, 15, 16, 25, 110


def is_full(said):
    return (
        said.subscribed_topic_names == ("t",)
        and said.rebalance_timeout.total_seconds() == MAX_POLL
        and said.topic_partitions is not None
    )


@pytest.mark.parametrize(
    ("code", "forgets"), [(LOADING, False), (UNAVAILABLE, True), (NOT_COORDINATOR, True), (7, False)]
)
def test_a_coordinator_that_cannot_now_is_asked_again_with_everything(code, forgets):
    desk = Desk()
    desk.settle(0)
    desk.said(INTERVAL)
    now = INTERVAL
    for wait in (0.1, 0.2, 0.4):
        desk.answer(code=code)
        assert desk.poll() == []
        assert desk.wait == pytest.approx(wait)
        now += wait + 0.001
        said = desk.said(now)
        assert is_full(said)
        assert (said.member_epoch, owned_in(said)) == (1, {T: {0}})
    assert desk.forgotten == ([NodeId(1)] * 3 if forgets else [])
    desk.answer(1, {T: [0]})
    assert desk.poll() == []
    assert (desk.failures, desk.member.state, len(desk.steps)) == ([], MemberState.STABLE, 1)


@pytest.mark.parametrize("error", [NetworkError("lost"), OperationTimeout("late")])
def test_no_answer_forgets_the_coordinator_and_the_next_one_hears_everything(error):
    desk = Desk()
    desk.settle(0)
    desk.said(INTERVAL)
    desk.fail(error)
    assert desk.forgotten == [NodeId(1)]
    desk.node = None
    assert desk.poll(INTERVAL + 1) == []
    desk.node = NodeId(2)
    said = desk.said()
    assert is_full(said)
    assert desk.requests[0].node == 2
    assert desk.failures == []


def test_another_coordinator_hears_everything_though_nothing_failed():
    desk = Desk()
    desk.settle(0)
    desk.node = NodeId(3)
    assert is_full(desk.said(INTERVAL))


def test_an_acknowledgement_that_failed_is_said_again():
    desk = Desk()
    desk.settle(0, 1)
    desk.said(INTERVAL)
    desk.answer(1, {T: [0]})
    desk.done(Change.REVOKED, partitions("t", 1))
    desk.done(Change.ASSIGNED, frozenset())
    assert owned_in(desk.said()) == {T: {0}}
    desk.fail(NetworkError("lost"))
    assert desk.member.state is MemberState.ACKNOWLEDGING
    assert owned_in(desk.said(INTERVAL + 0.2)) == {T: {0}}
    desk.answer(2)
    assert desk.member.state is MemberState.STABLE


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, FENCED_EPOCH, 69])
def test_who_is_fenced_loses_everything_and_then_joins_again_with_the_same_id(code):
    desk = Desk()
    desk.settle(0, 1)
    member_id = desk.member.identity.member_id
    desk.said(INTERVAL)
    desk.answer(code=code)
    assert (desk.member.state, desk.member.identity) == (MemberState.FENCED, None)
    assert desk.member.owned == partitions("t", 0, 1)
    assert desk.poll() == [], "not before the application has let go"
    desk.done(Change.LOST, partitions("t", 0, 1))
    said = desk.said()
    assert (said.member_epoch, said.member_id, said.topic_partitions) == (0, member_id, ())
    desk.answer(7, {T: [1]})
    desk.done(Change.ASSIGNED, partitions("t", 1))


def test_fenced_in_the_middle_of_a_step_the_application_finishes_it_first():
    desk = Desk()
    desk.settle(0, 1)
    desk.said(INTERVAL)
    desk.answer(1, {T: [0]})
    desk.said(2 * INTERVAL)
    desk.answer(code=FENCED_EPOCH)
    assert desk.steps[-1].change is Change.REVOKED
    desk.done(Change.REVOKED, partitions("t", 1))
    desk.done(Change.LOST, partitions("t", 0))
    assert desk.said().member_epoch == 0


def test_fenced_while_beginning_the_new_ones_are_lost_too():
    desk = Desk()
    desk.settle(0)
    desk.said(INTERVAL)
    desk.answer(2, {T: [0, 1]})
    desk.said(2 * INTERVAL)
    desk.answer(code=UNKNOWN_MEMBER)
    desk.done(Change.ASSIGNED, partitions("t", 1))
    desk.done(Change.LOST, partitions("t", 0, 1))


def test_being_fenced_again_and_again_slows_down():
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    desk.answer(code=UNKNOWN_MEMBER)
    assert desk.said().member_epoch == 0, "the first time at once"
    for wait in (0.2, 0.4, 0.8, 1.0, 1.0):
        desk.answer(code=UNKNOWN_MEMBER)
        assert desk.poll() == []
        assert desk.wait == pytest.approx(wait)
        desk.said(desk.now + wait)
    assert desk.steps == []


def test_a_commit_may_tell_that_we_are_fenced():
    desk = Desk()
    desk.settle(0)
    desk.said(INTERVAL)
    desk.member.fenced(broker_error(UNKNOWN_MEMBER), desk.now)
    desk.answer(1, {T: [0, 1]})
    desk.done(Change.LOST, partitions("t", 0))
    desk.member.fenced(broker_error(UNKNOWN_MEMBER), desk.now)
    assert desk.said().member_epoch == 0, "told once, joined once; an answer to before means nothing"
    assert desk.member.state is MemberState.JOINING


def test_a_commit_may_tell_that_our_instance_is_someone_else():
    desk = Desk(group_instance_id="i1")
    desk.settle(0)
    error = InstanceFenced("taken over")
    desk.member.fenced(error, desk.now)
    assert (desk.failures, desk.member.state) == ([error], MemberState.FATAL)
    desk.done(Change.LOST, partitions("t", 0))
    assert desk.poll(100.0) == []


@pytest.mark.parametrize(
    ("code", "kind", "advice"),
    [
        (111, InstanceInUse, "give each member its own"),
        (82, InstanceFenced, "give each its own"),
        (112, GroupRefused, "group.remote.assignor"),
        (42, GroupRefused, "group.protocol=classic"),
        (81, GroupRefused, "group.consumer.max.size"),
        (128, GroupRefused, "RE2/J"),
        (30, GroupRefused, "grant this user Read"),
        (69, GroupRefused, "group.consumer.migration.policy"),
        (24, GroupRefused, "group.id"),
        (-1, GroupRefused, "the broker's log"),
        (31, GroupRefused, "the broker's log"),
    ],
)
def test_what_is_refused_for_good_is_told_with_what_to_do(code, kind, advice):
    desk = Desk(group_instance_id="i1")
    desk.subscribe("t")
    desk.said()
    desk.answer(code=code)
    (error,) = desk.failures
    assert type(error) is kind
    assert error.fatal
    assert advice in str(error)
    assert "group g" in str(error)
    assert desk.poll(100.0) == []
    assert (desk.member.state, desk.unsupported, desk.steps) == (MemberState.FATAL, [], [])
    desk.subscribe("t", "u")
    assert desk.failures == [error, error], "it is not forgotten by subscribing"
    desk.leave()
    assert desk.left == 1
    desk.subscribe("t")
    assert desk.said().member_epoch == 0, "whoever leaves may try anew"


def test_refused_with_partitions_in_hand_they_are_lost():
    desk = Desk()
    desk.settle(0)
    desk.said(INTERVAL)
    desk.answer(code=30)
    desk.done(Change.LOST, partitions("t", 0))
    assert (desk.member.owned, desk.member.state) == (frozenset(), MemberState.FATAL)
    assert desk.poll(100.0) == []
    assert len(desk.steps) == 2


def test_topics_that_may_not_be_seen_are_told_and_asked_for_again():
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    desk.answer(code=29)
    (error,) = desk.failures
    assert isinstance(error, GroupError)
    assert not error.fatal
    assert "Describe" in str(error)
    assert desk.said(0.11).member_epoch == 0
    desk.answer(1, {T: [0]})
    assert desk.steps


@pytest.mark.parametrize("by", ["broker", "negotiation"])
def test_a_protocol_that_is_not_offered_is_told_apart(by):
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    if by == "broker":
        desk.answer(code=35)
    else:
        desk.fail(UnsupportedVersion("no version in common"))
    (error,) = desk.unsupported
    assert isinstance(error, GroupRefused)
    assert "group.protocol=classic" in str(error)
    assert (desk.failures, desk.member.state, desk.poll(9.0)) == ([], MemberState.FATAL, [])


@pytest.mark.parametrize("is_in_step", [False, True])
def test_before_another_protocol_is_used_everything_is_given_up(is_in_step):
    """The coordinator has moved to a broker that is older than the one we joined at."""
    desk = Desk()
    desk.settle(0, 1)
    desk.said(INTERVAL)
    desk.answer(2, {T: [0, 1, 2]} if is_in_step else None)
    if is_in_step:
        added = desk.steps[-1]
        assert added.change is Change.ASSIGNED
    desk.said(2 * INTERVAL)
    desk.answer(code=35)
    assert (desk.unsupported, desk.member.refusal, desk.member.identity) == ([], None, None)
    desk.subscribe("t", "u")  # is for the protocol to come
    if is_in_step:
        desk.done(Change.ASSIGNED, partitions("t", 2))
        assert desk.unsupported == []
    desk.done(Change.LOST, partitions("t", *((0, 1, 2) if is_in_step else (0, 1))))
    assert len(desk.unsupported) == 1
    assert desk.member.owned == frozenset()
    assert desk.failures == []


def test_a_refusal_stands_until_the_member_leaves():
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    desk.answer(code=81)
    assert desk.member.refusal is desk.failures[0]
    desk.leave()
    assert (desk.member.refusal, desk.left) == (None, 1)


def test_a_pattern_that_the_brokers_cannot_match_is_not_a_missing_protocol():
    desk = Desk()
    desk.subscribe(regex="t.*")
    desk.said()
    desk.fail(UnsupportedVersion("no version in common"))
    (error,) = desk.failures
    assert "Python pattern" in str(error)
    assert desk.unsupported == []


def test_a_login_that_is_refused_is_told_and_tried_again():
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    error = SaslError("wrong password")
    desk.fail(error)
    assert desk.failures == [error]
    assert desk.said(0.11).member_epoch == 0


def test_what_cannot_be_sent_is_final():
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    desk.fail(UnsendableRequest("too long"))
    assert desk.member.state is MemberState.FATAL
    assert desk.failures


# --- answers that make no sense --------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, -1, 2])
def test_an_epoch_that_goes_back_is_ignored_and_asked_about_again(epoch):
    desk = Desk()
    desk.settle(0, epoch=3)
    desk.said(INTERVAL)
    desk.answer(epoch, {T: []})
    assert desk.member.identity.epoch == 3
    assert desk.poll() == []
    said = desk.said(INTERVAL + 0.11)
    assert is_full(said)
    assert said.member_epoch == 3
    assert len(desk.steps) == 1


@pytest.mark.parametrize(
    ("sent", "kept"), [(-5.0, INTERVAL), (0.0, INTERVAL), (1e6, HEARTBEAT_FRACTION * LONGEST_INTERVAL)]
)
def test_an_interval_that_cannot_be_is_kept_in_bounds(sent, kept):
    desk = Desk()
    desk.settle(0)
    desk.said(INTERVAL)
    desk.answer(1, interval=sent)
    desk.said(2 * INTERVAL)
    desk.answer(1, interval=sent)
    desk.poll()
    assert desk.wait == pytest.approx(kept)


def test_a_join_without_an_assignment_is_a_member_that_asks_again():
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    desk.answer(4)
    assert (desk.member.state, desk.steps) == (MemberState.STABLE, [])
    said = desk.said(INTERVAL)
    assert is_full(said)
    assert said.member_epoch == 4
    desk.answer(4, {T: [0]})
    desk.done(Change.ASSIGNED, partitions("t", 0))


def test_partitions_that_cannot_be_are_left_out():
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    desk.answer(1, {None: [0], T: [-1, 0, 0, 1]})
    desk.done(Change.ASSIGNED, partitions("t", 0, 1))


def test_an_assignment_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(reconciliation, "MOST_PARTITIONS", 100)
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    desk.answer(1, {T: range(101)})
    assert (desk.member.state, desk.steps) == (MemberState.JOINING, [])
    assert desk.said(0.11).member_epoch == 0


def test_a_member_id_of_the_broker_is_taken():
    desk = Desk()
    desk.subscribe("t")
    desk.said(version=0)
    desk.answer(1, {}, member_id="from-the-broker")
    assert desk.member.identity.member_id == "from-the-broker"


def test_an_unknown_code_is_final_and_named():
    desk = Desk()
    desk.subscribe("t")
    desk.said()
    response = heartbeat_response()
    object.__setattr__(response, "error_code", 9_999)
    desk.requests.pop().on_response(response, 0.0)
    assert "9999" in str(desk.failures[0])
    assert not isinstance(desk.failures[0], BrokerError)


def test_an_application_that_goes_away_in_a_step_finishes_it_before_it_loses_the_rest():
    desk = Desk()
    desk.settle(0, 1)
    desk.said(INTERVAL)
    desk.answer(1, {T: [0]})
    desk.poll_activity.is_polling, desk.poll_activity.last = False, INTERVAL
    desk.node = None
    assert desk.poll(INTERVAL + MAX_POLL) == [], "nobody to tell, but stale"
    assert desk.member.state is MemberState.STALE
    desk.poll_activity.is_polling = True
    desk.poll()
    desk.done(Change.REVOKED, partitions("t", 1))
    desk.done(Change.LOST, partitions("t", 0))
    desk.node = NodeId(1)
    assert desk.said().member_epoch == 0
