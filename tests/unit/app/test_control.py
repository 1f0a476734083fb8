"""An application that is steered over its socket, by the command, without running."""

from __future__ import annotations

import json
import select
import socket
import threading
from contextlib import ExitStack, suppress

import pytest
from typer.testing import CliRunner

from multilane.app import control as control_module
from multilane.app.app import App
from multilane.app.control import ask, controlled
from multilane.app.runtime_overrides import RuntimeOverrides
from multilane.cli.main import app as program
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.model import AppConfig
from multilane.errors import ConfigError
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.wire.records.record import Record


def application() -> App:
    def consumer(name: str, lanes: int) -> ConsumerGroupConfig:
        return ConsumerGroupConfig(name=name, group_id="g", topic=name, cluster="main", lanes=lanes)

    cluster = ClusterConfig(name="main", client_id="c", brokers=("127.0.0.1:1",))
    consumers = {"orders": consumer("orders", 20), "serial": consumer("serial", 0), "idle": consumer("idle", 1)}
    app = App(AppConfig(clusters={"main": cluster}, consumers=consumers))

    async def handle(record: Record) -> None:
        """Nothing comes."""

    app.listener("orders")(handle)
    app.listener("serial")(handle)
    return app


@pytest.fixture
def path(tmp_path):
    return tmp_path / "control"


def run(*arguments: object):
    return CliRunner().invoke(program, ["control", *map(str, arguments)])


def test_the_command_steers_and_shows(path):
    app, heard = application(), []
    with controlled(app, path), app.overrides.applied_by(lambda *said: heard.append(said)):
        assert run(path, "pause", "orders").exit_code == 0
        assert run(path, "lanes", "orders", 50).exit_code == 0
        shown = run(path)
        assert "paused" in shown.output
        assert "50" in shown.output
        assert run(path, "resume", "orders").exit_code == 0
        told = json.loads(run(path, "show", "--output", "json").output)
        assert told["orders"] == {"paused": False, "lanes": 50, "configured": 20}
        assert run(path, "lanes", "orders").exit_code == 0
    assert heard == [
        ("orders", ConsumerOverrides(is_paused=True)),
        ("orders", ConsumerOverrides(is_paused=True, lanes=50)),
        ("orders", ConsumerOverrides(lanes=50)),
        ("orders", ConsumerOverrides()),
    ]
    assert not path.exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("pause", "order"), "orders"),
        (("pause", "idle"), "consumer 'idle' does not run: it has no listener"),
        (("lanes", "serial", 5), "it has no lanes"),
        (("lanes", "orders", 0), "0 lanes: from 1 to"),
    ],
)
def test_what_cannot_be_is_reported(path, arguments, said):
    app = application()
    with controlled(app, path):
        ran = run(path, *arguments)
    assert ran.exit_code == 1
    assert said in str(ran.exception)
    assert app.overrides.by_consumer == {}


@pytest.mark.parametrize("arguments", [("pause",), ("pause", "orders", "3"), ("stop", "orders")])
def test_wrong_use_is_code_2(path, arguments):
    assert run(path, *arguments).exit_code == 2


def test_that_nobody_is_there_is_reported(path):
    with pytest.raises(ConfigError, match=r"nothing listens there. Is the application running, with --control"):
        ask(path, {"do": "show"})


def test_only_its_user_may_open_it(path):
    with controlled(application(), path):
        assert path.stat().st_mode & 0o777 == 0o600


def test_what_a_killed_run_left_is_replaced_and_nothing_else_is(path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with controlled(application(), path), pytest.raises(ConfigError, match="another application already listens there"):
        controlled(application(), path).__enter__()
    path.write_text("somebody's file")
    with pytest.raises(ConfigError, match="Address already in use"):
        controlled(application(), path).__enter__()
    assert path.read_text() == "somebody's file"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"hello\n",
        b"[]\n",
        b'{"do":"dance"}\n',
        b'{"do":"lanes","consumer":"orders"}\n',
        b"\xff\xfe\n",
        b"[" * 60_000 + b"\n",
        b'{"do":' * 5_000 + b"\n",
        b" " * 65_536,
    ],
    ids=["nothing", "no JSON", "a list", "unknown", "incomplete", "no UTF-8", "deep lists", "deep objects", "too long"],
)
def test_what_is_not_understood_changes_nothing_and_ends_nothing(path, said):
    app = application()
    with controlled(app, path):
        with socket.socket(socket.AF_UNIX) as line:
            line.connect(str(path))
            line.sendall(said)
            line.shutdown(socket.SHUT_WR)
            assert "not understood" in line.recv(1_000).decode()
        assert ask(path, {"do": "show"})["consumers"]["orders"]["lanes"] == 20


def test_a_slow_caller_keeps_nobody_waiting_and_is_cut_off(path, monkeypatch):
    monkeypatch.setattr(control_module, "_TIMEOUT", 0.5)
    with controlled(application(), path), ExitStack() as stack:
        slow = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(8)]
        for line in slow:
            line.connect(str(path))
            line.sendall(b"{")
        assert "consumers" in ask(path, {"do": "show"})
        slow[0].settimeout(20.0)
        with suppress(BrokenPipeError):  # each byte would start a timeout of the socket over
            while not select.select([slow[0]], [], [], 0.05)[0]:
                slow[0].sendall(b" ")
        assert slow[0].recv(1_000) in (b"", b'{"error": "%s"}\n' % control_module._NOT_UNDERSTOOD.encode())


def test_an_unexpected_failure_is_answered_and_ends_nothing(path, monkeypatch, caplog):
    app = application()
    monkeypatch.setattr(app, "pause", lambda name: 1 / 0)
    with controlled(app, path):
        with pytest.raises(ConfigError, match="failed with ZeroDivisionError"):
            ask(path, {"do": "pause", "consumer": "orders"})
        assert "consumers" in ask(path, {"do": "show"})
    assert "a request failed" in caplog.text


def test_what_was_said_before_a_run_counts_and_is_forgotten_with_it():
    overrides, heard = RuntimeOverrides(), []
    overrides.set("orders", ConsumerOverrides(lanes=3))
    with overrides.applied_by(lambda *said: heard.append(said)):
        assert heard == [("orders", ConsumerOverrides(lanes=3))]
        threading.Thread(target=overrides.set, args=("orders", ConsumerOverrides())).run()
    assert heard[1:] == [("orders", ConsumerOverrides())]
    assert overrides.by_consumer == {}
