"""The channel between a driver and its members, over real sockets."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress

import pytest

from multilane.engines.channel import channel as channel_module
from multilane.engines.channel.channel import connect
from multilane.engines.channel.server import ChannelServer
from multilane.errors import ChannelLost

PATIENCE = 10.0


class Received:
    """The messages of a server's channels; each channel is greeted."""

    def __init__(self):
        self.channels = []
        self.messages = []
        self.over = threading.Event()

    def __call__(self, channel):
        self.channels.append(channel)
        channel.send("hello", number=1)
        while (message := channel.receive()) is not None:
            self.messages.append(message)
        self.over.set()


@pytest.fixture
def received():
    return Received()


@pytest.fixture
def server(received):
    made = ChannelServer("127.0.0.1", "127.0.0.1", "the token", received)
    yield made
    made.close()


def greet(server):
    channel = connect(server.address, "the token")
    assert channel.receive() is not None
    channel.close()


def test_both_sides_send_and_receive(server, received):
    channel = connect(server.address, "the token")
    assert channel.receive() == {"kind": "hello", "number": 1}
    channel.send("ready", text="\u00fc\n")
    channel.close()
    assert received.over.wait(PATIENCE)
    assert received.messages == [{"kind": "ready", "text": "\u00fc\n"}]
    with pytest.raises(ChannelLost):
        channel.send("more")


def test_a_caller_without_the_token_is_rejected(server, received, caplog):
    with pytest.raises(ChannelLost, match="is not this run's driver"):
        connect(server.address, "a guess")
    assert received.channels == []
    greet(server)  # others are still served


def test_a_member_rejects_another_runs_driver():
    other = ChannelServer("127.0.0.1", "127.0.0.1", "another token", Received())
    with pytest.raises(ChannelLost, match="is not this run's driver"):
        connect(other.address, "the token")
    other.close()


def test_a_proof_cannot_be_reflected(server, received):
    """A caller without the token sends the driver its own nonce, and then its own proof."""
    with socket.create_connection(server.address, PATIENCE) as connection, connection.makefile("rwb") as file:
        asked = json.loads(file.readline())
        file.write(json.dumps({"kind": "number", "number": asked["number"]}).encode() + b"\n")
        file.flush()
        file.write(file.readline())
        file.flush()
        assert file.readline() == b""
    assert received.channels == []


NONSENSE = [
    b"\n",
    b"{}\n",
    b"[]\n",
    b'{"kind": 3}\n',
    b"\xff\n",
    b"[" * 100_000 + b"\n",
    b"x" * 1_100_000,
    b"GET /\r\n",
    b'{"kind": "number", "number": "\\ud800"}\n',
]


@pytest.mark.parametrize("sent", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_closes_the_channel_and_nothing_else(server, received, sent):
    with socket.create_connection(server.address, PATIENCE) as connection, connection.makefile("rb") as file:
        file.readline()
        with suppress(OSError):  # it does not read to the end
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert b"proof" not in file.read()
    assert received.channels == []
    greet(server)


def test_a_server_that_cannot_accept_a_connection_accepts_the_next(server, received, monkeypatch, caplog):
    real, left = server._listening, [OSError("too many open files")]

    class Full:
        def accept(self):
            if left:
                raise left.pop()
            return real.accept()

        def __getattr__(self, name):
            return getattr(real, name)

    server._listening = Full()
    greet(server)  # the connection that the server was waiting for
    greet(server)
    assert "cannot accept connections from workers: too many open files" in caplog.text


def test_the_driver_does_not_listen():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
    with pytest.raises(ChannelLost, match="the driver does not answer at 127"):
        connect(address, "the token")


def test_a_driver_that_always_closes_is_an_error(monkeypatch):
    monkeypatch.setattr(channel_module, "_CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up():
            with suppress(OSError):
                while True:
                    listening.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(ChannelLost, match="closes every connection before it answers"):
            connect(listening.getsockname(), "the token")
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)


def test_a_connection_that_is_cut_off_is_retried(server, received, monkeypatch):
    """A driver with too many callers closes connections, also those of its own workers."""
    real, cut = server._listening, []

    class Rude:
        def accept(self):
            connection, peer = real.accept()
            if len(cut) < 2:
                cut.append(connection.close())
                raise TimeoutError
            return connection, peer

        def __getattr__(self, name):
            return getattr(real, name)

    greet(server)  # the connection that the server was waiting for
    server._listening = Rude()
    greet(server)
    greet(server)
    assert len(cut) == 2


def test_the_token_is_never_sent(monkeypatch):
    monkeypatch.setattr(channel_module, "_CONNECT_SECONDS", 0.5)
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def swallow():
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b'{"kind": "number", "number": "%032d"}\n' % 1)
                while more := connection.recv(4096):
                    seen.extend(more)
                    if seen.count(b"\n") == 2:
                        return

        thread = threading.Thread(target=swallow)
        thread.start()
        with pytest.raises(ChannelLost):
            connect(listening.getsockname(), "the token")
        thread.join(PATIENCE)
    assert seen.count(b"\n") == 2
    assert b"the token" not in seen
