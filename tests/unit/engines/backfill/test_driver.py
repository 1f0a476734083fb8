"""A backfill's driver with tasks in threads of this process: the same tasks and lines as on Spark, without Spark."""

from __future__ import annotations

import os
import queue
import threading
from dataclasses import replace
from typing import ClassVar

import pytest

from multilane.engines.backfill.driver import BackfillDriver, BackfillRunSpec
from multilane.engines.backfill.progress import BackfillPlan, ProgressReport, new_progress
from multilane.engines.backfill.states import BackfillState
from multilane.engines.backfill.worker import run_task
from multilane.errors import ChannelLost, ConfigError, MemberFailed, SparkStartError
from multilane.metrics.observer import NO_OBSERVER, Counts
from multilane.outcome.in_place import ExhaustedRecord
from multilane.spark import executor_news

PATIENCE = 20.0
PLAN = BackfillPlan("orders", "shop.orders", "orders", None, "earliest", "latest", {0: (0, 10), 1: (0, 30), 2: (5, 5)})


class World:
    """What workers of a test do. They find it by the name of their target."""

    worlds: ClassVar[dict[str, World]] = {}

    def __init__(self, name):
        self.name = name
        self.worlds[name] = self
        self.errands = queue.SimpleQueue()
        self.behaviour = ThreadWorker.work_off


class ThreadWorker:
    def __init__(self, target):
        self.world = World.worlds[target]
        self.stopped, self.aborted = threading.Event(), threading.Event()
        if self.world.behaviour is None:
            raise ImportError("no module named 'shop'")

    def run(self, errand, tell):
        self.errand, self.tell = errand, tell
        self.world.errands.put(self)
        return self.world.behaviour(self)

    def work_off(self):
        """All of it at once."""
        places = {partition: (end, ()) for partition, end in self.errand.ends.items()}
        return ProgressReport(places, sum(self.errand.ends.values()))

    def stop(self):
        self.stopped.set()

    def abort(self):
        self.aborted.set()

    def news(self):
        return {"counts": [], "failures": [], "gauges": []}


class ThreadJob:
    """Tasks are threads; one that raises is started again, up to four times, as Spark does."""

    def __init__(self, tries=4, slots=9):
        self._tries = tries
        self._slots = threading.Semaphore(slots)
        self.cancelled = threading.Event()
        self.tasks = 0

    def start(self, spec, tasks, on_end):
        self.tasks = tasks
        threading.Thread(target=self._run, args=(spec, tasks, on_end), daemon=True).start()

    def _run(self, spec, tasks, on_end):
        ended = queue.SimpleQueue()
        for number in range(tasks):
            threading.Thread(target=self._attend, args=(spec, number, ended), daemon=True).start()
        errors = [ended.get(timeout=PATIENCE) for _ in range(tasks)]
        on_end(next(filter(None, errors), None))

    def _attend(self, spec, number, ended):
        error = None
        with self._slots:
            for _ in range(self._tries):
                if self.cancelled.is_set():
                    break
                try:
                    run_task(spec, number)
                except Exception as failure:  # noqa: BLE001 - as Spark tells of it
                    error = failure
                else:
                    error = None
                    break
        ended.put(error)

    def cancel(self):
        self.cancelled.set()


class Kept:
    def __init__(self):
        self.saved, self.failed, self.has_listed = [], [], threading.Event()

    def save(self, progress):
        self.saved.append(progress.to_json())

    def list_failed(self, progress, failed):
        self.failed += failed
        self.has_listed.set()


@pytest.fixture
def world(request):
    return World(request.node.name)


@pytest.fixture(autouse=True)
def _environment(monkeypatch):
    monkeypatch.setenv("MULTILANE_MEMBER", "0")  # and taken back at the end


class Running:
    def __init__(self, world, job=None, tasks=2, observer=NO_OBSERVER, **spec):
        self.job, self.kept, self.progress, self.standings = job or ThreadJob(), Kept(), new_progress(PLAN), []
        self.driver = BackfillDriver(self.progress, self.kept, self.standings.append, observer=observer)
        self._spec = BackfillRunSpec(tasks, f"{__name__}:ThreadWorker", world.name, os.getcwd(), **spec)
        self.error = None

    def run(self):
        try:
            self.driver.run(self._spec, self.job)
        except Exception as error:  # noqa: BLE001 - for the test to see
            self.error = error

    def begin(self):
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def wait(self):
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()
        return self.error


def test_every_partition_has_one_task_and_all_is_written(world):
    running = Running(world)
    running.run()
    assert running.error is None
    errands = [world.errands.get_nowait().errand for _ in range(2)]
    assert sorted(p for errand in errands for p in errand.starts) == [0, 1]
    assert running.job.tasks == 2
    assert running.progress.is_through
    assert running.kept.saved[-1]["records"] == 40
    assert running.driver.status.records == 40


class Observed(Counts):
    def __init__(self):
        super().__init__()
        self.at = {}  # by source

    def gauges(self, source, values):
        self.at[source] = {(gauge.name, gauge.labels.get("partition", "")): gauge.value for gauge in values}


def test_an_observer_is_given_what_tasks_report_and_what_the_driver_knows(world, monkeypatch):
    monkeypatch.setattr(ThreadWorker, "news", lambda self: NEWS)
    observed = Observed()

    def work_off(worker):
        first = min(worker.errand.ends)
        worker.tell(ProgressReport({first: (4, ())}, 4))
        return worker.work_off()

    world.behaviour = work_off
    running = Running(world, observer=observed)
    assert running.driver.unready == ["no task has begun"]
    running.run()
    assert running.error is None
    assert running.driver.unready == ["the run is ended"]
    assert observed.total("lanes.records.settled") == running.progress.records
    assert observed.total("lanes.records.retried") == 4 * 2, "two reports of each task"
    last = observed.at[""]
    assert last["backfill.position", "1"] == 30
    assert [last["backfill.remaining", partition] for partition in "012"] == [0, 0, 0]
    assert last["backfill.tasks", ""] == last["backfill.failed", ""] == 0
    assert {observed.at[source] == {} for source in ("0", "1")} == {True}, "tasks that ended have no gauges"


NEWS = {
    "counts": [("lanes.records.retried", {"consumer": "orders"}, 2.0)],
    "failures": [],
    "gauges": [("lanes.calls", {"consumer": "orders"}, 3.0)],
}


class News:
    """What the JVM's schedulers write into memory."""

    is_over = False

    def end(self):
        self.is_over = True


def test_once_a_task_runs_nobody_listens_to_the_scheduler_any_more(world, monkeypatch):
    news = News()
    monkeypatch.setattr(executor_news, "_news", [news])
    running = Running(world)
    running.run()
    assert running.error is None
    assert news.is_over


def test_a_task_that_died_gets_what_was_known(world):
    lives = iter([1, 2])

    def behave(worker):
        if 1 not in worker.errand.starts or next(lives) == 2:
            return worker.work_off()
        worker.tell(ProgressReport({1: (10, ((12, 13),))}, 12, (ExhaustedRecord(1, 4, 2, "ValueError", "never"),)))
        assert running.kept.has_listed.wait(PATIENCE)
        raise OSError("killed")

    world.behaviour = behave
    running = Running(world, tasks=1)
    running.run()
    assert running.error is None
    assert world.errands.get_nowait().errand.starts[1] == (0, ())
    assert world.errands.get_nowait().errand.starts[1] == (10, ((12, 13),))
    assert [one.offset for one in running.kept.failed] == [4]


def test_one_that_always_dies_ends_the_run_and_what_was_done_is_kept(world):
    def behave(worker):
        worker.tell(ProgressReport({1: (10, ())}, 10))
        raise OSError("the disk is full")

    world.behaviour = behave
    running = Running(world, tasks=1)
    running.run()
    assert isinstance(running.error, MemberFailed)
    assert "task 0 failed: OSError: the disk is full. The progress is saved" in str(running.error)
    assert running.kept.saved[-1]["places"]["1"] == [10, []]


@pytest.mark.parametrize("error", [ConfigError("no such consumer")])
def test_what_would_be_the_same_next_time_ends_the_run_at_once(world, error):
    def behave(worker):
        raise error

    world.behaviour = behave
    running = Running(world, tasks=1)
    running.run()
    assert "task 0 failed: no such consumer" in str(running.error)
    assert world.errands.get_nowait()
    assert world.errands.empty(), "nobody tries it again"


def test_an_application_that_cannot_be_imported_there(world):
    world.behaviour = None
    running = Running(world)
    running.run()
    assert "ImportError: no module named 'shop'" in str(running.error)


class FullCluster:
    """Has no slot for anybody; a job that is cancelled ends."""

    def start(self, spec, tasks, on_end):
        self._on_end = on_end

    def cancel(self):
        self._on_end(RuntimeError("the job was cancelled"))


def test_a_cluster_without_a_slot_is_not_waited_for_for_ever(world):
    running = Running(world, FullCluster(), start_seconds=0.0)
    running.run()
    assert isinstance(running.error, SparkStartError)
    assert "no task found a slot within 0 s: Spark has no executor for this run" in str(running.error)
    assert not running.kept.saved, "nothing was done"


def test_an_application_that_is_not_there(world):
    running = Running(world)
    running._spec = replace(running._spec, home=f"{os.getcwd()}/nowhere")
    running.run()
    assert "nowhere is not on" in str(running.error)
    assert "--archive APP.zip" in str(running.error)


def test_a_stop_ends_those_at_work_in_order_and_those_that_wait_are_not_wanted(world):
    def behave(worker):
        assert worker.stopped.wait(PATIENCE)
        partition = next(iter(worker.errand.starts))
        return ProgressReport({partition: (worker.errand.starts[partition][0] + 1, ())}, 1)

    world.behaviour = behave
    running = Running(world, ThreadJob(slots=1)).begin()
    world.errands.get(timeout=PATIENCE)
    running.driver.stop()
    assert running.wait() is None
    assert running.driver.state is BackfillState.STOPPED
    assert running.kept.saved[-1]["records"] == 1
    assert world.errands.empty(), "the other one was not begun"
    assert running.job.cancelled.is_set()


def test_a_stop_that_comes_before_the_start(world):
    running = Running(world)
    running.driver.stop()
    running.run()
    assert running.error is None
    assert not running.progress.is_through


def test_who_lost_its_place_gives_up_and_is_not_listened_to(world):
    """A task that Spark believed to be dead, and that is not."""
    first, second = queue.SimpleQueue(), queue.SimpleQueue()

    def behave(worker):
        if first.empty():
            first.put(worker)
            assert worker.aborted.wait(PATIENCE)
            try:
                for _ in range(1_000):  # until the line is known to be gone
                    worker.tell(ProgressReport({0: (1, ())}, 1))
            except ChannelLost:
                second.put("gone")
                raise
        return worker.work_off()

    world.behaviour = behave
    running = Running(world, Twice(), tasks=1)
    running.run()
    assert running.error is None
    assert second.get(timeout=PATIENCE) == "gone"
    assert running.progress.is_through
    assert running.progress.records == 40


class Twice(ThreadJob):
    """Two attempts at one task at the same time."""

    def _run(self, spec, tasks, on_end):
        ended = queue.SimpleQueue()
        threads = [threading.Thread(target=self._attend, args=(spec, 0, ended), daemon=True) for _ in range(2)]
        self._tries = 1
        threads[0].start()
        World.worlds[spec.target].errands.get(timeout=PATIENCE)
        threads[1].start()
        [ended.get(timeout=PATIENCE) for _ in range(2)]
        on_end(None)
