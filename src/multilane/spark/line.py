"""The line between a driver and its tasks: JSON objects, one on each text line, between two that know the same token.

Thread: `send` from any, `receive` from one; a `Desk` has a thread for itself and one for each line.

Spark has no way to tell a running task anything, and hears from it only when it ends. Before anything else each side
proves that it has the token, which itself is never sent. What is said then is neither hidden nor signed: a network that
others can listen to, or write to, is not for it. A peer whose machine is gone is noticed within half a minute.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from multilane.errors import LineLost
from multilane.logs import logger

log = logger(__name__)

Message = dict[str, Any]

_LONGEST: Final = 1 << 30  # bytes in a message
_LONGEST_OF_STRANGERS: Final = 1 << 12
_HANDSHAKE_SECONDS: Final = 10.0
_GONE_AFTER: Final = 30  # seconds without a sign of the other machine
_ASK_EVERY: Final = 5
_BACKLOG: Final = 128
_MOST_STRANGERS: Final = 64  # at a time, who have not proved yet who they are
_PAUSE: Final = 0.1  # seconds until somebody can call again, after that has failed
_HEX: Final = re.compile(r"[0-9a-f]{32,64}")


class Line:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._incoming = connection.makefile("rb")
        self._sending = threading.Lock()
        self._longest = _LONGEST_OF_STRANGERS

    def trust(self) -> None:
        """The other side has proved who it is."""
        self._connection.settimeout(None)
        self._longest = _LONGEST

    def send(self, kind: str, **fields: Any) -> None:
        told = json.dumps({"kind": kind, **fields}).encode() + b"\n"
        try:
            with self._sending:
                self._connection.sendall(told)
        except OSError as error:
            raise LineLost(f"the line is gone: {error}") from error

    def tell(self, kind: str, **fields: Any) -> None:
        """As `send`, for what nobody misses: whoever listens to a line that is gone knows what to do."""
        with suppress(LineLost):
            self.send(kind, **fields)

    def receive(self) -> Message | None:
        """The next message; None when there will be no more."""
        try:
            told = self._incoming.readline(self._longest + 1)
        except (OSError, ValueError):
            return None
        if not told.endswith(b"\n"):
            if len(told) > self._longest:
                log.error("a message of more than %d bytes ends the line that it came over", self._longest)
            return None
        try:
            message = json.loads(told)
        except (ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) and isinstance(message.get("kind"), str) else None

    def hang_up(self) -> None:
        """From any thread: whoever listens hears that it is over."""
        with suppress(OSError):  # the other side was faster
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.hang_up()
        self._incoming.close()
        self._connection.close()


class Desk:
    """The driver's side: hands every line whose peer knows the token to `on_line`, on a thread of that line."""

    def __init__(self, bind: str, host: str, token: str, on_line: Callable[[Line], None]) -> None:
        self._token = token
        self._on_line = on_line
        self._is_closed = threading.Event()
        self._strangers = threading.BoundedSemaphore(_MOST_STRANGERS)
        self._listening = socket.create_server((bind, 0), backlog=_BACKLOG)
        self.address: tuple[str, int] = (host, self._listening.getsockname()[1])
        threading.Thread(target=self._listen, name="multilane-desk", daemon=True).start()

    def close(self) -> None:
        self._is_closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _listen(self) -> None:
        while not self._is_closed.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError as error:  # closed, or this process has no room for one more at present
                if not self._is_closed.wait(_PAUSE):
                    log.warning("nobody can call this process now: %s", error)
                continue
            while not self._strangers.acquire(timeout=_PAUSE):
                if self._is_closed.is_set():
                    connection.close()
                    return
            try:
                threading.Thread(target=self._welcome, args=(connection,), name="multilane-line", daemon=True).start()
            except RuntimeError as error:  # no thread more
                log.warning("nobody can call this process now: %s", error)
                self._strangers.release()
                connection.close()

    def _welcome(self, connection: socket.socket) -> None:
        try:
            line = _tuned(connection)
        except OSError:  # it is gone again
            self._strangers.release()
            connection.close()
            return
        try:
            if self._is_ours(line):
                line.trust()
                self._on_line(line)
            else:
                log.warning("somebody without this run's token called, and was turned away")
        except LineLost:
            pass
        finally:
            line.close()

    def _is_ours(self, line: Line) -> bool:
        """Within the time that there is for it, however slowly somebody speaks."""
        patience = threading.Timer(_HANDSHAKE_SECONDS, line.hang_up)
        patience.daemon = True
        try:
            patience.start()
            return _prove(line, self._token, "driver", "member")
        finally:
            patience.cancel()
            self._strangers.release()


def call(address: tuple[str, int], token: str) -> Line:
    """A line to the driver."""
    try:
        connection = socket.create_connection(address, _HANDSHAKE_SECONDS)
    except OSError as error:
        raise LineLost(f"the driver does not answer at {address[0]}:{address[1]}: {error}") from error
    line = _tuned(connection)
    try:
        is_driver = _prove(line, token, "member", "driver")
    except LineLost:
        is_driver = False
    if not is_driver:
        line.close()
        raise LineLost(f"who answers at {address[0]}:{address[1]} is not this run's driver")
    line.trust()
    return line


def _tuned(connection: socket.socket) -> Line:
    connection.settimeout(_HANDSHAKE_SECONDS)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _ASK_EVERY), ("TCP_KEEPINTVL", _ASK_EVERY), ("TCP_KEEPCNT", 5)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_AFTER * 1_000)
    return Line(connection)


def _prove(line: Line, token: str, mine: str, others: str) -> bool:
    """Each sends a number and answers the other's; the role is in the answer, so that none can be sent back."""
    number = secrets.token_hex(16)
    line.send("number", number=number)
    asked = line.receive()
    theirs = _digits(asked, "number")
    if theirs is None:
        return False
    line.send("proof", proof=_answer(token, mine, theirs))
    proof = _digits(line.receive(), "proof")
    return proof is not None and hmac.compare_digest(proof, _answer(token, others, number))


def _digits(message: Message | None, kind: str) -> str | None:
    told = None if message is None or message["kind"] != kind else message.get(kind)
    return told if isinstance(told, str) and _HEX.fullmatch(told) is not None else None


def _answer(token: str, role: str, number: str) -> str:
    return hmac.new(token.encode(), f"{role} {number}".encode(), hashlib.sha256).hexdigest()
