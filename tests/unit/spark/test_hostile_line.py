"""An attacker between a driver and its worker, over real sockets: nothing but what was sent is ever received."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

import pytest

from multilane.engines.channel import channel as channel_module
from multilane.engines.channel.channel import connect
from multilane.engines.channel.server import ChannelServer
from multilane.errors import ChannelLost

PATIENCE = 20.0
FORGED = b'{"kind": "told", "number": 9}\n'
HANDSHAKE = 2  # lines, in each direction


class OnTheWay:
    """Passes everything on, but for what `alter` makes of the worker's signed lines: the lines to send in its place,
    or None to hang up."""

    def __init__(self, alter):
        self._alter = alter
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = self._listening.getsockname()
        self.heard_of_driver = []
        self._threads = []

    def lead_to(self, address):
        self._start(self._run, address)

    def close(self):
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for thread in self._threads:
            thread.join(PATIENCE)
            assert not thread.is_alive()

    def _start(self, target, *arguments):
        self._threads.append(threading.Thread(target=target, args=arguments))
        self._threads[-1].start()

    def _run(self, address):
        try:
            worker, _ = self._listening.accept()
        except OSError:
            return
        driver = socket.create_connection(address, PATIENCE)
        self._start(self._backward, driver, worker)
        self._forward(worker, driver)

    def _forward(self, worker, driver):
        with worker, driver, worker.makefile("rb") as lines, suppress(OSError):
            for number, line in enumerate(lines, -HANDSHAKE):
                told = [line] if number < 0 else self._alter(self, number, line)
                if told is None:
                    break
                driver.sendall(b"".join(told))
            for end in (worker, driver):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def _backward(self, driver, worker):
        with suppress(OSError, ValueError), driver.makefile("rb") as lines:
            for line in lines:
                self.heard_of_driver.append(line)
                worker.sendall(line)
            worker.shutdown(socket.SHUT_RDWR)


def at(number, change):
    def alter(relay, found, line):
        return change(relay, line) if found == number else [line]

    return alter


class Swapped:
    def __init__(self):
        self.kept = []

    def __call__(self, relay, number, line):
        self.kept.append(line)
        return [] if number == 1 else [line, self.kept[1]] if number == 2 else [line]


ATTACKS = {
    "nothing": (lambda: at(9, None), 4),
    "a byte altered": (lambda: at(1, lambda _, line: [line.replace(b'"number": 1', b'"number": 7')]), 1),
    "another signature": (lambda: at(1, lambda _, line: [b"0" * 64 + line[64:]]), 1),
    "signature of the line before": (lambda: at(1, lambda _, line: [line[:32] + b"f" * 32 + line[64:]]), 1),
    "a line without signature": (lambda: at(1, lambda _, line: [FORGED, line]), 1),
    "repeated": (lambda: at(1, lambda _, line: [line, line]), 2),
    "left out": (lambda: at(1, lambda _, line: []), 1),
    "swapped": (Swapped, 1),
    "sent back": (lambda: at(1, lambda relay, line: [relay.heard_of_driver[-1]]), 1),
    "cut in the middle": (lambda: at(1, lambda _, line: [line[: len(line) // 2], b"\n"]), 1),
    "cut off": (lambda: at(1, lambda _, line: None), 1),
    "garbage": (lambda: at(1, lambda _, line: [bytes(range(256)) * 8, b"\n"]), 1),
    "nested": (lambda: at(1, lambda _, line: [b"[" * 100_000, b"\n"]), 1),
    "huge": (lambda: at(1, lambda _, line: [b"x" * 200_000]), 1),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_only_what_was_sent_is_received_and_the_rest_closes_the_channel(attack, monkeypatch):
    monkeypatch.setattr(channel_module, "_MAX_BYTES", 100_000)
    make, heard_right = ATTACKS[attack]
    heard, over = [], threading.Event()

    def hear(line):
        line.send("hello")
        while (message := line.receive()) is not None:
            heard.append(message)
        over.set()

    relay = OnTheWay(make())
    server = ChannelServer("127.0.0.1", "127.0.0.1", "the token", hear)
    real, server.address = server.address, relay.address  # the attacker needs no address of its own
    relay.lead_to(real)
    try:
        line = connect(relay.address, "the token")
        assert line.receive() == {"kind": "hello"}
        with suppress(ChannelLost):  # it may be closed before all is sent
            for number in range(4):
                line.send("told", number=number)
        if attack == "nothing":
            line.disconnect()
        assert over.wait(PATIENCE)
        assert line.receive() is None
        line.close()
    finally:
        server.close()
        relay.close()
    assert heard == [{"kind": "told", "number": number} for number in range(heard_right)]


def test_a_worker_believes_only_its_driver_too():
    """The other direction: what the attacker adds on the way to the worker is not received."""
    done = threading.Event()

    def hear(line):
        line.send("hello")
        done.wait(PATIENCE)

    relay = OnTheWay(lambda relay, number, line: [line])
    server = ChannelServer("127.0.0.1", "127.0.0.1", "the token", hear)
    real, server.address = server.address, relay.address
    relay.lead_to(real)
    backward = relay._backward

    def add(driver, worker):
        with suppress(OSError), driver.makefile("rb") as lines:
            for count, line in enumerate(lines):
                worker.sendall(line if count <= HANDSHAKE else line + FORGED)
            worker.shutdown(socket.SHUT_RDWR)

    relay._backward = add
    try:
        line = connect(relay.address, "the token")
        assert line.receive() == {"kind": "hello"}
        assert line.receive() is None
        line.close()
    finally:
        relay._backward = backward
        done.set()
        server.close()
        relay.close()


def test_a_connection_that_is_led_to_another_server_of_the_same_run_fails(monkeypatch):
    """Driver and query process share a token: a proof for the one is no proof for the other."""
    monkeypatch.setattr(channel_module, "_CONNECT_SECONDS", 2.0)
    heard = []
    relay = OnTheWay(lambda relay, number, line: [line])
    server = ChannelServer("127.0.0.1", "127.0.0.1", "the token", heard.append)
    relay.lead_to(server.address)
    try:
        with pytest.raises(ChannelLost, match="is not this run's driver"):
            connect(relay.address, "the token")
    finally:
        server.close()
        relay.close()
    assert heard == []
