"""The line between a driver and its members, over real sockets."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress

import pytest

from multilane.engines.channel import channel as line_module
from multilane.engines.channel.channel import call
from multilane.engines.channel.server import ChannelServer
from multilane.errors import LineLost

PATIENCE = 10.0


class Heard:
    """What a desk's lines said; each line is answered with a greeting."""

    def __init__(self):
        self.lines = []
        self.messages = []
        self.over = threading.Event()

    def __call__(self, line):
        self.lines.append(line)
        line.send("hello", number=1)
        while (message := line.receive()) is not None:
            self.messages.append(message)
        self.over.set()


@pytest.fixture
def heard():
    return Heard()


@pytest.fixture
def desk(heard):
    made = ChannelServer("127.0.0.1", "127.0.0.1", "the token", heard)
    yield made
    made.close()


def greet(desk):
    line = call(desk.address, "the token")
    assert line.receive() is not None
    line.close()


def test_both_sides_say_what_they_like(desk, heard):
    line = call(desk.address, "the token")
    assert line.receive() == {"kind": "hello", "number": 1}
    line.send("ready", text="\u00fc\n")
    line.close()
    assert heard.over.wait(PATIENCE)
    assert heard.messages == [{"kind": "ready", "text": "\u00fc\n"}]
    with pytest.raises(LineLost):
        line.send("more")


def test_who_has_not_the_token_is_turned_away(desk, heard, caplog):
    with pytest.raises(LineLost, match="is not this run's driver"):
        call(desk.address, "a guess")
    assert heard.lines == []
    greet(desk)  # others are served all the same


def test_a_member_does_not_listen_to_somebody_elses_driver():
    other = ChannelServer("127.0.0.1", "127.0.0.1", "another token", Heard())
    with pytest.raises(LineLost, match="is not this run's driver"):
        call(other.address, "the token")
    other.close()


def test_an_answer_cannot_be_sent_back(desk, heard):
    """Who knows nothing asks the driver its own question, and gives it the driver's answer."""
    with socket.create_connection(desk.address, PATIENCE) as connection, connection.makefile("rwb") as file:
        asked = json.loads(file.readline())
        file.write(json.dumps({"kind": "number", "number": asked["number"]}).encode() + b"\n")
        file.flush()
        file.write(file.readline())
        file.flush()
        assert file.readline() == b""
    assert heard.lines == []


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
def test_nonsense_ends_the_line_and_nothing_else(desk, heard, sent):
    with socket.create_connection(desk.address, PATIENCE) as connection, connection.makefile("rb") as file:
        file.readline()
        with suppress(OSError):  # it does not read to the end
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            assert b"proof" not in file.read()
    assert heard.lines == []
    greet(desk)


def test_a_desk_that_cannot_take_a_call_takes_the_next(desk, heard, monkeypatch, caplog):
    real, left = desk._listening, [OSError("too many open files")]

    class Full:
        def accept(self):
            if left:
                raise left.pop()
            return real.accept()

        def __getattr__(self, name):
            return getattr(real, name)

    desk._listening = Full()
    greet(desk)  # the call that the desk was waiting for
    greet(desk)
    assert "cannot accept connections from workers: too many open files" in caplog.text


def test_nobody_is_there():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
    with pytest.raises(LineLost, match="the driver does not answer at 127"):
        call(address, "the token")


def test_who_always_hangs_up_is_given_up(monkeypatch):
    monkeypatch.setattr(line_module, "_CALL_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up():
            with suppress(OSError):
                while True:
                    listening.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        with pytest.raises(LineLost, match="closes every connection before it answers"):
            call(listening.getsockname(), "the token")
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE)


def test_a_call_that_is_cut_off_is_tried_again(desk, heard, monkeypatch):
    """A driver that has too many callers ends calls, also those of its own workers."""
    real, cut = desk._listening, []

    class Rude:
        def accept(self):
            connection, peer = real.accept()
            if len(cut) < 2:
                cut.append(connection.close())
                raise TimeoutError
            return connection, peer

        def __getattr__(self, name):
            return getattr(real, name)

    greet(desk)  # the call that the desk was waiting for
    desk._listening = Rude()
    greet(desk)
    greet(desk)
    assert len(cut) == 2


def test_the_token_is_never_sent(monkeypatch):
    monkeypatch.setattr(line_module, "_CALL_SECONDS", 0.5)
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
        with pytest.raises(LineLost):
            call(listening.getsockname(), "the token")
        thread.join(PATIENCE)
    assert seen.count(b"\n") == 2
    assert b"the token" not in seen
