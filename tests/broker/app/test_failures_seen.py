"""Failures on a real Kafka are seen: in the log, and in the headers of copies."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

import pytest
from pydantic import BaseModel, ConfigDict
from typer.testing import CliRunner

from broker.app.conftest import running
from lane_world import until
from multilane.app.app import App
from multilane.app.control import controlled
from multilane.cli import main
from multilane.client.produce.producer import Producer
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]

ORDERS = 40
QUICK = {"retryBackoff": {"delay": "0s"}}
HOSTILE = "x\n2026-01-01 00:00:00,000 INFO multilane: all is well\x1b[2J\u202e"


class Refusing(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_error(500)

    def log_message(self, *_: object) -> None:
        """Not in the test's output."""


@contextmanager
def dependency() -> Iterator[str]:
    """Something that a handler calls, and that is down."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/"
        finally:
            server.shutdown()
            thread.join()


def dead(app: App) -> int | None:
    return None if app.progress is None else app.progress.facts().get("orders", {}).get("dead")


async def test_a_dependency_that_is_down_is_in_the_log_and_in_the_headers(shop, caplog):
    """Without a pause in outages: its records go their way to the error topic."""
    shop.fill([f"customer {number}" for number in range(ORDERS)])
    retry, error = shop.make_topic(2), shop.make_topic(2)
    app = shop.app(retry=retry, error=error, retryCount=2, errorBreaker={"action": "off"}, **QUICK)

    with caplog.at_level(logging.INFO, "multilane"), dependency() as address:

        @app.listener("orders")
        def index(record: Record) -> None:
            urlopen(address, timeout=10).close()  # noqa: S310 - our own server

        async with running(app) as task:
            await until(lambda: task.done() or dead(app) == ORDERS, 60)
        await task
    first = [r for r in caplog.records if "Traceback" in r.getMessage()]
    assert len(first) == 1, "one kind"
    assert first[0].levelno >= logging.WARNING
    assert f"{shop.main}-" in first[0].getMessage()
    assert "in index" in first[0].getMessage()
    assert "HTTPError at app/test_failures_seen.py:" in first[0].getMessage()
    closing = next(r.getMessage() for r in caplog.records if "run total" in r.getMessage())
    assert f"failed {3 * ORDERS}, retried {2 * ORDERS}, dead {ORDERS}" in closing
    copies = shop.read_all(error)
    assert len(copies) == ORDERS
    headers = dict(copies[0].headers)
    assert headers["X-ErrorClass"] == b"urllib.error.HTTPError"
    assert b"in index" in headers["X-ErrorStack"]
    assert headers["X-ErrorMessage"].startswith(b"HTTPError: HTTP Error 500")


class Order(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: int


async def test_a_payload_cannot_forge_a_log_line(shop, caplog):
    """Pydantic names the keys that it does not know."""
    main = shop.fill([])
    payload = json.dumps({"id": 1, HOSTILE: 1}).encode()
    with Producer({"bootstrap.servers": shop.bootstrap}) as producer:
        producer.send_many([(main, payload, HOSTILE.encode())]).result(30)  # alone: only the first of a kind is logged
    app = shop.app(error=shop.make_topic(1), **QUICK)

    @app.listener("orders")
    async def index(order: Order, record: Record) -> None:
        raise AssertionError("nothing can be decoded")

    with caplog.at_level(logging.DEBUG, "multilane"):
        async with running(app) as task:
            await until(lambda: task.done() or dead(app) == 1, 30)
        await task
    lines = [line for line in caplog.text.split("\n") if not line.startswith("  ")]
    assert any("all is well" in line for line in caplog.text.split("\n")), "it is told"
    assert not any(line.startswith("2026-01-01") for line in lines)
    assert all(line.isprintable() for line in caplog.text.split("\n"))


async def test_a_copy_that_only_its_stack_makes_too_large_is_stored_without_it(shop):
    shop.fill(["a"], partitions=1)
    error = shop.make_topic(1, **{"max.message.bytes": "1500"})
    app = shop.app(error=error, **QUICK)

    def deep(left: int) -> None:
        if left:
            deep(left - 1)
        raise ValueError("no stock")

    @app.listener("orders")
    async def index(record: Record) -> None:
        deep(40)

    async with running(app) as task:
        await until(lambda: task.done() or dead(app) == 1, 30)
    await task
    [copy] = shop.read_all(error)
    headers = dict(copy.headers)
    assert "X-ErrorStack" not in headers
    assert headers["X-ErrorClass"] == b"ValueError"


async def test_top_shows_failures_from_the_brokers_and_from_the_app(shop, tmp_path):
    shop.fill([f"customer {number}" for number in range(4_000)])
    error = shop.make_topic(2)
    app = shop.app(error=error, virtualPartitionCount=4, **QUICK)

    @app.listener("orders")
    async def index(record: Record) -> None:
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.02)
        if int(record.value or b"") % 4 == 0:
            raise ValueError("no stock of item 4711")

    socket = tmp_path / "control"
    command = ["top", "--config", str(shop.folder / "multilane.yaml"), "--once", "--every", "1500ms"]
    with controlled(app, socket):
        async with running(app) as task:
            await until(lambda: task.done() or (app.progress is not None and app.progress.facts()), 30)
            people = await asyncio.to_thread(CliRunner().invoke, main.app, command)
            options = ["--control", str(socket), "-o", "json"]
            programs = await asyncio.to_thread(CliRunner().invoke, main.app, [*command, *options])
    assert "FAILING " in people.output
    assert "/s to the error topic" in people.output
    assert "error: ValueError: no stock of item #" in people.output
    [group] = json.loads(programs.stdout)["groups"]
    assert group["failures"]["dead_per_second"] > 0
    assert group["failures"]["app"]["failed"] > 0
    assert "ValueError at app/test_failures_seen.py:" in group["failures"]["app"]["errors"][0]["error"]
