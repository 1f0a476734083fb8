"""What goes wrong in a classic group: fencing, refusals, lost answers, an application that is away, leaving."""

from __future__ import annotations

from itertools import pairwise

import pytest

from classic_harness import HEARTBEAT, MAX_POLL, Harness, metadata_of, partitions, response
from multilane.client.group.classic import ClassicState
from multilane.client.group.membership import Change, Subscription
from multilane.client.net.requests import NEVER
from multilane.errors import (
    BrokerError,
    FrameError,
    GroupError,
    GroupRefused,
    InstanceFenced,
    NetworkError,
    OperationTimeout,
    SaslError,
    UnknownBrokerCode,
    UnsupportedVersion,
    broker_error,
)
from multilane.types import NodeId, TopicPartition
from multilane.wire.messages import ApiKey

JOIN, SYNC, BEAT, LEAVE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
ALL = partitions("t", 0, 1, 2, 3)
COOPERATIVE = "cooperative-sticky"
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE, MEMBER_ID_REQUIRED, FENCED_INSTANCE = 22, 25, 27, 79, 82
REFUSALS = {
    23: "partition.assignment.strategy (range)",
    24: "another group.id",
    26: "session.timeout.ms (45000 ms)",
    30: "grant READ",
    81: "group.max.size",
}


def stable(*strategy: str, instance: str | None = None) -> Harness:
    harness = Harness(*strategy, instance=instance)
    harness.settle(ALL, protocol=strategy[0] if strategy else "range")
    return harness


# --- fencing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "member_id"), [(ILLEGAL_GENERATION, "m1"), (UNKNOWN_MEMBER, "")])
def test_a_fenced_member_loses_everything_and_then_joins_anew(code, member_id):
    harness = stable()
    harness.now = 10.0
    harness.answer(BEAT, error_code=code)
    assert harness.member.identity is None
    assert harness.step(Change.LOST, ALL).deadline == 10.0 + MAX_POLL
    assert harness.none_sent(JOIN, 5.0)
    assert harness.none_sent(BEAT)
    harness.done(Change.LOST, ALL)
    _, said = harness.sent(JOIN)
    assert said.member_id == member_id
    assert harness.counts.total("group.lost") == 4


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, UNKNOWN_MEMBER])
def test_fenced_while_revoking_the_step_is_finished_first(code):
    harness = stable()
    harness.now = 10.0
    harness.answer(BEAT, error_code=REBALANCE)
    harness.poll()
    harness.now = 20.0
    harness.answer(BEAT, error_code=code)
    assert harness.state is ClassicState.LOSING
    harness.done(Change.REVOKED, ALL)  # eager: nothing is left that could be lost
    assert harness.state is ClassicState.JOINING
    assert [s.change for s in harness.steps] == [Change.ASSIGNED, Change.REVOKED]


def test_fenced_while_reconciling_what_is_left_is_lost_after_the_step():
    harness = stable(COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    harness.join(generation=2, protocol=COOPERATIVE)
    harness.sync(partitions("t", 0, 1))
    harness.now = 20.0
    harness.answer(BEAT, error_code=UNKNOWN_MEMBER)
    assert harness.step(Change.REVOKED, partitions("t", 2, 3))
    harness.done(Change.REVOKED, partitions("t", 2, 3))
    assert harness.none_sent(JOIN, 1.0)
    harness.done(Change.LOST, partitions("t", 0, 1))
    harness.sent(JOIN)


def test_fenced_while_beginning_all_of_it_is_lost_after_the_step():
    harness = Harness()
    harness.subscribe()
    harness.join()
    harness.sync(ALL)
    harness.now = 5.0
    harness.answer(BEAT, error_code=UNKNOWN_MEMBER)
    harness.done(Change.ASSIGNED, ALL)
    harness.done(Change.LOST, ALL)
    harness.sent(JOIN)


def test_cooperative_an_unknown_member_loses_what_it_kept():
    harness = stable(COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    harness.answer(JOIN, error_code=UNKNOWN_MEMBER)
    harness.done(Change.LOST, ALL)
    _, said = harness.sent(JOIN)
    assert said.member_id == ""


def test_fenced_during_the_sync_whose_answer_is_not_waited_for():
    harness = stable(COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    harness.join(generation=2, protocol=COOPERATIVE)
    waiting, _ = harness.sent(SYNC)
    harness.now += HEARTBEAT
    harness.answer(BEAT, error_code=UNKNOWN_MEMBER)
    hung_up = len(harness.hung_up)
    harness.done(Change.LOST, ALL)
    harness.sent(JOIN)
    assert len(harness.hung_up) == hung_up + 1  # else the JoinGroup would wait behind the SyncGroup
    waiting.on_response(response(SYNC), harness.now)  # too late
    assert harness.state is ClassicState.JOINING


def test_a_late_heartbeat_answer_of_an_older_generation_means_nothing():
    harness = stable()
    beat, _ = harness.sent(BEAT, HEARTBEAT)
    harness.open.remove(beat)
    harness.member.rejoin("test", harness.now)
    harness.poll()
    harness.done(Change.REVOKED, ALL)
    harness.poll()
    beat.on_response(response(BEAT, error_code=ILLEGAL_GENERATION), harness.now)
    assert harness.state is ClassicState.JOINING
    harness.join(generation=2)
    beat.on_response(response(BEAT, error_code=ILLEGAL_GENERATION), harness.now)
    assert harness.state is ClassicState.SYNCING
    assert harness.member.identity.epoch == 2


def test_a_commit_that_was_refused_makes_the_coordinator_be_asked_at_once():
    harness = stable()
    assert harness.none_sent(BEAT)
    harness.member.fenced(broker_error(ILLEGAL_GENERATION), harness.now)
    harness.sent(BEAT)
    harness.answer(BEAT, error_code=ILLEGAL_GENERATION)
    harness.done(Change.LOST, ALL)


def test_a_commit_that_was_overtaken_by_a_join_loses_nothing():
    harness = stable(COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    harness.poll()
    harness.member.fenced(broker_error(ILLEGAL_GENERATION), harness.now)
    assert harness.none_sent(BEAT)
    harness.join(generation=2, protocol=COOPERATIVE)
    harness.sync(ALL)
    harness.done(Change.ASSIGNED, frozenset())
    assert harness.member.owned == ALL


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_is_reported_once_with_what_to_do(code):
    harness = Harness()
    harness.subscribe()
    harness.answer(JOIN, error_code=code)
    (error,) = harness.errors
    assert isinstance(error, GroupRefused)
    assert REFUSALS[code] in str(error)
    assert harness.state is ClassicState.FAILED
    assert harness.poll(100.0) == []
    harness.subscribe("u")
    assert harness.poll(100.0) == []
    assert len(harness.errors) == 1


def test_a_member_that_is_refused_loses_everything_and_leaves():
    harness = stable()
    harness.now = 10.0
    harness.answer(BEAT, error_code=30)
    assert isinstance(harness.errors[0], GroupRefused)
    _, said = harness.sent(LEAVE)
    assert said.members[0].member_id == "m1"
    harness.done(Change.LOST, ALL)
    assert harness.state is ClassicState.FAILED
    assert harness.none_sent(JOIN, 10.0)


@pytest.mark.parametrize("api", [JOIN, SYNC, BEAT])
def test_a_fenced_instance_does_not_fight_back(api):
    harness = stable(COOPERATIVE, instance="i1")
    harness.now = 10.0
    if api is not BEAT:
        harness.member.rejoin("test", harness.now)
    if api is SYNC:
        harness.join(generation=2, protocol=COOPERATIVE)
    harness.answer(api, error_code=FENCED_INSTANCE)
    (error,) = harness.errors
    assert isinstance(error, InstanceFenced)
    assert "i1" in str(error)
    harness.done(Change.LOST, ALL)
    assert harness.state is ClassicState.FAILED
    harness.subscribe("u")
    assert harness.poll(100.0) == []


def test_a_failed_member_can_leave_and_start_again():
    harness = Harness()
    harness.subscribe()
    harness.answer(JOIN, error_code=30)
    left = []
    harness.member.leave(lambda: left.append(True), harness.now)
    assert left == [True]
    harness.subscribe()
    harness.sent(JOIN, 1.0)


@pytest.mark.parametrize("code", [-1, 42])
def test_an_error_that_nobody_expects_is_loud(code):
    harness = Harness()
    harness.subscribe()
    harness.answer(JOIN, error_code=code)
    (error,) = harness.errors
    assert isinstance(error, BrokerError)
    assert "JOIN_GROUP of group g" in str(error)
    assert harness.state is ClassicState.FAILED


@pytest.mark.parametrize("error", [UnknownBrokerCode(999), UnsupportedVersion("too old")])
def test_a_request_that_can_never_succeed_is_loud(error):
    harness = Harness()
    harness.subscribe()
    harness.fail(JOIN, error)
    assert harness.errors == [error]
    assert harness.state is ClassicState.FAILED


def test_a_refused_login_is_reported_once_and_retried():
    harness = stable()
    for n in range(3):
        harness.sent(BEAT, HEARTBEAT + n)
        harness.fail(BEAT, SaslError("no"))
    assert len(harness.errors) == 1
    assert harness.member.owned == ALL
    harness.sent(BEAT, 2.0)
    harness.answer(BEAT)
    harness.sent(BEAT, HEARTBEAT)
    harness.fail(BEAT, SaslError("no"))
    assert len(harness.errors) == 2


def test_a_pattern_for_the_broker_is_refused():
    harness = Harness()
    harness.member.subscribe(Subscription(regex="t.*"), 0.0)
    harness.poll()
    assert isinstance(harness.errors[0], GroupRefused)
    assert "group.protocol=consumer" in str(harness.errors[0])


# --- what passes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR])
@pytest.mark.parametrize("api", [JOIN, SYNC, BEAT])
def test_a_coordinator_that_is_none_is_forgotten_and_the_member_keeps_its_name(api, code):
    harness = stable(COOPERATIVE)
    harness.now = 10.0
    if api is not BEAT:
        harness.member.rejoin("test", harness.now)
    if api is SYNC:
        harness.join(generation=2, protocol=COOPERATIVE)
    harness.coordinators.forgotten.clear()
    harness.answer(api, error_code=code)
    assert harness.coordinators.forgotten == [1]
    harness.coordinators.node = None
    assert harness.none_sent(api, 5.0)
    harness.coordinators.node = 2
    again = JOIN if api is SYNC else api
    request, said = harness.sent(again, 1.0)
    assert (request.node, said.member_id) == (2, "m1")
    assert harness.member.owned == ALL
    assert len(harness.steps) == 1


@pytest.mark.parametrize("error", [NetworkError("gone"), OperationTimeout("late"), FrameError("broken")])
def test_a_lost_join_is_repeated_after_a_while(error):
    harness = Harness()
    harness.subscribe()
    for expected in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        harness.fail(JOIN, error)
        assert harness.none_sent(JOIN)
        assert harness.wait == pytest.approx(expected)
        harness.sent(JOIN, expected)


def test_heartbeats_that_fail_leave_the_partitions_where_they_are():
    harness = stable()
    for _ in range(100):
        harness.sent(BEAT, HEARTBEAT)
        harness.fail(BEAT, OperationTimeout("late"))
    assert harness.member.owned == ALL
    assert harness.state is ClassicState.STABLE
    harness.sent(BEAT, 1.0)
    harness.answer(BEAT)
    assert harness.none_sent(BEAT, HEARTBEAT - 0.1)
    harness.sent(BEAT, 0.1)


def test_heartbeats_are_regular():
    harness = stable()
    times = []
    for _ in range(400):
        if not harness.none_sent(BEAT):
            times.append(round(harness.now, 2))
            harness.answer(BEAT)
        harness.now += 0.1
    gaps = {round(b - a, 1) for a, b in pairwise(times)}
    assert gaps <= {HEARTBEAT, round(HEARTBEAT + 0.1, 1)}
    assert len(times) >= 12


# --- hostile answers -------------------------------------------------------------------------------------------------


def test_ids_that_are_never_good_enough_do_not_make_us_run_in_circles():
    harness = Harness()
    harness.subscribe()
    asked = 0
    while harness.now < 60.0:
        harness.poll()
        for request in [r for r in harness.open if r.api is JOIN]:
            asked += 1
            harness.open.remove(request)
            request.on_response(response(JOIN, error_code=MEMBER_ID_REQUIRED, member_id=f"m{asked}"), harness.now)
        harness.now += 0.05
    assert 10 < asked < 150


def test_an_id_that_is_asked_for_but_not_given():
    harness = Harness()
    harness.subscribe()
    harness.answer(JOIN, error_code=MEMBER_ID_REQUIRED, member_id="")
    assert harness.none_sent(JOIN)
    _, said = harness.sent(JOIN, 0.1)
    assert said.member_id == ""


@pytest.mark.parametrize(
    "values",
    [
        {"protocol_name": "made up"},
        {"protocol_name": None},
        {"protocol_type": "connect"},
    ],
)
def test_a_group_that_speaks_of_something_else_is_refused(values):
    harness = Harness()
    harness.subscribe()
    harness.answer(JOIN, **values)
    assert isinstance(harness.errors[0], GroupRefused)
    assert harness.state is ClassicState.FAILED


@pytest.mark.parametrize("values", [{"protocol_name": "sticky"}, {"protocol_type": "connect"}])
def test_an_assignment_of_something_else_is_refused(values):
    harness = Harness()
    harness.subscribe()
    harness.join()
    harness.answer(SYNC, **values)
    assert isinstance(harness.errors[0], GroupRefused)


@pytest.mark.parametrize(
    "values",
    [
        {"generation_id": -1},
        {"member_id": "", "leader": "x"},
        {"leader": "m1", "members": []},
        {"leader": "m1", "members": [("m2", b"")]},
    ],
)
def test_a_join_that_makes_no_sense_is_repeated_and_then_reported(values):
    harness = Harness()
    harness.subscribe()
    for _ in range(4):
        assert harness.errors == []
        harness.sent(JOIN, 2.0)
        harness.answer(JOIN, **values)
    assert isinstance(harness.errors[0], GroupError)
    assert harness.state is ClassicState.FAILED


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\xc3"])
def test_an_assignment_that_cannot_be_read_is_asked_for_again_and_then_reported(data):
    harness = Harness()
    harness.subscribe()
    for _ in range(4):
        assert harness.errors == []
        harness.sent(JOIN, 2.0)
        harness.join()
        harness.answer(SYNC, assignment=data)
    assert isinstance(harness.errors[0], GroupError)
    assert harness.state is ClassicState.FAILED
    assert harness.steps == []


def test_one_bad_assignment_is_forgiven():
    harness = Harness()
    harness.subscribe()
    harness.join()
    harness.answer(SYNC, assignment=b"\0")
    harness.sent(JOIN, 0.1)
    harness.join(generation=2)
    harness.sync(ALL)
    harness.done(Change.ASSIGNED, ALL)
    assert harness.errors == []


def test_a_generation_that_goes_back_below_what_we_hold_is_a_loss():
    harness = Harness(COOPERATIVE)
    harness.settle(ALL, generation=7, protocol=COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    harness.join(generation=3, protocol=COOPERATIVE)
    harness.done(Change.LOST, ALL)
    _, said = harness.sent(JOIN)
    assert said.member_id == "m1"
    harness.join(generation=3, protocol=COOPERATIVE)
    assert harness.state is ClassicState.SYNCING


def test_a_generation_that_was_never_finished_may_be_forgotten():
    harness = Harness(COOPERATIVE)
    harness.settle(ALL, generation=7, protocol=COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    harness.join(generation=9, protocol=COOPERATIVE)
    harness.fail(SYNC, NetworkError("the coordinator died"))
    harness.sent(JOIN, 1.0)
    harness.join(generation=8, protocol=COOPERATIVE)
    assert harness.state is ClassicState.SYNCING
    assert harness.member.owned == ALL


def test_words_of_a_broker_are_safe_in_logs(caplog):
    caplog.set_level("DEBUG")
    harness = Harness()
    harness.subscribe()
    harness.answer(JOIN, member_id="m\x1b[31m\n" + "x" * 5_000, leader="y")
    harness.sync(ALL)
    assert "member m" in caplog.text
    assert "\x1b" not in caplog.text
    assert all(len(record.getMessage()) < 1_000 for record in caplog.records)


def test_the_members_of_another_leader_are_not_our_business():
    harness = Harness()
    harness.subscribe()
    harness.answer(JOIN, leader="m2", members=[("m1", metadata_of("t")), ("m2", metadata_of("x"))])
    _, said = harness.sent(SYNC)
    assert said.assignments == ()
    assert harness.member.topics_to_watch == {"t"}


# --- the application is away -----------------------------------------------------------------------------------------


def away(harness: Harness) -> None:
    """The application stops polling now, and its time is up."""
    harness.poll_activity.is_polling = False
    harness.poll_activity.last = harness.now
    harness.now += MAX_POLL + 0.1


def back(harness: Harness) -> None:
    harness.poll_activity.last = harness.now
    harness.poll_activity.is_polling = True


def test_an_application_that_does_not_poll_leaves_and_loses_when_it_is_back(caplog):
    harness = stable()
    away(harness)
    _, said = harness.sent(LEAVE)
    assert said.members[0].member_id == "m1"
    assert "max.poll.interval.ms" in said.members[0].reason
    assert "max.poll.interval.ms (300000)" in caplog.text
    assert harness.member.identity is None
    assert len(harness.steps) == 1  # it cannot be told yet
    assert harness.poll(60.0) == []
    harness.answer(LEAVE)
    back(harness)
    assert harness.none_sent(JOIN)
    harness.done(Change.LOST, ALL)
    _, said = harness.sent(JOIN)
    assert said.member_id == ""


def test_a_static_member_whose_application_is_away_is_silent():
    harness = stable(instance="i1")
    away(harness)
    assert harness.poll() == []
    assert harness.poll(100.0) == []
    assert harness.member.identity is None
    back(harness)
    harness.poll()
    harness.done(Change.LOST, ALL)
    _, said = harness.sent(JOIN)
    assert (said.member_id, said.group_instance_id) == ("", "i1")


def test_a_poll_that_waits_is_a_sign_of_life():
    harness = stable()
    harness.poll_activity.last = harness.now
    harness.now += 10 * MAX_POLL
    assert harness.none_sent(LEAVE)
    assert harness.state is ClassicState.STABLE


def test_the_time_of_the_application_is_watched_without_heartbeats():
    harness = stable()
    harness.sent(BEAT, HEARTBEAT)  # unanswered: no other reason to be asked
    harness.poll_activity.is_polling, harness.poll_activity.last = False, harness.now
    harness.poll(100.0)
    assert harness.wait == pytest.approx(MAX_POLL - 100.0)


@pytest.mark.parametrize("change", [Change.REVOKED, Change.ASSIGNED])
def test_away_with_a_step_open_the_step_is_finished_and_the_rest_is_lost(change):
    """librdkafka's #5604: the time is up while a rebalance waits for the application."""
    harness = stable(COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    harness.join(generation=2, protocol=COOPERATIVE)
    kept = partitions("t", 0)
    harness.sync(kept if change is Change.REVOKED else ALL)
    if change is Change.REVOKED:
        harness.step(Change.REVOKED, ALL - kept)
    away(harness)
    harness.sent(LEAVE)
    assert harness.state is ClassicState.AWAY
    back(harness)
    harness.poll()
    assert harness.member.identity is None
    harness.done(change, ALL - kept if change is Change.REVOKED else frozenset())
    harness.done(Change.LOST, kept if change is Change.REVOKED else ALL)
    harness.sent(JOIN)


def test_the_step_may_be_finished_while_the_application_counts_as_away():
    harness = stable()
    harness.member.rejoin("test", harness.now)
    harness.poll()
    away(harness)
    harness.poll()
    harness.done(Change.REVOKED, ALL)
    assert harness.none_sent(JOIN)
    assert harness.state is ClassicState.AWAY
    back(harness)
    harness.sent(JOIN)


@pytest.mark.parametrize("until", [JOIN, SYNC])
def test_away_while_the_group_waits_the_waiting_is_given_up(until):
    harness = stable(COOPERATIVE)
    harness.member.rejoin("test", harness.now)
    if until is SYNC:
        harness.join(generation=2, protocol=COOPERATIVE)
    waiting, _ = harness.sent(until)
    away(harness)
    harness.sent(LEAVE)
    assert harness.hung_up[-1] == "join-c1"
    waiting.on_response(response(until, generation_id=9, protocol_name=COOPERATIVE), harness.now)
    assert harness.state is ClassicState.AWAY
    back(harness)
    harness.poll()
    harness.done(Change.LOST, ALL)
    harness.sent(JOIN)


def test_who_has_no_id_yet_is_no_member_that_could_leave():
    harness = Harness()
    harness.subscribe()
    away(harness)
    harness.sent(JOIN)
    assert harness.none_sent(LEAVE)


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_leaving_is_said_and_waited_for_once():
    harness = stable()
    left = []
    harness.member.leave(lambda: left.append(1), harness.now)
    harness.member.leave(lambda: left.append(2), harness.now)
    assert (harness.member.owned, harness.member.identity) == (frozenset(), None)
    _, said = harness.sent(LEAVE)
    assert (said.group_id, said.members[0].member_id) == ("g", "m1")
    assert said.members[0].reason
    assert left == []
    harness.answer(LEAVE)
    assert left == [1, 2]
    assert harness.state is ClassicState.OUTSIDE
    assert harness.poll(100.0) == []
    assert harness.wait == NEVER


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, NOT_COORDINATOR])
def test_whatever_the_coordinator_says_we_have_left(code):
    harness = stable()
    left = []
    harness.member.leave(lambda: left.append(True), harness.now)
    harness.answer(LEAVE, error_code=code)
    assert left == [True]


def test_nobody_answers_and_we_have_left():
    harness = stable()
    left = []
    harness.member.leave(lambda: left.append(True), harness.now)
    harness.fail(LEAVE, NetworkError("gone"))
    assert left == [True]


def test_nobody_to_say_it_to():
    harness = stable()
    harness.coordinators.node = None
    left = []
    harness.member.leave(lambda: left.append(True), harness.now)
    assert harness.poll() == []
    assert left == [True]


def test_a_coordinator_that_is_being_looked_for_is_reported_when_it_is_found():
    harness = stable()
    harness.coordinators.node, harness.coordinators.is_looking = None, True
    left = []
    harness.member.leave(lambda: left.append(True), harness.now)
    assert harness.poll() == []
    assert left == []
    harness.coordinators.node = NodeId(2)
    _, said = harness.sent(LEAVE)
    assert said.members[0].member_id == "m1"
    harness.answer(LEAVE)
    assert left == [True]


def test_a_static_member_leaves_without_a_word():
    harness = stable(instance="i1")
    left = []
    harness.member.leave(lambda: left.append(True), harness.now)
    assert left == [True]
    assert harness.poll(100.0) == []


def test_leaving_from_outside_is_done_at_once():
    harness = Harness()
    left = []
    harness.member.leave(lambda: left.append(True), harness.now)
    assert left == [True]


def test_leaving_while_the_join_waits_hangs_up():
    harness = stable()
    harness.member.rejoin("test", harness.now)
    harness.poll()
    harness.done(Change.REVOKED, ALL)
    waiting, _ = harness.sent(JOIN)
    harness.member.leave(lambda: None, harness.now)
    assert harness.hung_up[-1] == "join-c1"
    waiting.on_response(response(JOIN, generation_id=2), harness.now)
    assert harness.state is ClassicState.LEAVING
    harness.answer(LEAVE)
    assert harness.state is ClassicState.OUTSIDE


def test_leaving_with_a_step_open_ends_the_step():
    harness = stable()
    harness.member.rejoin("test", harness.now)
    harness.poll()
    ticket = harness.step(Change.REVOKED, ALL).ticket
    harness.member.leave(lambda: None, harness.now)
    harness.member.step_done(ticket, harness.now)
    harness.answer(LEAVE)
    assert harness.state is ClassicState.OUTSIDE


def test_subscribing_while_leaving_joins_afterwards():
    harness = stable()
    harness.member.leave(lambda: None, harness.now)
    harness.subscribe("t")
    assert harness.none_sent(JOIN, 1.0)
    harness.answer(LEAVE)
    _, said = harness.sent(JOIN)
    assert said.member_id == ""
    harness.join(member="m9")
    harness.sync([TopicPartition("t", 0)])
    harness.done(Change.ASSIGNED, partitions("t", 0))
