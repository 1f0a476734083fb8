"""A consumer that has to know something before it joins its group waits for it, and ends nobody else's start."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lane_world import until
from multilane.app.app import App
from multilane.clock import ManualClock
from multilane.errors import AuditNotWritten
from multilane.lanes.worker import WorkerDied
from multilane.runtime import starting
from multilane.wire.records.record import Record
from process_functions import Endless


@pytest.mark.parametrize("keys", [{"retryOrder": "key"}, {"uniqueListener": True, "batchSize": 5}])
async def test_brokers_that_are_down_are_waited_for(tmp_path, monkeypatch, caplog, unused_tcp_port, keys):
    """The whole app ended with an error, where the same app without retryOrder waits."""
    monkeypatch.setattr(starting, "_REQUEST_TIMEOUT", 0.05)
    monkeypatch.setattr(starting, "_RETRY_BACKOFF", 0.01)
    cluster = {"clientId": "c", "brokers": f"127.0.0.1:{unused_tcp_port}"}
    consumer = {"groupId": "g", "name": "t", "cluster": "main", "retry": "r", "virtualPartitionCount": 2, **keys}
    (tmp_path / "multilane.yaml").write_text(json.dumps({"clusters": {"main": cluster}, "consumers": {"o": consumer}}))
    app = App(tmp_path / "multilane.yaml")

    @app.listener("o")
    async def handle(record: Record) -> None:
        raise AssertionError("there is no broker")

    with caplog.at_level(logging.WARNING, "multilane"):
        task = asyncio.create_task(app.serve())
        lines = lambda: [r for r in caplog.records if "consumer o cannot start yet" in r.getMessage()]  # noqa: E731
        await until(lambda: lines() or task.done())
        assert not task.done()
        app.stop()
        await asyncio.wait_for(task, 30.0)
        assert len(lines()) == 1, "it asks again and again, and says so once"


async def test_a_stop_does_not_wait_for_worker_processes_that_never_begin(tmp_path, unused_tcp_port):
    """Such an import kept the application for ever, and the worker lived on without it."""
    cluster = {"clientId": "c", "brokers": f"127.0.0.1:{unused_tcp_port}"}
    consumer = {"groupId": "g", "name": "t", "cluster": "main", "processes": 1}
    (tmp_path / "multilane.yaml").write_text(json.dumps({"clusters": {"main": cluster}, "consumers": {"o": consumer}}))
    app = App(tmp_path / "multilane.yaml")
    app.listener("o")(Endless())
    task = asyncio.create_task(app.serve())
    await until(lambda: multiprocessing.active_children() or task.done())
    [worker] = multiprocessing.active_children()
    app.stop()
    await asyncio.wait_for(task, 30.0)
    await asyncio.to_thread(worker.join, 30.0)
    assert not worker.is_alive()


class Opening:
    """A lane factory whose `open` raises these errors first."""

    def __init__(self, *errors: Exception) -> None:
        self.config = SimpleNamespace(name="o")
        self._errors = list(errors)
        self.opens = 0

    async def open(self) -> None:
        self.opens += 1
        if self._errors:
            raise self._errors.pop(0)


def out_of_reach(*, retriable: bool = True) -> AuditNotWritten:
    error = AuditNotWritten("audit: cannot write to s3://books: no route")
    error.retriable = retriable
    return error


@pytest.fixture
def hurried(monkeypatch):
    monkeypatch.setattr(starting, "_RETRY_BACKOFF", 0.001)
    monkeypatch.setattr(starting, "_LONGEST_BACKOFF", 0.001)


async def opened(factory: Opening) -> bool:
    return await starting.opened(cast("Any", factory), ManualClock(), asyncio.Event())


async def test_remote_audit_storage_that_is_out_of_reach_is_waited_for(hurried, caplog):
    """It ended the app, and so all other groups."""
    factory = Opening(*(out_of_reach() for _ in range(9)))
    with caplog.at_level(logging.WARNING, "multilane"):
        assert await opened(factory)
    assert factory.opens == 10
    [line] = [r.getMessage() for r in caplog.records]
    assert "consumer o cannot start yet, retrying: audit: cannot write to s3://books: no route" in line


async def test_what_will_not_pass_ends_the_start_at_once(hurried):
    factory = Opening(out_of_reach(retriable=False))
    with pytest.raises(AuditNotWritten):
        await opened(factory)
    assert factory.opens == 1


@pytest.mark.parametrize("error", [WorkerDied("worker process 7 was killed by SIGKILL"), OSError("no more processes")])
async def test_worker_processes_that_die_at_start_are_started_again(hurried, error):
    factory = Opening(error, error)
    assert await opened(factory)
    assert factory.opens == 3


async def test_worker_processes_that_never_start_end_the_app(hurried):
    factory = Opening(*(WorkerDied("worker process 7 ended with exit code 1") for _ in range(9)))
    with pytest.raises(WorkerDied, match="consumer o: its worker processes could not start, 5 times in a row: worker"):
        await opened(factory)
    assert factory.opens == 5


async def test_a_stop_ends_the_wait_for_a_start():
    factory, stopping = Opening(*(out_of_reach() for _ in range(9))), asyncio.Event()
    task = asyncio.create_task(starting.opened(cast("Any", factory), ManualClock(), stopping))
    await until(lambda: factory.opens)
    stopping.set()
    assert await asyncio.wait_for(task, 30.0) is False
    assert factory.opens == 1


async def test_a_loop_is_asked_whether_it_runs_after_the_engine_has_ended_too(tmp_path, unused_tcp_port):
    """A task that a function had left blocked it then, and the last resort took that for the end of everything."""
    cluster = {"clientId": "c", "brokers": f"127.0.0.1:{unused_tcp_port}"}
    consumer = {"groupId": "g", "name": "t", "cluster": "main"}
    (tmp_path / "multilane.yaml").write_text(json.dumps({"clusters": {"main": cluster}, "consumers": {"o": consumer}}))
    app = App(tmp_path / "multilane.yaml")

    @app.listener("o")
    async def handle(record: Record) -> None: ...

    app.stop()
    await asyncio.wait_for(app.serve(), 30.0)
    answered = asyncio.Event()
    app._call_on_loop(answered.set)
    assert not answered.is_set()
    await asyncio.wait_for(answered.wait(), 30.0)
