"""`multilane run --metrics`: the page that Prometheus scrapes, and the probes."""

from __future__ import annotations

import http.client
import select
import socket
import threading
import urllib.error
import urllib.request
from contextlib import ExitStack, suppress

import pytest

from multilane.app import metrics_server
from multilane.app.app import App
from multilane.app.metrics_server import parse_address, served
from multilane.app.probes import stalled
from multilane.clock import SystemClock
from multilane.dev.ports import ReservedPorts
from multilane.errors import ConfigError
from multilane.lanes.liveness import REPORTS_WITHIN
from multilane.lanes.progress import Progress
from multilane.metrics.observer import Gauge

CONFIG = """
clusters: {main: {clientId: x, brokers: "127.0.0.1:1"}}
consumers: {orders: {groupId: g, name: orders, cluster: main, onFailure: drop}}
"""


@pytest.fixture
def app(tmp_path):
    path = tmp_path / "multilane.yaml"
    path.write_text(CONFIG)
    return App(path)


@pytest.fixture
def port():
    with ReservedPorts(1) as ports:
        yield ports.ports[0]


def get(port: int, path: str) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
        return answer.read().decode()


def probe(port: int, path: str) -> tuple[int, str]:
    try:
        return 200, get(port, path)
    except urllib.error.HTTPError as refusal:
        with refusal:
            return refusal.code, refusal.read().decode()


def test_what_the_app_counts_is_served_while_it_runs(app, port):
    before = app.observer
    with served(app, f"127.0.0.1:{port}"):
        app.observer.count("lanes.records.settled", 3, consumer="orders")
        assert 'multilane_lanes_records_settled_total{consumer="orders"} 3.0' in get(port, "/metrics")
        assert probe(port, "/secrets")[0] == 404
    assert app.observer is before
    with pytest.raises(urllib.error.URLError):
        get(port, "/metrics")


def test_the_probes_follow_the_run(app, port):
    @app.listener("orders")
    async def index(record):
        pass

    member = Gauge("group.members", {"consumer": "orders"}, 1)
    with served(app, f"127.0.0.1:{port}"):
        assert probe(port, "/livez") == (200, "ok\n")
        assert probe(port, "/readyz") == (503, "the run has not begun\n")
        app.progress = Progress(clock=SystemClock())
        assert probe(port, "/readyz") == (503, "consumer orders is not in its group\n")
        app.progress.note_gauges([member])
        assert probe(port, "/readyz") == probe(port, "/livez") == (200, "ok\n")
        silent = SystemClock().monotonic() - REPORTS_WITHIN - 5
        app.progress.liveness.note_gauges(7, [], silent)
        status, reason = probe(port, "/livez")
        assert status == 503
        assert "1 of 2 processes that run lanes have not reported" in reason
        app.progress.forget(7)
        assert probe(port, "/livez") == (200, "ok\n")


def test_slow_clients_are_few_at_a_time_and_cut_off(app, port, monkeypatch):
    """The timeout was for each byte, and every client had a thread."""
    monkeypatch.setattr(metrics_server, "_TIMEOUT", 0.5)
    monkeypatch.setattr(metrics_server, "_MAX_CLIENTS", 3)
    threads = lambda: [t for t in threading.enumerate() if t.name == "multilane-scraper"]  # noqa: E731
    with served(app, f"127.0.0.1:{port}"), ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(8)]
        with suppress(ConnectionError):
            while not select.select([slow[0]], [], [], 0.05)[0]:
                slow[0].sendall(b"G")
                assert len(threads()) <= 3
        assert probe(port, "/livez") == (200, "ok\n"), "the others are cut off too"


def test_a_page_that_fails_is_logged_and_ends_nothing(app, port, caplog):
    with served(app, f"127.0.0.1:{port}"):
        app.progress = object()
        with pytest.raises((ConnectionError, http.client.HTTPException, urllib.error.URLError)):
            get(port, "/readyz")
        app.progress = None
        assert probe(port, "/livez") == (200, "ok\n")
    assert "metrics: a request failed" in caplog.text


def test_a_paused_consumer_is_live(app):
    @app.listener("orders")
    async def index(record):
        pass

    app.progress = Progress(clock=SystemClock())
    calls = Gauge("lanes.calls", {"consumer": "orders"}, 1)
    for now in range(500):
        app.progress.liveness.note_gauges(None, [calls], now)
    assert stalled(app, 499) == ["consumer orders: no progress for 499 s, while 1 calls run"]
    app.pause("orders")
    assert stalled(app, 499) == []


def test_without_an_address_nothing_listens(app):
    before = app.observer
    with served(app, None):
        assert app.observer is before


def test_a_port_that_is_taken_is_named(app, port):
    is_taken = pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}.*Choose another port")
    with served(app, f":{port}"), is_taken, served(app, f":{port}"):
        raise AssertionError("two servers at one port")


@pytest.mark.parametrize("text", ["9400", "localhost:", "localhost:http", "localhost:0", "localhost:70000", ""])
def test_what_is_no_address_says_so(text):
    with pytest.raises(ConfigError, match="HOST:PORT"):
        parse_address(text)


def test_a_port_alone_is_this_machine():
    assert parse_address(":9400") == ("127.0.0.1", 9400)
