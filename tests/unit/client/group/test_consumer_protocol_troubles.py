"""A member under KIP-848 in trouble: coordinators that move, fencing, refusals, answers that make no sense."""

from __future__ import annotations

import pytest

from consumer_harness import INTERVAL, MAX_POLL, Harness, T, heartbeat_response, owned_in, partitions
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
    harness = Harness()
    harness.settle(0)
    harness.said(INTERVAL)
    now = INTERVAL
    for wait in (0.1, 0.2, 0.4):
        harness.answer(code=code)
        assert harness.poll() == []
        assert harness.wait == pytest.approx(wait)
        now += wait + 0.001
        said = harness.said(now)
        assert is_full(said)
        assert (said.member_epoch, owned_in(said)) == (1, {T: {0}})
    assert harness.forgotten == ([NodeId(1)] * 3 if forgets else [])
    harness.answer(1, {T: [0]})
    assert harness.poll() == []
    assert (harness.failures, harness.member.state, len(harness.steps)) == ([], MemberState.STABLE, 1)


@pytest.mark.parametrize("error", [NetworkError("lost"), OperationTimeout("late")])
def test_no_answer_forgets_the_coordinator_and_the_next_one_hears_everything(error):
    harness = Harness()
    harness.settle(0)
    harness.said(INTERVAL)
    harness.fail(error)
    assert harness.forgotten == [NodeId(1)]
    harness.node = None
    assert harness.poll(INTERVAL + 1) == []
    harness.node = NodeId(2)
    said = harness.said()
    assert is_full(said)
    assert harness.requests[0].node == 2
    assert harness.failures == []


def test_another_coordinator_hears_everything_though_nothing_failed():
    harness = Harness()
    harness.settle(0)
    harness.node = NodeId(3)
    assert is_full(harness.said(INTERVAL))


def test_an_acknowledgement_that_failed_is_said_again():
    harness = Harness()
    harness.settle(0, 1)
    harness.said(INTERVAL)
    harness.answer(1, {T: [0]})
    harness.done(Change.REVOKED, partitions("t", 1))
    harness.done(Change.ASSIGNED, frozenset())
    assert owned_in(harness.said()) == {T: {0}}
    harness.fail(NetworkError("lost"))
    assert harness.member.state is MemberState.ACKNOWLEDGING
    assert owned_in(harness.said(INTERVAL + 0.2)) == {T: {0}}
    harness.answer(2)
    assert harness.member.state is MemberState.STABLE


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, FENCED_EPOCH, 69])
def test_who_is_fenced_loses_everything_and_then_joins_again_with_the_same_id(code):
    harness = Harness()
    harness.settle(0, 1)
    member_id = harness.member.identity.member_id
    harness.said(INTERVAL)
    harness.answer(code=code)
    assert (harness.member.state, harness.member.identity) == (MemberState.FENCED, None)
    assert harness.member.owned == partitions("t", 0, 1)
    assert harness.poll() == [], "not before the application has let go"
    harness.done(Change.LOST, partitions("t", 0, 1))
    said = harness.said()
    assert (said.member_epoch, said.member_id, said.topic_partitions) == (0, member_id, ())
    harness.answer(7, {T: [1]})
    harness.done(Change.ASSIGNED, partitions("t", 1))


def test_fenced_in_the_middle_of_a_step_the_application_finishes_it_first():
    harness = Harness()
    harness.settle(0, 1)
    harness.said(INTERVAL)
    harness.answer(1, {T: [0]})
    harness.said(2 * INTERVAL)
    harness.answer(code=FENCED_EPOCH)
    assert harness.steps[-1].change is Change.REVOKED
    harness.done(Change.REVOKED, partitions("t", 1))
    harness.done(Change.LOST, partitions("t", 0))
    assert harness.said().member_epoch == 0


def test_fenced_while_beginning_the_new_ones_are_lost_too():
    harness = Harness()
    harness.settle(0)
    harness.said(INTERVAL)
    harness.answer(2, {T: [0, 1]})
    harness.said(2 * INTERVAL)
    harness.answer(code=UNKNOWN_MEMBER)
    harness.done(Change.ASSIGNED, partitions("t", 1))
    harness.done(Change.LOST, partitions("t", 0, 1))


def test_being_fenced_again_and_again_slows_down():
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    harness.answer(code=UNKNOWN_MEMBER)
    assert harness.said().member_epoch == 0, "the first time at once"
    for wait in (0.2, 0.4, 0.8, 1.0, 1.0):
        harness.answer(code=UNKNOWN_MEMBER)
        assert harness.poll() == []
        assert harness.wait == pytest.approx(wait)
        harness.said(harness.now + wait)
    assert harness.steps == []


def test_a_commit_may_tell_that_we_are_fenced():
    harness = Harness()
    harness.settle(0)
    harness.said(INTERVAL)
    harness.member.fenced(broker_error(UNKNOWN_MEMBER), harness.now)
    harness.answer(1, {T: [0, 1]})
    harness.done(Change.LOST, partitions("t", 0))
    harness.member.fenced(broker_error(UNKNOWN_MEMBER), harness.now)
    assert harness.said().member_epoch == 0, "told once, joined once; an answer to before means nothing"
    assert harness.member.state is MemberState.JOINING


def test_a_commit_may_tell_that_our_instance_is_someone_else():
    harness = Harness(group_instance_id="i1")
    harness.settle(0)
    error = InstanceFenced("taken over")
    harness.member.fenced(error, harness.now)
    assert (harness.failures, harness.member.state) == ([error], MemberState.FATAL)
    harness.done(Change.LOST, partitions("t", 0))
    assert harness.poll(100.0) == []


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
def test_what_is_refused_for_good_is_reported_with_what_to_do(code, kind, advice):
    harness = Harness(group_instance_id="i1")
    harness.subscribe("t")
    harness.said()
    harness.answer(code=code)
    (error,) = harness.failures
    assert type(error) is kind
    assert error.fatal
    assert advice in str(error)
    assert "group g" in str(error)
    assert harness.poll(100.0) == []
    assert (harness.member.state, harness.unsupported, harness.steps) == (MemberState.FATAL, [], [])
    harness.subscribe("t", "u")
    assert harness.failures == [error, error], "it is not forgotten by subscribing"
    harness.leave()
    assert harness.left == 1
    harness.subscribe("t")
    assert harness.said().member_epoch == 0, "whoever leaves may try anew"


def test_refused_with_partitions_in_hand_they_are_lost():
    harness = Harness()
    harness.settle(0)
    harness.said(INTERVAL)
    harness.answer(code=30)
    harness.done(Change.LOST, partitions("t", 0))
    assert (harness.member.owned, harness.member.state) == (frozenset(), MemberState.FATAL)
    assert harness.poll(100.0) == []
    assert len(harness.steps) == 2


def test_topics_that_may_not_be_seen_are_reported_and_asked_for_again():
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    harness.answer(code=29)
    (error,) = harness.failures
    assert isinstance(error, GroupError)
    assert not error.fatal
    assert "Describe" in str(error)
    assert harness.said(0.11).member_epoch == 0
    harness.answer(1, {T: [0]})
    assert harness.steps


@pytest.mark.parametrize("by", ["broker", "negotiation"])
def test_a_protocol_that_is_not_offered_is_distinguished(by):
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    if by == "broker":
        harness.answer(code=35)
    else:
        harness.fail(UnsupportedVersion("no version in common"))
    (error,) = harness.unsupported
    assert isinstance(error, GroupRefused)
    assert "group.protocol=classic" in str(error)
    assert (harness.failures, harness.member.state, harness.poll(9.0)) == ([], MemberState.FATAL, [])


@pytest.mark.parametrize("is_in_step", [False, True])
def test_before_another_protocol_is_used_everything_is_given_up(is_in_step):
    """The coordinator has moved to a broker that is older than the one we joined at."""
    harness = Harness()
    harness.settle(0, 1)
    harness.said(INTERVAL)
    harness.answer(2, {T: [0, 1, 2]} if is_in_step else None)
    if is_in_step:
        added = harness.steps[-1]
        assert added.change is Change.ASSIGNED
    harness.said(2 * INTERVAL)
    harness.answer(code=35)
    assert (harness.unsupported, harness.member.refusal, harness.member.identity) == ([], None, None)
    harness.subscribe("t", "u")  # is for the protocol to come
    if is_in_step:
        harness.done(Change.ASSIGNED, partitions("t", 2))
        assert harness.unsupported == []
    harness.done(Change.LOST, partitions("t", *((0, 1, 2) if is_in_step else (0, 1))))
    assert len(harness.unsupported) == 1
    assert harness.member.owned == frozenset()
    assert harness.failures == []


def test_a_refusal_stands_until_the_member_leaves():
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    harness.answer(code=81)
    assert harness.member.refusal is harness.failures[0]
    harness.leave()
    assert (harness.member.refusal, harness.left) == (None, 1)


def test_a_pattern_that_the_brokers_cannot_match_is_not_a_missing_protocol():
    harness = Harness()
    harness.subscribe(regex="t.*")
    harness.said()
    harness.fail(UnsupportedVersion("no version in common"))
    (error,) = harness.failures
    assert "Python pattern" in str(error)
    assert harness.unsupported == []


def test_a_login_that_is_refused_is_reported_and_retried():
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    error = SaslError("wrong password")
    harness.fail(error)
    assert harness.failures == [error]
    assert harness.said(0.11).member_epoch == 0


def test_what_cannot_be_sent_is_final():
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    harness.fail(UnsendableRequest("too long"))
    assert harness.member.state is MemberState.FATAL
    assert harness.failures


# --- answers that make no sense --------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [0, -1, 2])
def test_an_epoch_that_goes_back_is_ignored_and_asked_about_again(epoch):
    harness = Harness()
    harness.settle(0, epoch=3)
    harness.said(INTERVAL)
    harness.answer(epoch, {T: []})
    assert harness.member.identity.epoch == 3
    assert harness.poll() == []
    said = harness.said(INTERVAL + 0.11)
    assert is_full(said)
    assert said.member_epoch == 3
    assert len(harness.steps) == 1


@pytest.mark.parametrize(
    ("sent", "kept"), [(-5.0, INTERVAL), (0.0, INTERVAL), (1e6, HEARTBEAT_FRACTION * LONGEST_INTERVAL)]
)
def test_an_interval_that_cannot_be_is_kept_in_bounds(sent, kept):
    harness = Harness()
    harness.settle(0)
    harness.said(INTERVAL)
    harness.answer(1, interval=sent)
    harness.said(2 * INTERVAL)
    harness.answer(1, interval=sent)
    harness.poll()
    assert harness.wait == pytest.approx(kept)


def test_a_join_without_an_assignment_is_a_member_that_asks_again():
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    harness.answer(4)
    assert (harness.member.state, harness.steps) == (MemberState.STABLE, [])
    said = harness.said(INTERVAL)
    assert is_full(said)
    assert said.member_epoch == 4
    harness.answer(4, {T: [0]})
    harness.done(Change.ASSIGNED, partitions("t", 0))


def test_partitions_that_cannot_be_are_left_out():
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    harness.answer(1, {None: [0], T: [-1, 0, 0, 1]})
    harness.done(Change.ASSIGNED, partitions("t", 0, 1))


def test_an_assignment_without_end_is_refused(monkeypatch):
    monkeypatch.setattr(reconciliation, "MOST_PARTITIONS", 100)
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    harness.answer(1, {T: range(101)})
    assert (harness.member.state, harness.steps) == (MemberState.JOINING, [])
    assert harness.said(0.11).member_epoch == 0


def test_a_member_id_of_the_broker_is_taken():
    harness = Harness()
    harness.subscribe("t")
    harness.said(version=0)
    harness.answer(1, {}, member_id="from-the-broker")
    assert harness.member.identity.member_id == "from-the-broker"


def test_an_unknown_code_is_final_and_named():
    harness = Harness()
    harness.subscribe("t")
    harness.said()
    response = heartbeat_response()
    object.__setattr__(response, "error_code", 9_999)
    harness.requests.pop().on_response(response, 0.0)
    assert "9999" in str(harness.failures[0])
    assert not isinstance(harness.failures[0], BrokerError)


def test_an_application_that_goes_away_in_a_step_finishes_it_before_it_loses_the_rest():
    harness = Harness()
    harness.settle(0, 1)
    harness.said(INTERVAL)
    harness.answer(1, {T: [0]})
    harness.poll_activity.is_polling, harness.poll_activity.last = False, INTERVAL
    harness.node = None
    assert harness.poll(INTERVAL + MAX_POLL) == [], "nobody to tell, but stale"
    assert harness.member.state is MemberState.STALE
    harness.poll_activity.is_polling = True
    harness.poll()
    harness.done(Change.REVOKED, partitions("t", 1))
    harness.done(Change.LOST, partitions("t", 0))
    harness.node = NodeId(1)
    assert harness.said().member_epoch == 0
