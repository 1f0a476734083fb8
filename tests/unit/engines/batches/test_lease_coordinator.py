"""The coordinator and a worker over a real channel, without Spark: leases are granted and returned."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar

import pytest

from multilane.client.group.membership import Identity
from multilane.clock import SystemClock
from multilane.commit.ledger import CommitPoint
from multilane.engines.batches import worker
from multilane.engines.batches.lease_coordinator import CoordinatorSpec, LeaseCoordinator
from multilane.engines.batches.lease_table import LeaseTerms
from multilane.engines.batches.messages import PartitionLease
from multilane.engines.batches.worker import work
from multilane.engines.channel.server import ChannelServer
from multilane.errors import ChannelLost, ConfigError, MemberFailed
from multilane.lanes.assignment import Start
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.types import TopicPartition

ONE = TopicPartition("orders", 1)
TOKEN = "of this run"
ME = Identity("shop", "m-1", 3, None, "consumer")


class Driver:
    """The process that started the query."""

    def __init__(self) -> None:
        self.messages, self.lines, self.coordinators = [], [], []
        self._called = threading.Event()
        self._heard = threading.Condition()
        self.server = ChannelServer("127.0.0.1", "127.0.0.1", TOKEN, self._hear)

    def _hear(self, line):
        self.lines.append(line)
        self._called.set()
        while (message := line.receive()) is not None:
            with self._heard:
                self.messages.append(message)
                self._heard.notify_all()

    @property
    def line(self):
        assert self._called.wait(30)
        return self.lines[0]

    def wait_for(self, kind):
        with self._heard:
            assert self._heard.wait_for(lambda: any(m["kind"] == kind for m in self.messages), 30)
        return next(m for m in self.messages if m["kind"] == kind)


class App:
    """One partition with five records, of no group."""

    def __init__(self, target):
        if target == "broken":
            raise ConfigError("it cannot be made")
        self._over = threading.Event()

    async def run(self, lease_table, former=()):
        self.former = former
        self.processor = lease_table.new_processor("Orders", {ONE: Start(0)})
        lease_table.note_ends("Orders", {ONE: 5})
        while not self._over.is_set():
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)

    def stop(self):
        self._over.set()

    def counts(self):
        return [["kept", {}, 1.0]]

    def gauges(self):
        return [("group.members", {"consumer": "Orders"}, 1)]

    def members(self):
        return (("Orders", ME),)

    def lease_seconds(self):
        return {"Orders": 30.0, "Bills": 0.0}


class Worker:
    """Settles its leases in no time."""

    closed = threading.Event()
    steered: ClassVar[list] = []
    renewed: ClassVar[list] = []
    members: ClassVar[list] = []

    def __init__(self, target):
        if target == "not here":
            raise ModuleNotFoundError("No module named 'shop'")
        self.is_closed = False

    async def open(self, send):
        self._send = send

    async def close(self):
        Worker.closed.set()

    async def serve(self, lease):
        self.steered_before = list(Worker.steered)
        self.renewed_before = list(Worker.renewed)
        Worker.members.append(dict(lease.members))
        done = [
            replace(granted, points=dict.fromkeys(granted.points, CommitPoint(5, 0, ())), settled=5)
            for granted in lease.leases
        ]
        self._send("counts", counts=self.counts(), failures=self.failures())
        self._send("over", number=lease.number, units=[one.to_json() for one in done])
        return done

    async def revoke(self, number, seconds):
        self._send("given", units=[PartitionLease(number, "Orders", {ONE: CommitPoint(3, 0, ())}).to_json()])

    def end(self):
        pass

    def release(self, number, held):
        pass

    def apply_overrides(self, consumer, overrides):
        Worker.steered.append((consumer, overrides))

    def renew(self, until):
        Worker.renewed.append(until)

    def counts(self):
        return [["worked", {}, 5.0]]

    def gauges(self):
        return [("lanes.records.waiting", {"consumer": "Orders"}, 3)]

    def failures(self):
        return [{"kind": ["orders", "ValueError", "shop.py:3"]}]


@pytest.fixture
def driver():
    driver = Driver()
    Worker.closed.clear()
    Worker.steered.clear()
    Worker.members.clear()
    yield driver
    for run in list(worker._workers):
        worker._workers.pop(run).close()
    for line in driver.lines:
        line.close()
    driver.server.close()
    for coordinator in driver.coordinators:
        coordinator.join()


@pytest.fixture
def spec(driver, tmp_path):
    here = str(tmp_path)  # what is imported from there is forgotten at the end
    return CoordinatorSpec(
        run="r1",
        factory="",
        worker_factory="",
        target="shop:app",
        home=here,
        worker_home=here,
        tasks=2,
        terms=LeaseTerms(1.0, 0.0),
        bind="127.0.0.1",
        host="127.0.0.1",
        log_level="INFO",
        token=TOKEN,
        driver=driver.server.address,
    )


def coordinating(driver, spec):
    made = []

    def make(target):
        made.append(App(target))
        return made[-1]

    driver.coordinators.append(LeaseCoordinator(spec, make))
    return driver.coordinators[-1], made[0]


def test_a_lease_is_granted_and_returned(driver, spec):
    coordinator, app = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    [number] = coordinator.plan()
    [lease] = work(spec, coordinator.address, number, Worker)
    assert lease.settled == 5
    assert Worker.members == [{"Orders": "m-1"}], "for the context of its records"
    assert app.processor.commit_point(ONE).offset == 5, "it was known before the task ended"
    assert coordinator.wait_for_work(0), "more has probably come since"
    assert work(spec, coordinator.address, number, Worker) == [], "its batch is over"
    driver.line.send("stop")
    driver.wait_for("ended")
    counted = {name for m in driver.messages if m["kind"] == "beat" for name, _, _ in m["counts"]}
    assert counted >= {"kept", "worked"}
    failed = [one["kind"] for m in driver.messages if m["kind"] == "beat" for one in m["failures"]]
    assert ["orders", "ValueError", "shop.py:3"] in failed


def test_a_lease_lasts_from_when_the_worker_asked_for_it(driver, spec, eventually):
    coordinator, _ = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    [number] = coordinator.plan()
    Worker.renewed.clear()
    before = SystemClock().monotonic()
    work(spec, coordinator.address, number, Worker)
    eventually(lambda: len(Worker.renewed) >= 2, 30)
    first, second = Worker.renewed[:2]
    assert before <= first["Orders"] - 30.0 < second["Orders"] - 30.0 <= SystemClock().monotonic()
    assert first["Bills"] == first["Orders"] - 30.0, "each consumer has its own"
    assert worker._workers[spec.run]._app.renewed_before == [first], "it is known before anything begins"
    driver.line.send("stop")
    driver.wait_for("ended")


def test_a_worker_gets_overrides_before_its_first_lease(driver, spec):
    coordinator, _ = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    driver.line.send("steer", consumer="Orders", steering=ConsumerOverrides(lanes=7).to_json())
    while not coordinator._overrides:  # sent on one channel, granted on another
        threading.Event().wait(0.01)
    [number] = coordinator.plan()
    work(spec, coordinator.address, number, Worker)
    assert Worker.steered == worker._workers[spec.run]._app.steered_before == [("Orders", ConsumerOverrides(lanes=7))]
    driver.line.send("stop")
    driver.wait_for("ended")


# --- before anything begins ------------------------------------------------------------------------------------------


def begun(spec, address, number):
    """A task in a thread; returns its result when it has ended."""
    return ThreadPoolExecutor(1).submit(work, spec, address, number, Worker)


def test_nothing_begins_until_all_tasks_have_a_slot(driver, spec):
    spec = replace(spec, start_seconds=60)
    coordinator, app = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    first, second = coordinator.plan()
    waiting = begun(spec, coordinator.address, first)
    assert not coordinator.wait_for_work(0.1)
    assert not waiting.done()
    assert not hasattr(app, "processor"), "no group was joined"
    assert begun(spec, coordinator.address, second).result(30) == waiting.result(30) == []
    driver.wait_for("assembled")
    assert coordinator.wait_for_work(30)
    [number] = coordinator.plan()
    [lease] = work(spec, coordinator.address, number, Worker)
    assert lease.settled == 5
    assert work(spec, coordinator.address, first, Worker) == [], "a restarted task need not wait"
    driver.line.send("stop")
    driver.wait_for("ended")


def test_too_few_slots_are_an_error_before_anything_begins(driver, spec):
    spec = replace(spec, start_seconds=0.5)
    coordinator, app = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    waiting = begun(spec, coordinator.address, coordinator.plan()[0])
    message = driver.wait_for("failed")
    assert message["is_refused"]
    text = "of 2 tasks found a slot within 0.5 s: ask for fewer with --members, or for more slots"
    assert text in message["error"]
    assert not hasattr(app, "processor")
    with suppress(ChannelLost, MemberFailed):  # it may not have connected
        assert waiting.result(30) == []


def test_a_stop_does_not_wait_for_slots(driver, spec):
    spec = replace(spec, start_seconds=600)
    coordinator, _ = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    driver.line.send("stop")
    driver.wait_for("ended")
    coordinator.join()


def test_a_missing_home_is_an_error(driver, spec):
    with pytest.raises(ConfigError, match="no-such-home"):
        LeaseCoordinator(replace(spec, home=f"{spec.home}/no-such-home"), App)
    assert driver.wait_for("failed")["is_refused"]


# --- the end ---------------------------------------------------------------------------------------------------------


def test_workers_have_closed_what_they_have_when_it_ends(driver, spec):
    coordinator, _ = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    [number] = coordinator.plan()
    work(spec, coordinator.address, number, Worker)
    assert not Worker.closed.is_set()
    driver.line.send("stop")
    driver.wait_for("ended")
    assert Worker.closed.is_set()


def test_a_task_that_was_planned_and_comes_too_late_is_not_waited_for(driver, spec):
    coordinator, app = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    [number] = coordinator.plan()
    work(spec, coordinator.address, number, Worker)
    [late] = coordinator.plan()
    driver.line.send("stop")
    assert app._over.wait(30)
    assert work(spec, coordinator.address, late, Worker) == []
    driver.wait_for("ended")
    assert Worker.closed.is_set()


def test_it_ends_in_order_when_its_query_does(driver, spec):
    coordinator, app = coordinating(driver, spec)
    coordinator.end(30)
    assert app._over.is_set()
    assert driver.wait_for("ended")


def test_no_more_work_is_planned_after_a_stop(driver, spec):
    coordinator, _ = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    driver.line.send("stop")
    driver.wait_for("ended")
    assert not coordinator.wait_for_work(30)


def test_without_its_driver_it_ends(driver, spec):
    coordinator, app = coordinating(driver, spec)
    driver.line.close()
    assert app._over.wait(30)
    assert not coordinator.wait_for_work(30)


def test_an_application_that_cannot_be_made_is_reported_to_the_driver(driver, spec):
    with pytest.raises(ConfigError, match="it cannot be made"):
        LeaseCoordinator(replace(spec, target="broken"), App)
    message = driver.wait_for("failed")
    assert message["is_refused"]
    assert message["error"] == "it cannot be made"


def test_one_that_cannot_be_made_in_a_worker_too(driver, spec):
    coordinator, _ = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    [number] = coordinator.plan()
    with pytest.raises(MemberFailed, match="No module named 'shop'"):
        work(replace(spec, target="not here"), coordinator.address, number, Worker)
    message = driver.wait_for("failed")
    assert message["is_refused"]
    assert "No module named 'shop'" in message["error"]


def test_a_worker_whose_coordinator_is_gone_abandons_its_calls(driver, spec):
    coordinator, _ = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    [number] = coordinator.plan()
    work(spec, coordinator.address, number, Worker)
    worker._workers[spec.run]._channel.close()
    assert Worker.closed.wait(30)
    driver.line.send("stop")
    driver.wait_for("ended")
    coordinator.join()  # it sends `ended` before its server closes
    assert work(spec, coordinator.address, number, Worker) == [], "Spark would run it again and again"


class Busy(Worker):
    """Has a call in flight for as long as it is not closed."""

    begun = threading.Event()

    async def serve(self, lease):
        Busy.begun.set()
        while not Worker.closed.is_set():
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.01)
        return []


def busy_task(driver, spec):
    """A coordinator, and a task that holds its lease."""
    Busy.begun.clear()
    coordinator, _ = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    [number] = coordinator.plan()
    task = ThreadPoolExecutor(1).submit(work, spec, coordinator.address, number, Busy)
    assert Busy.begun.wait(30)
    return coordinator, number, task


def test_a_task_whose_coordinator_dies_ends_without_an_error(driver, spec, caplog):
    """As does any other of its batch: an error would have Spark run it again, and get no answer."""
    coordinator, number, task = busy_task(driver, spec)
    coordinator._server.close()
    for line in list(coordinator._workers):
        line.close()
    assert task.result(30) == []
    assert work(spec, coordinator.address, number, Busy) == []
    assert "abandoning calls in progress" in caplog.text


def test_a_task_that_only_lost_its_connection_is_run_again(driver, spec):
    _, _, task = busy_task(driver, spec)
    worker._workers[spec.run]._channel.disconnect()
    with pytest.raises(ChannelLost):
        task.result(30)


def test_a_stop_in_order_abandons_nothing(driver, spec, caplog):
    caplog.set_level("DEBUG")
    coordinator, _ = coordinating(driver, spec)
    assert coordinator.wait_for_work(30)
    [number] = coordinator.plan()
    work(spec, coordinator.address, number, Worker)
    driver.line.send("stop")
    driver.wait_for("ended")
    assert "the run is over" in caplog.text
    assert "abandoned" not in caplog.text
    assert "gone" not in caplog.text


def test_the_driver_passes_the_members_to_the_next_coordinator(driver, spec):
    _, app = coordinating(driver, replace(spec, former=(("Orders", ME),)))
    assert driver.wait_for("beat")["members"] == [["Orders", "shop", "m-1", 3, None, "consumer"]]
    assert app.former == (("Orders", ME),)


def test_a_worker_without_the_token_is_rejected(driver, spec):
    coordinator, _ = coordinating(driver, spec)
    with pytest.raises(MemberFailed, match="is not this run's driver"):
        work(replace(spec, token="another"), coordinator.address, 1, Worker)


def test_a_spec_does_not_show_its_token(spec):
    assert TOKEN not in repr(spec)
