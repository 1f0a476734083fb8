"""`multilane run --metrics`: the page that Prometheus scrapes."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from multilane.app.app import App
from multilane.app.metrics_server import parse_address, served
from multilane.dev.ports import ReservedPorts
from multilane.errors import ConfigError

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


def test_what_the_app_counts_is_served_while_it_runs(app, port):
    before = app.observer
    with served(app, f"127.0.0.1:{port}"):
        app.observer.count("lanes.records.settled", 3, consumer="orders")
        assert 'multilane_lanes_records_settled_total{consumer="orders"} 3.0' in get(port, "/metrics")
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get(port, "/secrets")
    assert app.observer is before
    with pytest.raises(urllib.error.URLError):
        get(port, "/metrics")


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
