"""What goes wrong in a classic group: fencing, refusals, lost answers, an application that is away, leaving."""

from __future__ import annotations

from itertools import pairwise

import pytest

from classic_desk import HEARTBEAT, MAX_POLL, Desk, metadata_of, partitions, response
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


def stable(*strategy: str, instance: str | None = None) -> Desk:
    desk = Desk(*strategy, instance=instance)
    desk.settle(ALL, protocol=strategy[0] if strategy else "range")
    return desk


# --- fencing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "member_id"), [(ILLEGAL_GENERATION, "m1"), (UNKNOWN_MEMBER, "")])
def test_a_fenced_member_loses_everything_and_then_joins_anew(code, member_id):
    desk = stable()
    desk.now = 10.0
    desk.answer(BEAT, error_code=code)
    assert desk.member.identity is None
    assert desk.step(Change.LOST, ALL).deadline == 10.0 + MAX_POLL
    assert desk.none_sent(JOIN, 5.0)
    assert desk.none_sent(BEAT)
    desk.done(Change.LOST, ALL)
    _, said = desk.sent(JOIN)
    assert said.member_id == member_id
    assert desk.counts.total("group.lost") == 4


@pytest.mark.parametrize("code", [ILLEGAL_GENERATION, UNKNOWN_MEMBER])
def test_fenced_while_revoking_the_step_is_finished_first(code):
    desk = stable()
    desk.now = 10.0
    desk.answer(BEAT, error_code=REBALANCE)
    desk.poll()
    desk.now = 20.0
    desk.answer(BEAT, error_code=code)
    assert desk.state is ClassicState.LOSING
    desk.done(Change.REVOKED, ALL)  # eager: nothing is left that could be lost
    assert desk.state is ClassicState.JOINING
    assert [s.change for s in desk.steps] == [Change.ASSIGNED, Change.REVOKED]


def test_fenced_while_reconciling_what_is_left_is_lost_after_the_step():
    desk = stable(COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    desk.join(generation=2, protocol=COOPERATIVE)
    desk.sync(partitions("t", 0, 1))
    desk.now = 20.0
    desk.answer(BEAT, error_code=UNKNOWN_MEMBER)
    assert desk.step(Change.REVOKED, partitions("t", 2, 3))
    desk.done(Change.REVOKED, partitions("t", 2, 3))
    assert desk.none_sent(JOIN, 1.0)
    desk.done(Change.LOST, partitions("t", 0, 1))
    desk.sent(JOIN)


def test_fenced_while_beginning_all_of_it_is_lost_after_the_step():
    desk = Desk()
    desk.subscribe()
    desk.join()
    desk.sync(ALL)
    desk.now = 5.0
    desk.answer(BEAT, error_code=UNKNOWN_MEMBER)
    desk.done(Change.ASSIGNED, ALL)
    desk.done(Change.LOST, ALL)
    desk.sent(JOIN)


def test_cooperative_an_unknown_member_loses_what_it_kept():
    desk = stable(COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    desk.answer(JOIN, error_code=UNKNOWN_MEMBER)
    desk.done(Change.LOST, ALL)
    _, said = desk.sent(JOIN)
    assert said.member_id == ""


def test_fenced_during_the_sync_whose_answer_is_not_waited_for():
    desk = stable(COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    desk.join(generation=2, protocol=COOPERATIVE)
    waiting, _ = desk.sent(SYNC)
    desk.now += HEARTBEAT
    desk.answer(BEAT, error_code=UNKNOWN_MEMBER)
    hung_up = len(desk.hung_up)
    desk.done(Change.LOST, ALL)
    desk.sent(JOIN)
    assert len(desk.hung_up) == hung_up + 1  # else the JoinGroup would wait behind the SyncGroup
    waiting.on_response(response(SYNC), desk.now)  # too late
    assert desk.state is ClassicState.JOINING


def test_a_late_heartbeat_answer_of_an_older_generation_means_nothing():
    desk = stable()
    beat, _ = desk.sent(BEAT, HEARTBEAT)
    desk.open.remove(beat)
    desk.member.rejoin("test", desk.now)
    desk.poll()
    desk.done(Change.REVOKED, ALL)
    desk.poll()
    beat.on_response(response(BEAT, error_code=ILLEGAL_GENERATION), desk.now)
    assert desk.state is ClassicState.JOINING
    desk.join(generation=2)
    beat.on_response(response(BEAT, error_code=ILLEGAL_GENERATION), desk.now)
    assert desk.state is ClassicState.SYNCING
    assert desk.member.identity.epoch == 2


def test_a_commit_that_was_refused_makes_the_coordinator_be_asked_at_once():
    desk = stable()
    assert desk.none_sent(BEAT)
    desk.member.fenced(broker_error(ILLEGAL_GENERATION), desk.now)
    desk.sent(BEAT)
    desk.answer(BEAT, error_code=ILLEGAL_GENERATION)
    desk.done(Change.LOST, ALL)


def test_a_commit_that_was_overtaken_by_a_join_loses_nothing():
    desk = stable(COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    desk.poll()
    desk.member.fenced(broker_error(ILLEGAL_GENERATION), desk.now)
    assert desk.none_sent(BEAT)
    desk.join(generation=2, protocol=COOPERATIVE)
    desk.sync(ALL)
    desk.done(Change.ASSIGNED, frozenset())
    assert desk.member.owned == ALL


# --- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", REFUSALS)
def test_a_refusal_is_told_once_with_what_to_do(code):
    desk = Desk()
    desk.subscribe()
    desk.answer(JOIN, error_code=code)
    (error,) = desk.errors
    assert isinstance(error, GroupRefused)
    assert REFUSALS[code] in str(error)
    assert desk.state is ClassicState.FAILED
    assert desk.poll(100.0) == []
    desk.subscribe("u")
    assert desk.poll(100.0) == []
    assert len(desk.errors) == 1


def test_a_member_that_is_refused_loses_everything_and_leaves():
    desk = stable()
    desk.now = 10.0
    desk.answer(BEAT, error_code=30)
    assert isinstance(desk.errors[0], GroupRefused)
    _, said = desk.sent(LEAVE)
    assert said.members[0].member_id == "m1"
    desk.done(Change.LOST, ALL)
    assert desk.state is ClassicState.FAILED
    assert desk.none_sent(JOIN, 10.0)


@pytest.mark.parametrize("api", [JOIN, SYNC, BEAT])
def test_a_fenced_instance_does_not_fight_back(api):
    desk = stable(COOPERATIVE, instance="i1")
    desk.now = 10.0
    if api is not BEAT:
        desk.member.rejoin("test", desk.now)
    if api is SYNC:
        desk.join(generation=2, protocol=COOPERATIVE)
    desk.answer(api, error_code=FENCED_INSTANCE)
    (error,) = desk.errors
    assert isinstance(error, InstanceFenced)
    assert "i1" in str(error)
    desk.done(Change.LOST, ALL)
    assert desk.state is ClassicState.FAILED
    desk.subscribe("u")
    assert desk.poll(100.0) == []


def test_a_failed_member_can_leave_and_start_again():
    desk = Desk()
    desk.subscribe()
    desk.answer(JOIN, error_code=30)
    left = []
    desk.member.leave(lambda: left.append(True), desk.now)
    assert left == [True]
    desk.subscribe()
    desk.sent(JOIN, 1.0)


@pytest.mark.parametrize("code", [-1, 42])
def test_an_error_that_nobody_expects_is_loud(code):
    desk = Desk()
    desk.subscribe()
    desk.answer(JOIN, error_code=code)
    (error,) = desk.errors
    assert isinstance(error, BrokerError)
    assert "JOIN_GROUP of group g" in str(error)
    assert desk.state is ClassicState.FAILED


@pytest.mark.parametrize("error", [UnknownBrokerCode(999), UnsupportedVersion("too old")])
def test_a_request_that_can_never_succeed_is_loud(error):
    desk = Desk()
    desk.subscribe()
    desk.fail(JOIN, error)
    assert desk.errors == [error]
    assert desk.state is ClassicState.FAILED


def test_a_refused_login_is_told_once_and_tried_again():
    desk = stable()
    for n in range(3):
        desk.sent(BEAT, HEARTBEAT + n)
        desk.fail(BEAT, SaslError("no"))
    assert len(desk.errors) == 1
    assert desk.member.owned == ALL
    desk.sent(BEAT, 2.0)
    desk.answer(BEAT)
    desk.sent(BEAT, HEARTBEAT)
    desk.fail(BEAT, SaslError("no"))
    assert len(desk.errors) == 2


def test_a_pattern_for_the_broker_is_refused():
    desk = Desk()
    desk.member.subscribe(Subscription(regex="t.*"), 0.0)
    desk.poll()
    assert isinstance(desk.errors[0], GroupRefused)
    assert "group.protocol=consumer" in str(desk.errors[0])


# --- what passes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [LOADING, NOT_AVAILABLE, NOT_COORDINATOR])
@pytest.mark.parametrize("api", [JOIN, SYNC, BEAT])
def test_a_coordinator_that_is_none_is_forgotten_and_the_member_keeps_its_name(api, code):
    desk = stable(COOPERATIVE)
    desk.now = 10.0
    if api is not BEAT:
        desk.member.rejoin("test", desk.now)
    if api is SYNC:
        desk.join(generation=2, protocol=COOPERATIVE)
    desk.coordinators.forgotten.clear()
    desk.answer(api, error_code=code)
    assert desk.coordinators.forgotten == [1]
    desk.coordinators.node = None
    assert desk.none_sent(api, 5.0)
    desk.coordinators.node = 2
    again = JOIN if api is SYNC else api
    request, said = desk.sent(again, 1.0)
    assert (request.node, said.member_id) == (2, "m1")
    assert desk.member.owned == ALL
    assert len(desk.steps) == 1


@pytest.mark.parametrize("error", [NetworkError("gone"), OperationTimeout("late"), FrameError("broken")])
def test_a_lost_join_is_repeated_after_a_while(error):
    desk = Desk()
    desk.subscribe()
    for expected in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        desk.fail(JOIN, error)
        assert desk.none_sent(JOIN)
        assert desk.wait == pytest.approx(expected)
        desk.sent(JOIN, expected)


def test_heartbeats_that_fail_leave_the_partitions_where_they_are():
    desk = stable()
    for _ in range(100):
        desk.sent(BEAT, HEARTBEAT)
        desk.fail(BEAT, OperationTimeout("late"))
    assert desk.member.owned == ALL
    assert desk.state is ClassicState.STABLE
    desk.sent(BEAT, 1.0)
    desk.answer(BEAT)
    assert desk.none_sent(BEAT, HEARTBEAT - 0.1)
    desk.sent(BEAT, 0.1)


def test_heartbeats_are_regular():
    desk = stable()
    times = []
    for _ in range(400):
        if not desk.none_sent(BEAT):
            times.append(round(desk.now, 2))
            desk.answer(BEAT)
        desk.now += 0.1
    gaps = {round(b - a, 1) for a, b in pairwise(times)}
    assert gaps <= {HEARTBEAT, round(HEARTBEAT + 0.1, 1)}
    assert len(times) >= 12


# --- hostile answers -------------------------------------------------------------------------------------------------


def test_ids_that_are_never_good_enough_do_not_make_us_run_in_circles():
    desk = Desk()
    desk.subscribe()
    asked = 0
    while desk.now < 60.0:
        desk.poll()
        for request in [r for r in desk.open if r.api is JOIN]:
            asked += 1
            desk.open.remove(request)
            request.on_response(response(JOIN, error_code=MEMBER_ID_REQUIRED, member_id=f"m{asked}"), desk.now)
        desk.now += 0.05
    assert 10 < asked < 150


def test_an_id_that_is_asked_for_but_not_given():
    desk = Desk()
    desk.subscribe()
    desk.answer(JOIN, error_code=MEMBER_ID_REQUIRED, member_id="")
    assert desk.none_sent(JOIN)
    _, said = desk.sent(JOIN, 0.1)
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
    desk = Desk()
    desk.subscribe()
    desk.answer(JOIN, **values)
    assert isinstance(desk.errors[0], GroupRefused)
    assert desk.state is ClassicState.FAILED


@pytest.mark.parametrize("values", [{"protocol_name": "sticky"}, {"protocol_type": "connect"}])
def test_an_assignment_of_something_else_is_refused(values):
    desk = Desk()
    desk.subscribe()
    desk.join()
    desk.answer(SYNC, **values)
    assert isinstance(desk.errors[0], GroupRefused)


@pytest.mark.parametrize(
    "values",
    [
        {"generation_id": -1},
        {"member_id": "", "leader": "x"},
        {"leader": "m1", "members": []},
        {"leader": "m1", "members": [("m2", b"")]},
    ],
)
def test_a_join_that_makes_no_sense_is_repeated_and_then_told(values):
    desk = Desk()
    desk.subscribe()
    for _ in range(4):
        assert desk.errors == []
        desk.sent(JOIN, 2.0)
        desk.answer(JOIN, **values)
    assert isinstance(desk.errors[0], GroupError)
    assert desk.state is ClassicState.FAILED


@pytest.mark.parametrize("data", [b"\0", b"\xff\xff\0\0\0\0", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\xc3"])
def test_an_assignment_that_cannot_be_read_is_asked_for_again_and_then_told(data):
    desk = Desk()
    desk.subscribe()
    for _ in range(4):
        assert desk.errors == []
        desk.sent(JOIN, 2.0)
        desk.join()
        desk.answer(SYNC, assignment=data)
    assert isinstance(desk.errors[0], GroupError)
    assert desk.state is ClassicState.FAILED
    assert desk.steps == []


def test_one_bad_assignment_is_forgiven():
    desk = Desk()
    desk.subscribe()
    desk.join()
    desk.answer(SYNC, assignment=b"\0")
    desk.sent(JOIN, 0.1)
    desk.join(generation=2)
    desk.sync(ALL)
    desk.done(Change.ASSIGNED, ALL)
    assert desk.errors == []


def test_a_generation_that_goes_back_below_what_we_hold_is_a_loss():
    desk = Desk(COOPERATIVE)
    desk.settle(ALL, generation=7, protocol=COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    desk.join(generation=3, protocol=COOPERATIVE)
    desk.done(Change.LOST, ALL)
    _, said = desk.sent(JOIN)
    assert said.member_id == "m1"
    desk.join(generation=3, protocol=COOPERATIVE)
    assert desk.state is ClassicState.SYNCING


def test_a_generation_that_was_never_finished_may_be_forgotten():
    desk = Desk(COOPERATIVE)
    desk.settle(ALL, generation=7, protocol=COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    desk.join(generation=9, protocol=COOPERATIVE)
    desk.fail(SYNC, NetworkError("the coordinator died"))
    desk.sent(JOIN, 1.0)
    desk.join(generation=8, protocol=COOPERATIVE)
    assert desk.state is ClassicState.SYNCING
    assert desk.member.owned == ALL


def test_words_of_a_broker_are_safe_in_logs(caplog):
    caplog.set_level("DEBUG")
    desk = Desk()
    desk.subscribe()
    desk.answer(JOIN, member_id="m\x1b[31m\n" + "x" * 5_000, leader="y")
    desk.sync(ALL)
    assert "member m" in caplog.text
    assert "\x1b" not in caplog.text
    assert all(len(record.getMessage()) < 1_000 for record in caplog.records)


def test_the_members_of_another_leader_are_not_our_business():
    desk = Desk()
    desk.subscribe()
    desk.answer(JOIN, leader="m2", members=[("m1", metadata_of("t")), ("m2", metadata_of("x"))])
    _, said = desk.sent(SYNC)
    assert said.assignments == ()
    assert desk.member.topics_to_watch == {"t"}


# --- the application is away -----------------------------------------------------------------------------------------


def away(desk: Desk) -> None:
    """The application stops polling now, and its time is up."""
    desk.poll_activity.is_polling = False
    desk.poll_activity.last = desk.now
    desk.now += MAX_POLL + 0.1


def back(desk: Desk) -> None:
    desk.poll_activity.last = desk.now
    desk.poll_activity.is_polling = True


def test_an_application_that_does_not_poll_leaves_and_loses_when_it_is_back(caplog):
    desk = stable()
    away(desk)
    _, said = desk.sent(LEAVE)
    assert said.members[0].member_id == "m1"
    assert "max.poll.interval.ms" in said.members[0].reason
    assert "max.poll.interval.ms (300000)" in caplog.text
    assert desk.member.identity is None
    assert len(desk.steps) == 1  # it cannot be told yet
    assert desk.poll(60.0) == []
    desk.answer(LEAVE)
    back(desk)
    assert desk.none_sent(JOIN)
    desk.done(Change.LOST, ALL)
    _, said = desk.sent(JOIN)
    assert said.member_id == ""


def test_a_static_member_whose_application_is_away_is_silent():
    desk = stable(instance="i1")
    away(desk)
    assert desk.poll() == []
    assert desk.poll(100.0) == []
    assert desk.member.identity is None
    back(desk)
    desk.poll()
    desk.done(Change.LOST, ALL)
    _, said = desk.sent(JOIN)
    assert (said.member_id, said.group_instance_id) == ("", "i1")


def test_a_poll_that_waits_is_a_sign_of_life():
    desk = stable()
    desk.poll_activity.last = desk.now
    desk.now += 10 * MAX_POLL
    assert desk.none_sent(LEAVE)
    assert desk.state is ClassicState.STABLE


def test_the_time_of_the_application_is_watched_without_heartbeats():
    desk = stable()
    desk.sent(BEAT, HEARTBEAT)  # unanswered: no other reason to be asked
    desk.poll_activity.is_polling, desk.poll_activity.last = False, desk.now
    desk.poll(100.0)
    assert desk.wait == pytest.approx(MAX_POLL - 100.0)


@pytest.mark.parametrize("change", [Change.REVOKED, Change.ASSIGNED])
def test_away_with_a_step_open_the_step_is_finished_and_the_rest_is_lost(change):
    """librdkafka's #5604: the time is up while a rebalance waits for the application."""
    desk = stable(COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    desk.join(generation=2, protocol=COOPERATIVE)
    kept = partitions("t", 0)
    desk.sync(kept if change is Change.REVOKED else ALL)
    if change is Change.REVOKED:
        desk.step(Change.REVOKED, ALL - kept)
    away(desk)
    desk.sent(LEAVE)
    assert desk.state is ClassicState.AWAY
    back(desk)
    desk.poll()
    assert desk.member.identity is None
    desk.done(change, ALL - kept if change is Change.REVOKED else frozenset())
    desk.done(Change.LOST, kept if change is Change.REVOKED else ALL)
    desk.sent(JOIN)


def test_the_step_may_be_finished_while_the_application_counts_as_away():
    desk = stable()
    desk.member.rejoin("test", desk.now)
    desk.poll()
    away(desk)
    desk.poll()
    desk.done(Change.REVOKED, ALL)
    assert desk.none_sent(JOIN)
    assert desk.state is ClassicState.AWAY
    back(desk)
    desk.sent(JOIN)


@pytest.mark.parametrize("until", [JOIN, SYNC])
def test_away_while_the_group_waits_the_waiting_is_given_up(until):
    desk = stable(COOPERATIVE)
    desk.member.rejoin("test", desk.now)
    if until is SYNC:
        desk.join(generation=2, protocol=COOPERATIVE)
    waiting, _ = desk.sent(until)
    away(desk)
    desk.sent(LEAVE)
    assert desk.hung_up[-1] == "join-c1"
    waiting.on_response(response(until, generation_id=9, protocol_name=COOPERATIVE), desk.now)
    assert desk.state is ClassicState.AWAY
    back(desk)
    desk.poll()
    desk.done(Change.LOST, ALL)
    desk.sent(JOIN)


def test_who_has_no_id_yet_is_no_member_that_could_leave():
    desk = Desk()
    desk.subscribe()
    away(desk)
    desk.sent(JOIN)
    assert desk.none_sent(LEAVE)


# --- leaving ---------------------------------------------------------------------------------------------------------


def test_leaving_is_said_and_waited_for_once():
    desk = stable()
    left = []
    desk.member.leave(lambda: left.append(1), desk.now)
    desk.member.leave(lambda: left.append(2), desk.now)
    assert (desk.member.owned, desk.member.identity) == (frozenset(), None)
    _, said = desk.sent(LEAVE)
    assert (said.group_id, said.members[0].member_id) == ("g", "m1")
    assert said.members[0].reason
    assert left == []
    desk.answer(LEAVE)
    assert left == [1, 2]
    assert desk.state is ClassicState.OUTSIDE
    assert desk.poll(100.0) == []
    assert desk.wait == NEVER


@pytest.mark.parametrize("code", [UNKNOWN_MEMBER, NOT_COORDINATOR])
def test_whatever_the_coordinator_says_we_have_left(code):
    desk = stable()
    left = []
    desk.member.leave(lambda: left.append(True), desk.now)
    desk.answer(LEAVE, error_code=code)
    assert left == [True]


def test_nobody_answers_and_we_have_left():
    desk = stable()
    left = []
    desk.member.leave(lambda: left.append(True), desk.now)
    desk.fail(LEAVE, NetworkError("gone"))
    assert left == [True]


def test_nobody_to_say_it_to():
    desk = stable()
    desk.coordinators.node = None
    left = []
    desk.member.leave(lambda: left.append(True), desk.now)
    assert desk.poll() == []
    assert left == [True]


def test_a_coordinator_that_is_being_looked_for_is_told_when_it_is_found():
    desk = stable()
    desk.coordinators.node, desk.coordinators.is_looking = None, True
    left = []
    desk.member.leave(lambda: left.append(True), desk.now)
    assert desk.poll() == []
    assert left == []
    desk.coordinators.node = NodeId(2)
    _, said = desk.sent(LEAVE)
    assert said.members[0].member_id == "m1"
    desk.answer(LEAVE)
    assert left == [True]


def test_a_static_member_leaves_without_a_word():
    desk = stable(instance="i1")
    left = []
    desk.member.leave(lambda: left.append(True), desk.now)
    assert left == [True]
    assert desk.poll(100.0) == []


def test_leaving_from_outside_is_done_at_once():
    desk = Desk()
    left = []
    desk.member.leave(lambda: left.append(True), desk.now)
    assert left == [True]


def test_leaving_while_the_join_waits_hangs_up():
    desk = stable()
    desk.member.rejoin("test", desk.now)
    desk.poll()
    desk.done(Change.REVOKED, ALL)
    waiting, _ = desk.sent(JOIN)
    desk.member.leave(lambda: None, desk.now)
    assert desk.hung_up[-1] == "join-c1"
    waiting.on_response(response(JOIN, generation_id=2), desk.now)
    assert desk.state is ClassicState.LEAVING
    desk.answer(LEAVE)
    assert desk.state is ClassicState.OUTSIDE


def test_leaving_with_a_step_open_ends_the_step():
    desk = stable()
    desk.member.rejoin("test", desk.now)
    desk.poll()
    ticket = desk.step(Change.REVOKED, ALL).ticket
    desk.member.leave(lambda: None, desk.now)
    desk.member.step_done(ticket, desk.now)
    desk.answer(LEAVE)
    assert desk.state is ClassicState.OUTSIDE


def test_subscribing_while_leaving_joins_afterwards():
    desk = stable()
    desk.member.leave(lambda: None, desk.now)
    desk.subscribe("t")
    assert desk.none_sent(JOIN, 1.0)
    desk.answer(LEAVE)
    _, said = desk.sent(JOIN)
    assert said.member_id == ""
    desk.join(member="m9")
    desk.sync([TopicPartition("t", 0)])
    desk.done(Change.ASSIGNED, partitions("t", 0))
