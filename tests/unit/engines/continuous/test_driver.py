"""The supervisor with members in threads of this process: the same tasks and channels as on Spark, without Spark."""

from __future__ import annotations

import logging
import os
import queue
import threading
from typing import ClassVar

import pytest

from multilane.clock import SystemClock
from multilane.engines.continuous.driver import MemberRunSpec, Supervisor
from multilane.engines.continuous.worker import MemberTaskSpec, serve
from multilane.errors import ConfigError, MemberFailed, SparkStartError
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.metrics.observer import Counts, guarded
from multilane.spark import executor_news
from multilane.spark.reasons import reason

PATIENCE = 20.0


class World:
    """What members of a test do, and what they did. They find it by their target's name."""

    worlds: ClassVar[dict[str, World]] = {}

    def __init__(self, name):
        self.name = name
        self.worlds[name] = self
        self.made = queue.SimpleQueue()
        self.behaviour = lambda member: member.stopped.wait(PATIENCE)
        self.refuses = 0  # one of the next to be made

    @property
    def target(self):
        return self.name


class ThreadMember:
    def __init__(self, target):
        self.world = World.worlds[target]
        self.stopped = threading.Event()
        self.steered = queue.SimpleQueue()
        self.number = int(os.environ["MULTILANE_MEMBER"])
        self.world.made.put(self)
        self.world.refuses -= 1
        if self.world.behaviour is None or self.world.refuses == 0:
            raise ImportError("no module named 'shop'")

    def run(self):
        self.world.behaviour(self)

    def stop(self):
        self.stopped.set()

    def apply_overrides(self, consumer, overrides):
        self.steered.put((consumer, overrides))

    def counts(self):
        return [("lanes.records.settled", {"consumer": "orders"}, 5.0)]

    def gauges(self):
        return [("group.members", {"consumer": "orders"}, 1)]

    def failures(self):
        return [FAILED]


FAILED = {
    "kind": ["orders", "ValueError", "shop.py:3"],
    "count": 2,
    "keys": [1],
    "message": "no stock",
    "place": "orders-0@7",
    "stack": "Traceback\nValueError: no stock",
}


class ThreadJobs:
    """A job is a thread, of which so many may run at once."""

    def __init__(self, slots=9):
        self._slots = threading.Semaphore(slots)
        self.started = []
        self.cancelled = []
        self._ends = {}

    def start(self, spec, on_end):
        self.started.append(spec)
        self._ends[spec.number] = end = once(on_end)
        threading.Thread(target=self._run, args=(spec, end), daemon=True).start()

    def _run(self, spec, on_end):
        if not self._slots.acquire(blocking=False):
            return
        try:
            rows = [batch.to_pylist() for batch in serve(spec, iter([]))]
            assert rows[0][0]["member"] == spec.number
        except Exception as error:  # noqa: BLE001 - as Spark reports it
            on_end(error)
        else:
            on_end(None)
        finally:
            self._slots.release()

    def cancel(self, number):
        self.cancelled.append(number)
        self._ends[number](RuntimeError("cancelled"))


def once(on_end):
    """A job that was cancelled has ended, whatever its thread does."""
    left = [on_end]
    return lambda error: left.pop()(error) if left else None


@pytest.fixture
def world(request):
    return World(request.node.name)


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("MULTILANE_MEMBER", "0")  # and taken back at the end


class Running:
    def __init__(self, world, jobs, members=2, observer=None, is_stopped=False, **spec):
        self._arguments = MemberRunSpec(members, f"{__name__}:ThreadMember", world.target, os.getcwd(), **spec), jobs
        self.supervisor = Supervisor(SystemClock(), observer or Counts())
        if is_stopped:
            self.supervisor.stop()
        self.error = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.supervisor.run(*self._arguments)
        except Exception as error:  # noqa: BLE001 - for the test to see
            self.error = error

    def wait(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.error


def test_members_get_overrides_and_those_that_start_later_too(world):
    served = queue.SimpleQueue()
    crash = threading.Event()
    world.behaviour = lambda member: (served.put(member), (crash if member.number else member.stopped).wait(PATIENCE))
    running = Running(world, ThreadJobs(), members=2)
    members = [served.get(timeout=PATIENCE) for _ in range(2)]
    running.supervisor.apply_overrides("orders", ConsumerOverrides(is_paused=True))
    for member in members:
        assert member.steered.get(timeout=PATIENCE) == ("orders", ConsumerOverrides(is_paused=True))
    crash.set()  # the second ends unexpectedly, and is restarted
    again = served.get(timeout=PATIENCE)
    assert again.steered.get(timeout=PATIENCE) == ("orders", ConsumerOverrides(is_paused=True))
    running.supervisor.stop()
    assert running.wait() is None


def test_members_serve_until_they_are_stopped(world):
    served = queue.SimpleQueue()
    world.behaviour = lambda member: (served.put(member), member.stopped.wait(PATIENCE))
    jobs = ThreadJobs()
    running = Running(world, jobs, members=3)
    members = {served.get(timeout=PATIENCE) for _ in range(3)}
    running.supervisor.stop()
    assert running.wait() is None
    assert len(members) == len(jobs.started) == 3
    assert all(member.stopped.is_set() for member in members)
    assert jobs.cancelled == []


class News:
    """What the JVM's schedulers write into memory."""

    is_over = False

    def end(self):
        self.is_over = True


def test_the_schedulers_log_is_read_until_all_members_serve(world, monkeypatch):
    """Its news would fill the JVM's memory for as long as the run lasts, and its warnings would not be seen."""
    news = News()
    monkeypatch.setattr(executor_news, "_news", [news])
    served = queue.SimpleQueue()
    world.behaviour = lambda member: (served.put(member), member.stopped.wait(PATIENCE))
    running = Running(world, ThreadJobs(), members=2)
    for _ in range(2):
        served.get(timeout=PATIENCE)
    running.supervisor.stop()
    assert running.wait() is None
    assert news.is_over


def test_a_stop_that_comes_before_the_start(world):
    served = []
    world.behaviour = served.append
    assert Running(world, ThreadJobs(), is_stopped=True).wait() is None
    assert served == []


def test_what_fails_in_a_member_is_logged_here(world, caplog):
    served = threading.Event()
    world.behaviour = lambda member: (served.set(), member.stopped.wait(PATIENCE))
    with caplog.at_level(logging.INFO):
        running = Running(world, ThreadJobs(), members=2)
        assert served.wait(PATIENCE)
        running.supervisor.stop()
        assert running.wait() is None
    first = [r.getMessage() for r in caplog.records if "orders-0@7 failed" in r.getMessage()]
    assert len(first) == 1, "one line for all members"
    assert first[0].endswith("\n    Traceback\n    ValueError: no stock")
    [closing] = [r.getMessage() for r in caplog.records if "run total" in r.getMessage()]
    assert "settled" in closing
    assert "ValueError at shop.py:3" in closing


def test_their_counts_reach_the_observer(world):
    counts = Counts()
    served = threading.Event()
    world.behaviour = lambda member: (served.set(), member.stopped.wait(PATIENCE))
    running = Running(world, ThreadJobs(), members=1, observer=counts)
    assert served.wait(PATIENCE)
    running.supervisor.stop()
    assert running.wait() is None
    assert counts.by("consumer", "lanes.records.settled")["orders"] >= 5


def test_a_member_that_fails_is_restarted_and_the_others_do_not_notice(world):
    lives = queue.SimpleQueue()
    failures = iter([True])

    def behave(member):
        lives.put(member)
        if next(failures, False):
            raise RuntimeError("the broker is away")
        member.stopped.wait(PATIENCE)

    world.behaviour = behave
    jobs = ThreadJobs()
    running = Running(world, jobs)
    for _ in range(3):
        lives.get(timeout=PATIENCE)
    running.supervisor.stop()
    assert running.wait() is None
    assert len(jobs.started) == 3
    assert lives.empty()


@pytest.mark.parametrize("error", [ConfigError("retryOrder key needs equally many")])
def test_a_failure_that_a_restart_does_not_mend_ends_the_run(world, error):
    def behave(member):
        raise error

    world.behaviour = behave
    running = Running(world, ThreadJobs())
    error = running.wait()
    assert isinstance(error, MemberFailed)
    assert "cannot run: retryOrder key needs equally many" in str(error)


def test_an_application_that_cannot_be_imported_there(world):
    world.behaviour = None
    error = Running(world, ThreadJobs()).wait()
    assert isinstance(error, MemberFailed)
    assert "cannot run: ImportError: no module named 'shop'" in str(error)


def test_with_too_few_slots_no_member_serves(world):
    served = []
    world.behaviour = served.append
    jobs = ThreadJobs(slots=2)
    error = Running(world, jobs, members=3, start_seconds=2.0).wait()
    assert isinstance(error, SparkStartError)
    assert "1 of 3 members were not ready within 2 s" in str(error)
    assert served == []
    assert len(jobs.cancelled) == 1


def test_one_that_does_not_end_is_cancelled(world):
    never, served = threading.Event(), threading.Event()
    world.behaviour = lambda member: (served.set(), never.wait(PATIENCE))
    jobs = ThreadJobs()
    running = Running(world, jobs, members=1, drain_seconds=0.5)
    assert served.wait(PATIENCE)
    running.supervisor.stop()
    error = running.wait()
    assert isinstance(error, MemberFailed)
    assert "1 members did not stop within 0.5 s and were killed" in str(error)
    assert jobs.cancelled == [0]
    never.set()


def test_a_spark_that_is_gone_is_an_error(world):
    class Gone(ThreadJobs):
        def start(self, spec, on_end):
            raise ConnectionRefusedError("nobody listens")

    error = Running(world, Gone()).wait()
    assert isinstance(error, SparkStartError)
    assert "cannot submit jobs, Spark appears to be down" in str(error)


def test_members_end_in_order_when_the_driver_is_gone(world):
    """The supervisor fails in the middle: its channels close, and serving members stop."""
    served, ended = queue.SimpleQueue(), queue.SimpleQueue()
    failures = iter([True])

    def behave(member):
        served.put(member)
        if next(failures, False):
            raise RuntimeError("it is restarted")
        assert member.stopped.wait(PATIENCE)
        ended.put(member)

    class GoneLater(ThreadJobs):
        def start(self, spec, on_end):
            if len(self.started) == 2:
                raise ConnectionRefusedError("nobody listens")
            super().start(spec, on_end)

    world.behaviour = behave
    running = Running(world, GoneLater())
    members = {served.get(timeout=PATIENCE) for _ in range(2)}
    assert isinstance(running.wait(), SparkStartError)
    assert ended.get(timeout=PATIENCE) in members


def test_an_observer_that_fails_is_logged_and_nothing_else(world, caplog):
    class Breaks(Counts):
        def count(self, name, value=1, **labels):
            raise ZeroDivisionError("in the driver")

    served = threading.Event()
    world.behaviour = lambda member: (served.set(), member.stopped.wait(PATIENCE))
    running = Running(world, ThreadJobs(), members=1, observer=guarded(Breaks(), SystemClock()))
    assert served.wait(PATIENCE)
    running.supervisor.stop()
    assert running.wait() is None
    assert "the application's observer failed" in caplog.text


def test_a_job_that_never_gets_ready_is_not_retried_for_ever(world):
    class Fails(ThreadJobs):
        def _run(self, spec, on_end):
            on_end(RuntimeError(WORKER_ERROR))

    jobs = Fails()
    error = Running(world, jobs, members=1).wait()
    assert isinstance(error, SparkStartError)
    assert str(error) == "cannot start member 0 on Spark: ModuleNotFoundError: No module named 'multilane'"
    assert len(jobs.started) == 2


def test_a_later_failure_at_the_start_is_retried(world):
    """One executor that is not as the others are, perhaps for a while."""
    served = queue.SimpleQueue()

    def behave(member):
        served.put(member)
        if served.qsize() == 1:
            world.refuses = 1
            raise RuntimeError("the first life ends")
        member.stopped.wait(PATIENCE)

    world.behaviour = behave
    jobs = ThreadJobs()
    running = Running(world, jobs, members=1)
    while served.qsize() < 2:
        assert running.thread.is_alive()
        running.thread.join(0.05)
    running.supervisor.stop()
    assert running.wait() is None
    assert len(jobs.started) == 3


WORKER_ERROR = """[PYTHON_EXCEPTION] An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "worker.py", line 3, in main
ModuleNotFoundError: No module named 'multilane'

\tat org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:1)
org.apache.spark.SparkException: Job aborted due to stage failure
"""
LOST = "multilane.errors.ChannelLost: nobody at 10.0.0.1:1"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (WORKER_ERROR, "ModuleNotFoundError: No module named 'multilane'"),
        (f"x\n{LOST}\n\tat java.lang.Thread\n", LOST),
        ("Job 3 cancelled part of cancelled job group\n\tat x", "Job 3 cancelled part of cancelled job group"),
        ("", "RuntimeError"),
    ],
)
def test_the_line_with_the_reason(text, said):
    assert reason(RuntimeError(text)) == said


def test_the_token_does_not_show():
    spec = MemberTaskSpec("f", "t", "h", "INFO", ("127.0.0.1", 1), token="hush", number=0)
    assert "hush" not in repr(spec)
