"""The roster: which member serves when, and what is restarted."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multilane.engines.continuous.roster import Roster
from multilane.engines.continuous.states import TRANSITIONS, MemberAction, SparkMemberState


def serving(many):
    roster = Roster(many)
    roster.begin()
    for number in range(many):
        roster.ready(number, 0.0)
    return roster


def test_no_member_serves_before_all_are_ready():
    roster = Roster(3)
    assert roster.begin() == [(MemberAction.START, 0), (MemberAction.START, 1), (MemberAction.START, 2)]
    assert roster.ready(1, 0.0) == roster.ready(0, 0.0) == []
    assert roster.ready(2, 0.0) == [(MemberAction.SERVE, 0), (MemberAction.SERVE, 1), (MemberAction.SERVE, 2)]
    assert roster.count(SparkMemberState.SERVING) == 3


def test_a_member_that_was_ready_and_disconnected_is_waited_for():
    roster = Roster(2)
    roster.begin()
    roster.ready(0, 0.0)
    roster.disconnected(0)
    assert roster.ready(1, 0.0) == []
    assert roster.ready(0, 0.0) == [(MemberAction.SERVE, 0), (MemberAction.SERVE, 1)]


def test_a_task_that_spark_restarted_serves_at_once():
    roster = serving(2)
    roster.disconnected(1)
    assert roster.state(1) is SparkMemberState.STARTING
    assert roster.ready(1, 5.0) == [(MemberAction.SERVE, 1)]
    assert roster.ready(0, 6.0) == [(MemberAction.SERVE, 0)], (
        "its new channel may connect before the old one is known to be closed"
    )


def test_the_waits_grow_and_start_over_after_a_minute_of_service():
    roster = serving(1)
    now, waits = 10.0, []
    for _ in range(8):
        waits.append(roster.ended(0, now))
        now += waits[-1]
        assert roster.next_due() == now
        assert roster.due(now - 0.001) == []
        assert roster.due(now) == [(MemberAction.START, 0)]
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    roster.ready(0, now)
    assert roster.ended(0, now + 61) == 1


def test_a_stop_reaches_those_that_began_and_cancels_those_that_wait_for_a_slot():
    roster = Roster(4)
    roster.begin()
    for number in range(4):
        roster.ready(number, 1.0)
    roster.disconnected(1)  # a process that ends in order, or that Spark restarts
    roster.ended(2, 5.0)
    roster.ended(3, 5.0)
    roster.due(6.0)
    roster.disconnected(3)
    roster.stop()
    assert [roster.state(n) for n in range(4)] == [SparkMemberState.DRAINING] * 4
    fresh = Roster(3)
    fresh.begin()
    fresh.ready(0, 0.0)
    fresh.ended(1, 0.0)
    assert fresh.stop() == [(MemberAction.STOP, 0), (MemberAction.CANCEL, 2)]
    assert fresh.state(1) is SparkMemberState.ENDED
    assert fresh.stop() == []
    assert fresh.ready(2, 1.0) == [(MemberAction.STOP, 2)], "it came after all"
    fresh.ended(0, 1.0)
    fresh.ended(2, 1.0)
    assert fresh.is_over


def test_a_member_that_gets_ready_after_its_job_has_ended_is_stopped():
    roster = serving(1)
    roster.ended(0, 1.0)
    assert roster.ready(0, 1.5) == [(MemberAction.STOP, 0)]
    assert roster.due(2.0) == [(MemberAction.START, 0)]


def test_what_the_table_does_not_have_is_a_defect():
    roster = serving(1)
    roster.stop()
    roster.ended(0, 0.0)
    with pytest.raises(AssertionError, match="from ENDED to WAITING"):
        roster.ended(0, 0.0)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(1, 4))
def test_whatever_happens_every_job_that_was_started_is_known_to_end(data, many):
    """And after a stop nothing is started any more, and the run is over when the last job has ended."""
    roster, now = Roster(many), 0.0
    jobs = {number for _, number in roster.begin()}
    for _ in range(data.draw(st.integers(0, 40))):
        now += data.draw(st.floats(0, 70))
        kind = data.draw(st.sampled_from(["ready", "disconnected", "ended", "due", "stop"]))
        orders = []
        if kind in ("ready", "disconnected", "ended"):
            number = data.draw(st.integers(0, many - 1))  # whether or not it has a job: messages may arrive late
            if kind == "ended":
                if number in jobs:
                    jobs.discard(number)
                    roster.ended(number, now)
            elif kind == "ready":
                orders = roster.ready(number, now)
            else:
                roster.disconnected(number)
        elif kind == "due":
            orders = roster.due(now)
        elif kind == "stop":
            orders = roster.stop()
        started = {number for do, number in orders if do is MemberAction.START}
        assert not started & jobs
        assert not (started and roster.is_stopping)
        jobs |= started
        assert all(roster.state(number) in TRANSITIONS for number in range(many))
        assert roster.is_open or roster.count(SparkMemberState.SERVING) == 0
    roster.stop()
    for number in sorted(jobs):
        assert not roster.is_over
        roster.ended(number, now)
    assert roster.is_over
