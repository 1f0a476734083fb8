"""The line between a driver and its tasks: JSON objects, one on each text line, between two that know the same token.

Thread: `send` from any, `receive` from one.

Spark has no way to tell a running task anything, and hears from it only when it ends. Before anything else each side
proves that it has the token, which itself is never sent. After that every line is signed and counted (`seal`): nobody
on the way can add, change, repeat or leave one out without ending the line, but whoever listens can read them. A peer
whose machine is gone is noticed within half a minute.
"""

from __future__ import annotations

import hmac
import json
import re
import secrets
import socket
import threading
from contextlib import suppress
from typing import Any, Final

from multilane.clock import SystemClock
from multilane.engines.channel.seal import DRIVER, MEMBER, SEALED_EXTRA, Seal, Transcript
from multilane.errors import LineLost
from multilane.logs import logger

log = logger(__name__)

Message = dict[str, Any]

_LONGEST: Final = 1 << 30  # bytes in a message
_LONGEST_OF_STRANGERS: Final = 1 << 12
_CALL_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 0.05  # seconds, before a call that was cut off is tried again; doubled each time
_LONGEST_PAUSE: Final = 1.0
_GONE_AFTER: Final = 30  # seconds without a sign of the other machine
_ASK_EVERY: Final = 5
WELCOME: Final = "welcome"
_HEX: Final = re.compile(r"[0-9a-f]{32,64}")


class MessageChannel:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._incoming = connection.makefile("rb")
        self._sending = threading.Lock()
        self._longest = _LONGEST_OF_STRANGERS
        self._mine: Seal | None = None
        self._theirs: Seal | None = None

    def seal(self, mine: Seal, theirs: Seal) -> None:
        """From here on lines are signed and counted."""
        self._mine, self._theirs = mine, theirs

    def trust(self) -> None:
        """Both have proved who they are: messages may be long, and take their time."""
        self._connection.settimeout(None)
        self._longest = _LONGEST + SEALED_EXTRA

    def send(self, kind: str, **fields: Any) -> None:
        told = json.dumps({"kind": kind, **fields}).encode()
        try:
            with self._sending:
                self._connection.sendall((told if self._mine is None else self._mine.signed(told)) + b"\n")
        except OSError as error:
            raise LineLost(f"the connection is lost: {error}") from error

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
            if len(told) > self._longest and self._theirs is not None:  # the desk counts strangers
                log.error("a message exceeds %d bytes: closing its connection", self._longest)
            return None
        text = told[:-1] if self._theirs is None else self._theirs.opened(told[:-1])
        if text is None:
            log.error("a message between driver and worker was altered, repeated or lost: closing the connection")
            self.hang_up()
            return None
        try:
            message = json.loads(text)
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


def call(address: tuple[str, int], token: str) -> MessageChannel:
    """A line to the driver. A call that is cut off before the driver has answered is tried again for ten seconds: a
    driver that is slow, or has too many callers, ends calls."""
    clock = SystemClock()
    until, pause = clock.monotonic() + _CALL_SECONDS, _FIRST_PAUSE
    while (line := _attempt(address, token, max(_FIRST_PAUSE, until - clock.monotonic()))) is None:
        if clock.monotonic() + pause >= until:
            raise LineLost(f"the driver at {address[0]}:{address[1]} closes every connection before it answers")
        threading.Event().wait(pause)
        pause = min(_LONGEST_PAUSE, 2 * pause)
    return line


def _attempt(address: tuple[str, int], token: str, seconds: float) -> MessageChannel | None:
    """None if it was cut off."""
    where = f"{address[0]}:{address[1]}"
    try:
        connection = socket.create_connection(address, seconds)
    except OSError as error:
        raise LineLost(f"the driver does not answer at {where}: {error}") from error
    try:
        line = tuned(connection, seconds)
    except LineLost:
        return None
    try:
        if _is_driver(line, token, address):
            return line
    except LineLost:
        line.close()
        return None
    line.close()
    raise LineLost(f"the process at {where} is not this run's driver, or runs another version of multilane")


def _is_driver(line: MessageChannel, token: str, address: tuple[str, int]) -> bool:
    members = secrets.token_hex(16)
    line.send("number", number=members)
    asked = line.receive()
    if asked is None:
        raise LineLost("the driver closed the connection")
    drivers = digits(asked, "number")
    if drivers is None or not prove(line, token, Transcript(address, drivers, members), MEMBER):
        return False
    said = line.receive()
    if said is None or said["kind"] != WELCOME:  # the driver has proved who it is, and made room for somebody else
        raise LineLost("the driver closed the connection")
    line.trust()
    return True


def tuned(connection: socket.socket, seconds: float = _CALL_SECONDS) -> MessageChannel:
    """`seconds` for each step, until the other side is trusted."""
    try:
        _tune(connection, seconds)
    except OSError as error:
        connection.close()
        raise LineLost(f"the connection is lost: {error}") from error
    return MessageChannel(connection)


def _tune(connection: socket.socket, seconds: float) -> None:
    connection.settimeout(seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _ASK_EVERY), ("TCP_KEEPINTVL", _ASK_EVERY), ("TCP_KEEPCNT", 5)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _GONE_AFTER * 1_000)


def prove(line: MessageChannel, token: str, transcript: Transcript, mine: str) -> bool:
    """Each proves that it has the token; the role is in the proof, so that none can be sent back. Lines are sealed
    then."""
    others = DRIVER if mine == MEMBER else MEMBER
    line.send("proof", proof=transcript.proof(token, mine))
    told = line.receive()
    if told is None:
        raise LineLost("the connection closed before the other side proved its identity")
    proof = digits(told, "proof")
    if proof is None or not hmac.compare_digest(proof, transcript.proof(token, others)):
        return False
    line.seal(Seal(token, transcript, mine), Seal(token, transcript, others))
    return True


def digits(message: Message | None, kind: str) -> str | None:
    told = None if message is None or message["kind"] != kind else message.get(kind)
    return told if isinstance(told, str) and _HEX.fullmatch(told) is not None else None
