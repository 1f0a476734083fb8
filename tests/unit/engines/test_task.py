"""The frame of a task, against a driver over a real connection."""

from __future__ import annotations

import os
import queue

import pytest

from multilane.engines.channel.server import ChannelServer
from multilane.engines.task import CLEANLY, NOT_NEEDED, TaskSpec, ended_row, run_in_worker

PATIENCE = 10.0


class Driver:
    """Puts what tasks send into a queue, and None when a connection has ended."""

    def __init__(self):
        self.messages = queue.SimpleQueue()
        self.server = ChannelServer("127.0.0.1", "127.0.0.1", "the token", self._receive)

    def _receive(self, channel):
        channel.send("go")
        while (message := channel.receive()) is not None:
            self.messages.put(message)
        self.messages.put(None)

    def received(self):
        return list(iter(lambda: self.messages.get(timeout=PATIENCE), None))


@pytest.fixture
def driver():
    made = Driver()
    yield made
    made.server.close()


@pytest.fixture
def spec(driver, tmp_path):
    lines = ["import os", "def make(target):", "    return target, os.getcwd()", "def leave(target):"]
    code = "\n".join([*lines, "    raise SystemExit(3)", ""])
    (tmp_path / "task_shop.py").write_text(code)
    return lambda factory: TaskSpec(factory, "shop:app", str(tmp_path), "INFO", driver.server.address, "the token")


def test_a_worker_is_made_in_its_home_and_run_there(driver, spec, tmp_path):
    before, received, ran = os.getcwd(), queue.SimpleQueue(), []

    def run(task, worker):
        task.start_receiver(lambda: received.put(task.channel.receive()))
        ran.append((worker, os.getcwd(), received.get(timeout=PATIENCE)))
        task.channel.send("hello", number=task.number)
        return CLEANLY

    how = run_in_worker(spec("task_shop:make"), 7, "task", lambda task: task.load_worker(), run)
    home = os.path.realpath(tmp_path)
    assert (how, ran) == (CLEANLY, [(("shop:app", home), home, {"kind": "go"})])
    assert os.getcwd() == before
    assert driver.received() == [{"kind": "hello", "number": 7}]


@pytest.mark.parametrize(
    ("factory", "error"),
    [("task_shop:leave", "SystemExit: 3"), ("task_shop:none", "AttributeError: module 'task_shop' has no attribute")],
)
def test_a_worker_that_cannot_be_made_is_reported_and_does_not_fail_the_task(driver, spec, factory, error):
    ran = []
    how = run_in_worker(spec(factory), 7, "task", lambda task: task.load_worker(lasting=True), lambda *_: ran.append(1))
    assert how.startswith(error)
    assert ran == []
    assert driver.received() == [{"kind": "failed", "number": 7, "error": how, "lasting": True}]


def test_a_task_that_its_driver_does_not_need(driver, spec):
    ran = []
    how = run_in_worker(spec("task_shop:make"), 7, "task", lambda task: None, lambda *_: ran.append(1))
    assert (how, ran, driver.received()) == (NOT_NEEDED, [], [])


def test_the_token_does_not_show(spec):
    assert "the token" not in repr(spec("task_shop:make"))


def test_the_row_of_a_task():
    assert ended_row("task", 7, CLEANLY).to_pydict() == {"task": [7], "ended": ["cleanly"]}
