"""The supervisor with members in threads of this process: the same tasks and lines as on Spark, without Spark."""

from __future__ import annotations

import os
import queue
import threading
from typing import ClassVar

import pytest

from multilane.clock import SystemClock
from multilane.errors import ConfigError, MemberFailed, SparkStartError
from multilane.hooks import Counts
from multilane.spark.continuous.supervisor import RunPlan, Supervisor
from multilane.spark.continuous.task import TaskPlan, serve

PATIENCE = 20.0


class World:
    """What members of a test do, and what they did. They find it by the name of their target."""

    worlds: ClassVar[dict[str, World]] = {}

    def __init__(self, name):
        self.name = name
        self.worlds[name] = self
        self.made = queue.SimpleQueue()
        self.behaviour = lambda member: member.told.wait(PATIENCE)

    @property
    def target(self):
        return self.name


class ThreadMember:
    def __init__(self, target):
        self.world = World.worlds[target]
        self.told = threading.Event()
        self.number = int(os.environ["MULTILANE_MEMBER"])
        self.world.made.put(self)
        if self.world.behaviour is None:
            raise ImportError("no module named 'shop'")

    def run(self):
        self.world.behaviour(self)

    def stop(self):
        self.told.set()

    def counts(self):
        return [("lanes.records.settled", {"consumer": "orders"}, 5.0)]


class ThreadJobs:
    """A job is a thread, of which so many may run at once."""

    def __init__(self, slots=9):
        self._slots = threading.Semaphore(slots)
        self.started = []
        self.cancelled = []
        self._ends = {}

    def start(self, plan, on_end):
        self.started.append(plan)
        self._ends[plan.number] = end = once(on_end)
        threading.Thread(target=self._run, args=(plan, end), daemon=True).start()

    def _run(self, plan, on_end):
        if not self._slots.acquire(blocking=False):
            return
        try:
            rows = [batch.to_pylist() for batch in serve(plan, iter([]))]
            assert rows[0][0]["member"] == plan.number
        except Exception as error:  # noqa: BLE001 - as Spark tells of it
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
    def __init__(self, world, jobs, members=2, observer=None, is_stopped=False, **plan):
        self._told = RunPlan(members, f"{__name__}:ThreadMember", world.target, os.getcwd(), **plan), jobs
        self.supervisor = Supervisor(SystemClock(), observer or Counts())
        if is_stopped:
            self.supervisor.stop()
        self.error = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            self.supervisor.run(*self._told)
        except Exception as error:  # noqa: BLE001 - for the test to see
            self.error = error

    def wait(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.error


def test_members_serve_until_they_are_told_to_end(world):
    jobs, counts = ThreadJobs(), Counts()
    running = Running(world, jobs, members=3, observer=counts)
    members = [world.made.get(timeout=PATIENCE) for _ in range(3)]
    running.supervisor.stop()
    assert running.wait() is None
    assert len({id(member) for member in members}) == len(jobs.started) == 3
    assert all(member.told.is_set() for member in members) or jobs.cancelled


def test_a_stop_that_comes_before_the_start(world):
    served = []
    world.behaviour = served.append
    assert Running(world, ThreadJobs(), is_stopped=True).wait() is None
    assert served == []


def test_what_they_count_is_told_here(world):
    counts = Counts()
    served = threading.Event()
    world.behaviour = lambda member: (served.set(), member.told.wait(PATIENCE))
    running = Running(world, ThreadJobs(), members=1, observer=counts)
    assert served.wait(PATIENCE)
    running.supervisor.stop()
    assert running.wait() is None
    assert counts.by("consumer", "lanes.records.settled")["orders"] >= 5


def test_one_that_fails_is_started_again_and_the_others_do_not_notice(world):
    lives = queue.SimpleQueue()
    failures = iter([True])

    def behave(member):
        lives.put(member)
        if next(failures, False):
            raise RuntimeError("the broker is away")
        member.told.wait(PATIENCE)

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
def test_what_starting_again_does_not_mend_ends_the_run(world, error):
    def behave(member):
        raise error

    world.behaviour = behave
    running = Running(world, ThreadJobs())
    told = running.wait()
    assert isinstance(told, MemberFailed)
    assert "cannot run: ConfigError: retryOrder key needs equally many" in str(told)


def test_an_application_that_cannot_be_imported_there(world):
    world.behaviour = None
    told = Running(world, ThreadJobs()).wait()
    assert isinstance(told, MemberFailed)
    assert "cannot run: ImportError: no module named 'shop'" in str(told)


def test_too_few_slots_and_nobody_has_served(world):
    served = []
    world.behaviour = served.append
    jobs = ThreadJobs(slots=2)
    told = Running(world, jobs, members=3, start_seconds=2.0).wait()
    assert isinstance(told, SparkStartError)
    assert "1 of 3 members were not ready within 2 s" in str(told)
    assert served == []
    assert len(jobs.cancelled) == 1


def test_one_that_does_not_end_is_cancelled(world):
    never, served = threading.Event(), threading.Event()
    world.behaviour = lambda member: (served.set(), never.wait(PATIENCE))
    jobs = ThreadJobs()
    running = Running(world, jobs, members=1, drain_seconds=0.5)
    assert served.wait(PATIENCE)
    running.supervisor.stop()
    assert running.wait() is None
    assert jobs.cancelled == [0]
    never.set()


def test_a_spark_that_is_gone_is_said(world):
    class Gone(ThreadJobs):
        def start(self, plan, on_end):
            raise ConnectionRefusedError("nobody listens")

    told = Running(world, Gone()).wait()
    assert isinstance(told, SparkStartError)
    assert "Spark takes no more jobs" in str(told)


def test_members_end_in_order_when_the_driver_is_gone(world):
    """The supervisor fails in the middle: its lines end, and so do those who served."""
    served, ended = queue.SimpleQueue(), queue.SimpleQueue()

    def behave(member):
        served.put(member)
        assert member.told.wait(PATIENCE)
        ended.put(member)

    class Breaks(Counts):
        def count(self, name, value=1, **labels):
            raise ZeroDivisionError("in the driver")

    world.behaviour = behave
    running = Running(world, ThreadJobs(), observer=Breaks())
    members = {served.get(timeout=PATIENCE) for _ in range(2)}
    assert isinstance(running.wait(), ZeroDivisionError)
    assert {ended.get(timeout=PATIENCE) for _ in range(2)} == members


def test_the_token_does_not_show():
    plan = TaskPlan(0, "f", "t", "h", "INFO", ("127.0.0.1", 1), token="hush")
    assert "hush" not in repr(plan)
