"""A consumer that has to know something before it joins its group waits for it, and ends nobody else's start."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing

import pytest

from lane_world import until
from multilane.app.app import App
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
