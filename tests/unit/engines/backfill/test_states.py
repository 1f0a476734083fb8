"""The states of a backfill: whatever happens, the table has the move, and the state tells the truth."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multilane.clock import ManualClock
from multilane.engines.backfill.driver import BackfillDriver, BackfillRunSpec
from multilane.engines.backfill.messages import FromTask, ToTask
from multilane.engines.backfill.progress import BackfillPlan, new_progress
from multilane.engines.backfill.states import AT_WORK, OVER, TRANSITIONS, BackfillState
from multilane.engines.moves import moved
from multilane.errors import MemberFailed, SparkStartError

PLAN = BackfillPlan("orders", "shop.orders", "orders", None, "earliest", "latest", {0: (0, 10), 1: (0, 30)})
RUN = BackfillRunSpec(2, "shop:Worker", "shop:app", "/shop", drain_seconds=90.0, start_seconds=60.0)
HELLO = {"kind": FromTask.HELLO, "number": 0}


class Channel:
    def __init__(self):
        self.sent = []

    def send(self, kind, **fields):
        self.sent.append(kind)

    def close(self):
        pass


class Job:
    times_cancelled = 0

    def start(self, spec, tasks, on_end):
        pass

    def cancel(self):
        self.times_cancelled += 1


class Files:
    def save(self, progress):
        pass

    def list_failed(self, progress, failed):
        pass


class Run:
    """A run whose events a test brings, one at a time, in the place of the loop of `run`."""

    def __init__(self):
        self.clock, self.job = ManualClock(), Job()
        self.driver = BackfillDriver(new_progress(PLAN), Files(), lambda status: None, self.clock)
        self.driver._spec, self.driver._job, self.driver._shares = RUN, self.job, [[0], [1]]
        self.driver._start_by = self.clock.monotonic() + RUN.start_seconds

    @property
    def state(self):
        return self.driver.state

    def hello(self, number):
        channel = Channel()
        self.driver.on_message(number, channel, HELLO | {"number": number})
        return channel.sent

    def lose(self, number):
        self.driver._inbox.disconnect(number)
        self.driver.on_disconnect(number)

    def wait(self, seconds):
        self.clock.advance(seconds)
        self.driver._check_timers()

    @property
    def failure(self):
        self.driver._judge()
        return self.driver._failure


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_the_state_follows_from_what_happened(data):
    run, has_begun, is_stopping = Run(), False, False
    for _ in range(data.draw(st.integers(0, 15))):
        before = run.state
        match data.draw(st.sampled_from(["hello", "lose", "stop", "fail", "wait", "end"])):
            case "hello":
                sent = run.hello(data.draw(st.integers(0, 1)))
                assert sent == [ToTask.WORK if before in AT_WORK else ToTask.END]
                has_begun = has_begun or before in AT_WORK
            case "lose":
                run.lose(data.draw(st.integers(0, 1)))
            case "stop":
                run.driver._drain()
                is_stopping = True
            case "fail":
                run.driver._fail(MemberFailed("permanent"))
                is_stopping = True
            case "wait" if before not in OVER:
                if before is BackfillState.CANCELLING:
                    with pytest.raises(SparkStartError, match="does not stop"):
                        run.wait(RUN.drain_seconds)
                    return
                run.wait(RUN.drain_seconds)
                is_stopping = is_stopping or before is BackfillState.STARTING
            case "end" if before not in OVER:
                run.driver._on_ended(None)
        is_over = before in OVER or run.state in OVER
        assert run.state in expected(is_over, is_stopping, has_begun, run.job.times_cancelled)


def expected(is_over, is_stopping, has_begun, times_cancelled):
    if is_over:
        return {BackfillState.STOPPED if is_stopping else BackfillState.ENDED}
    if is_stopping:
        return {BackfillState.CANCELLING if times_cancelled else BackfillState.DRAINING}
    return {BackfillState.RUNNING if has_begun else BackfillState.STARTING}


def test_a_job_that_ends_at_its_deadline_is_not_taken_for_one_that_does_not_end():
    run = Run()
    run.hello(0)
    run.driver._drain()
    run.wait(RUN.drain_seconds)
    assert run.state is BackfillState.CANCELLING
    run.driver._on_ended(None)
    run.wait(RUN.drain_seconds)
    assert run.state is BackfillState.STOPPED
    assert "did not end within 90 s" in str(run.failure)


def test_a_job_that_a_signal_ended_before_the_stop_came_is_no_failure():
    run = Run()
    run.hello(0)
    run.driver._on_ended(RuntimeError("the signal reached Spark first"))
    assert run.state is BackfillState.ENDED
    run.driver._drain()
    assert run.failure is None


def test_a_job_that_ended_by_itself_with_work_left_is_a_failure():
    run = Run()
    run.hello(0)
    run.driver._on_ended(None)
    assert "all tasks have ended, but 40 offsets" in str(run.failure)


def test_the_table_has_all_states_and_its_last_one_is_final():
    assert set(TRANSITIONS) == set(BackfillState)
    assert [state for state in TRANSITIONS if not TRANSITIONS[state]] == [BackfillState.STOPPED]
    with pytest.raises(AssertionError, match="a BackfillState goes from STOPPED to RUNNING"):
        moved(TRANSITIONS, BackfillState.STOPPED, BackfillState.RUNNING)
