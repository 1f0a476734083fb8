"""Unauthenticated callers of a server: they keep no worker from connecting, and are closed soon. Over real sockets."""

from __future__ import annotations

import json
import resource
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress

import pytest

from multilane.engines.channel import unauthenticated
from multilane.engines.channel.channel import connect
from multilane.engines.channel.server import ChannelServer

PATIENCE = 20.0
SILENT = 220
CALLS = 40


@pytest.fixture
def server():
    def greet(channel):
        channel.send("hello")
        channel.receive()

    made = ChannelServer("127.0.0.1", "127.0.0.1", "the token", greet)
    yield made
    made.close()


@pytest.fixture(autouse=True)
def enough_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4_096), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def greet(server):
    channel = connect(server.address, "the token")
    try:
        assert channel.receive() == {"kind": "hello"}
    finally:
        channel.close()


class Flood:
    """Opens connections as long as it lasts, and keeps as many open as it may."""

    def __init__(self, server, begin):
        self._address = server.address
        self._begin = begin
        self._over = threading.Event()
        self._open = []
        self.is_full = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()
        assert self.is_full.wait(PATIENCE)
        return self

    def __exit__(self, *_):
        self._over.set()
        self._thread.join(PATIENCE)
        for connection in self._open:
            connection.close()

    def _run(self):
        while not self._over.is_set():
            with suppress(OSError):
                connection = socket.create_connection(self._address, PATIENCE)
                self._begin(connection)
                self._open.append(connection)
            if len(self._open) >= SILENT:
                self.is_full.set()
                self._open.pop(0).close()
                self._over.wait(0.001)


def say_nothing(connection):
    """As it is."""


def dribble(connection):
    connection.sendall(b" ")


def go_half_way(connection):
    connection.sendall(json.dumps({"kind": "number", "number": "0" * 32}).encode() + b"\n")


@pytest.mark.parametrize("begin", [say_nothing, dribble, go_half_way])
def test_workers_connect_however_many_unauthenticated_connections_there_are(server, begin):
    with Flood(server, begin), ThreadPoolExecutor(4) as workers:
        for made in [workers.submit(greet, server) for _ in range(CALLS)]:
            made.result(PATIENCE)
    assert len(server._unauthenticated) <= unauthenticated.MAX_CALLERS_PER_ADDRESS


def test_unauthenticated_connections_that_stay_do_no_harm_either(server, caplog):
    with ExitStack() as stack:
        for _ in range(SILENT):
            stack.enter_context(socket.create_connection(server.address, PATIENCE))
        for _ in range(CALLS):
            greet(server)
    warnings = [record for record in caplog.records if "without this run's token" in record.message]
    assert len(warnings) <= 3  # not one for each


@pytest.mark.parametrize("slowly", [False, True])
def test_a_caller_has_a_second_for_its_first_message(server, slowly, monkeypatch):
    """A byte now and then would keep each single wait from its end."""
    monkeypatch.setattr(unauthenticated, "FIRST_MESSAGE_SECONDS", 0.3)
    with (
        socket.create_connection(server.address, PATIENCE) as connection,
        suppress(BrokenPipeError, ConnectionResetError),
    ):
        if slowly:
            connection.settimeout(0.05)
        while True:
            with suppress(TimeoutError):
                if connection.recv(1_000).endswith(b"\n"):
                    continue
                break
            connection.sendall(b" ")
    greet(server)


def test_half_a_handshake_does_not_last(server, monkeypatch):
    monkeypatch.setattr(unauthenticated, "HANDSHAKE_SECONDS", 0.3)
    with socket.create_connection(server.address, PATIENCE) as connection, connection.makefile("rb") as file:
        go_half_way(connection)
        assert [json.loads(line)["kind"] for line in file] == ["number", "proof"]
    greet(server)


def test_a_proven_caller_is_not_counted_nor_closed(server, monkeypatch):
    monkeypatch.setattr(unauthenticated, "HANDSHAKE_SECONDS", 0.1)
    channel = connect(server.address, "the token")
    assert channel.receive() == {"kind": "hello"}
    with Flood(server, say_nothing):
        pass
    channel.send("still here")
    assert channel.receive() is None  # the server has received it, and closed
    channel.close()


def test_unauthenticated_connections_with_long_messages_do_not_flood_the_log(server, caplog):
    for _ in range(20):
        with socket.create_connection(server.address, PATIENCE) as caller, suppress(OSError):
            caller.sendall(b"x" * 10_000)
            while caller.recv(4_096):
                pass
    greet(server)
    assert len(caplog.records) <= 1
