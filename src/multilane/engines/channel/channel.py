"""The channel between a driver and its workers: JSON messages, one per line of text, between two that share a token.

Thread: `send` from any, `receive` from one.

Spark cannot send messages to a running task, and reports on it only when it ends. Before anything else, each side
proves that it has the token; the token itself is never sent. From then on every message is signed and counted (`seal`):
an attacker on the network can read messages, but cannot add, change, repeat or drop one without ending the connection.
The loss of a peer's machine is noticed within half a minute.
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
from multilane.engines.channel.signing import DRIVER, MEMBER, SIGNATURE_EXTRA, MessageSigner, Transcript
from multilane.errors import ChannelLost
from multilane.logs import logger

log = logger(__name__)

ChannelMessage = dict[str, Any]

_MAX_BYTES: Final = 1 << 30  # of a message
_MAX_BYTES_UNAUTHENTICATED: Final = 1 << 12  # before the peer has proved its identity
_CONNECT_SECONDS: Final = 10.0
_FIRST_PAUSE: Final = 0.05  # seconds before a connection that was cut off is retried; doubles each time
_LONGEST_PAUSE: Final = 1.0
_DEAD_AFTER: Final = 30  # seconds without a sign of the other machine
_KEEPALIVE_EVERY: Final = 5
WELCOME: Final = "welcome"
_HEX: Final = re.compile(r"[0-9a-f]{32,64}")


class MessageChannel:
    """One end of a connection."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._incoming = connection.makefile("rb")
        self._sending = threading.Lock()
        self._max_bytes = _MAX_BYTES_UNAUTHENTICATED
        self._mine: MessageSigner | None = None
        self._theirs: MessageSigner | None = None

    def start_signing(self, mine: MessageSigner, theirs: MessageSigner) -> None:
        """From here on messages are signed and counted."""
        self._mine, self._theirs = mine, theirs

    def trust(self) -> None:
        """Both sides have proved their identity: lift the limits on a message's size and time."""
        self._connection.settimeout(None)
        self._max_bytes = _MAX_BYTES + SIGNATURE_EXTRA

    def send(self, kind: str, **fields: Any) -> None:
        text = json.dumps({"kind": kind, **fields}).encode()
        try:
            with self._sending:
                self._connection.sendall((text if self._mine is None else self._mine.signed(text)) + b"\n")
        except OSError as error:
            raise ChannelLost(f"the connection is lost: {error}") from error

    def try_send(self, kind: str, **fields: Any) -> None:
        """As `send`, but ignores a lost connection: the thread that receives on it handles the loss."""
        with suppress(ChannelLost):
            self.send(kind, **fields)

    def receive(self) -> ChannelMessage | None:
        """The next message; None when the connection has ended."""
        try:
            line = self._incoming.readline(self._max_bytes + 1)
        except (OSError, ValueError):
            return None
        if not line.endswith(b"\n"):
            if len(line) > self._max_bytes and self._theirs is not None:  # the server counts unauthenticated callers
                log.error("a message exceeds %d bytes: closing its connection", self._max_bytes)
            return None
        text = line[:-1] if self._theirs is None else self._theirs.opened(line[:-1])
        if text is None:
            log.error("a message between driver and worker was altered, repeated or lost: closing the connection")
            self.disconnect()
            return None
        try:
            message = json.loads(text)
        except (ValueError, RecursionError):
            return None
        return message if isinstance(message, dict) and isinstance(message.get("kind"), str) else None

    def disconnect(self) -> None:
        """From any thread: `receive` returns None on both sides."""
        with suppress(OSError):  # the peer closed first
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.disconnect()
        self._incoming.close()
        self._connection.close()


def connect(address: tuple[str, int], token: str) -> MessageChannel:
    """Connect to the driver. A connection that is cut off before the driver has answered is retried for ten seconds:
    a slow driver, or one with too many callers, closes connections."""
    clock = SystemClock()
    until, pause = clock.monotonic() + _CONNECT_SECONDS, _FIRST_PAUSE
    while (channel := _attempt(address, token, max(_FIRST_PAUSE, until - clock.monotonic()))) is None:
        if clock.monotonic() + pause >= until:
            raise ChannelLost(f"the driver at {address[0]}:{address[1]} closes every connection before it answers")
        threading.Event().wait(pause)
        pause = min(_LONGEST_PAUSE, 2 * pause)
    return channel


def _attempt(address: tuple[str, int], token: str, seconds: float) -> MessageChannel | None:
    """None if the connection was cut off."""
    where = f"{address[0]}:{address[1]}"
    try:
        connection = socket.create_connection(address, seconds)
    except OSError as error:
        raise ChannelLost(f"the driver does not answer at {where}: {error}") from error
    try:
        channel = channel_over(connection, seconds)
    except ChannelLost:
        return None
    try:
        if _is_driver(channel, token, address):
            return channel
    except ChannelLost:
        channel.close()
        return None
    channel.close()
    raise ChannelLost(f"the process at {where} is not this run's driver, or runs another version of multilane")


def _is_driver(channel: MessageChannel, token: str, address: tuple[str, int]) -> bool:
    member_nonce = secrets.token_hex(16)
    channel.send("number", number=member_nonce)
    answer = channel.receive()
    if answer is None:
        raise ChannelLost("the driver closed the connection")
    driver_nonce = hex_field(answer, "number")
    if driver_nonce is None or not prove(channel, token, Transcript(address, driver_nonce, member_nonce), MEMBER):
        return False
    message = channel.receive()
    if message is None or message["kind"] != WELCOME:  # the driver proved its identity, but evicted us for another
        raise ChannelLost("the driver closed the connection")
    channel.trust()
    return True


def channel_over(connection: socket.socket, seconds: float = _CONNECT_SECONDS) -> MessageChannel:
    """Each step may take `seconds` until the peer is trusted."""
    try:
        _set_options(connection, seconds)
    except OSError as error:
        connection.close()
        raise ChannelLost(f"the connection is lost: {error}") from error
    return MessageChannel(connection)


def _set_options(connection: socket.socket, seconds: float) -> None:
    connection.settimeout(seconds)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", _KEEPALIVE_EVERY), ("TCP_KEEPINTVL", _KEEPALIVE_EVERY), ("TCP_KEEPCNT", 5)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _DEAD_AFTER * 1_000)


def prove(channel: MessageChannel, token: str, transcript: Transcript, mine: str) -> bool:
    """Each side proves that it has the token, and signs from then on. The proof contains the role, so a proof cannot be
    reflected to its author."""
    others = DRIVER if mine == MEMBER else MEMBER
    channel.send("proof", proof=transcript.proof(token, mine))
    answer = channel.receive()
    if answer is None:
        raise ChannelLost("the connection closed before the other side proved its identity")
    proof = hex_field(answer, "proof")
    if proof is None or not hmac.compare_digest(proof, transcript.proof(token, others)):
        return False
    channel.start_signing(MessageSigner(token, transcript, mine), MessageSigner(token, transcript, others))
    return True


def hex_field(message: ChannelMessage | None, kind: str) -> str | None:
    """The field of a handshake message, which is named as its kind is."""
    value = None if message is None or message["kind"] != kind else message.get(kind)
    return value if isinstance(value, str) and _HEX.fullmatch(value) is not None else None
