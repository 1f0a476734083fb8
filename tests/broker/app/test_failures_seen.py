"""Failures on a real Kafka are seen: in the log, and in the headers of copies."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import urlopen

import pytest

from broker.app.conftest import running
from lane_world import until
from multilane.runtime.app import App
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]

ORDERS = 40


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


async def test_an_outage_is_in_the_log_and_in_the_headers(shop, caplog):
    shop.fill([f"customer {number}" for number in range(ORDERS)])
    retry, error = shop.make_topic(2), shop.make_topic(2)
    app = shop.app(retry=retry, error=error, retryCount=2, retryBackoff={"delay": "0s"}, maxProcessingTime="30s")

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


async def test_a_copy_that_only_its_stack_makes_too_large_is_stored_without_it(shop):
    shop.fill(["a"], partitions=1)
    error = shop.make_topic(1, **{"max.message.bytes": "1500"})
    app = shop.app(error=error, retryBackoff={"delay": "0s"})

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
