"""Accepts connections of tasks, for a driver or a lease coordinator.

Thread: one accepts connections and closes unauthenticated callers that take too long; each channel has its own
thread.

Anything that reaches the port may connect. A caller that does not prove that it knows the run's token is rejected, and
does not keep others from connecting meanwhile (`unauthenticated`).
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from multilane.clock import SystemClock
from multilane.engines.channel.channel import WELCOME, MessageChannel, channel_over, hex_field, prove
from multilane.engines.channel.signing import DRIVER, Transcript
from multilane.engines.channel.unauthenticated import UnauthenticatedCallers
from multilane.errors import ChannelLost
from multilane.logs import logger

log = logger(__name__)

_BACKLOG: Final = 128
_SWEEP_SECONDS: Final = 0.1  # between two sweeps of overdue callers, and after a failed accept
_WARN_EVERY: Final = 10.0


class ChannelServer:
    """The driver's side: passes each channel whose peer has the token to `on_channel`, on a thread of that channel."""

    def __init__(self, bind: str, host: str, token: str, on_channel: Callable[[MessageChannel], None]) -> None:
        self._token = token
        self._on_channel = on_channel
        self._clock = SystemClock()
        self._is_closed = threading.Event()
        self._unauthenticated: UnauthenticatedCallers[MessageChannel] = UnauthenticatedCallers()
        self._unauthenticated_lock = threading.Lock()
        self._rejected = 0  # since the last warning
        self._warn_at = 0.0
        self._listening = socket.create_server((bind, 0), backlog=_BACKLOG)
        self.address: tuple[str, int] = (host, self._listening.getsockname()[1])
        threading.Thread(target=self._listen, name="multilane-server", daemon=True).start()

    def close(self) -> None:
        self._is_closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _listen(self) -> None:
        while not self._is_closed.is_set():
            try:
                self._listening.settimeout(_SWEEP_SECONDS if self._unauthenticated else None)
                connection, peer = self._listening.accept()
            except TimeoutError:
                self._sweep()
            except OSError as error:  # closed, or this process has no file descriptor left at present
                self._sweep()
                if not self._is_closed.wait(_SWEEP_SECONDS):
                    log.warning("cannot accept connections from workers: %s", error)
            else:
                self._sweep()
                self._admit(connection, str(peer[0]))

    def _sweep(self) -> None:
        with self._unauthenticated_lock:
            overdue = self._unauthenticated.pop_overdue(self._clock.monotonic())
        for channel in overdue:
            channel.disconnect()

    def _admit(self, connection: socket.socket, host: str) -> None:
        try:
            channel = channel_over(connection)
        except ChannelLost:  # the caller is gone again
            return
        with self._unauthenticated_lock:
            evicted = self._unauthenticated.add(channel, host, self._clock.monotonic())
        if evicted is not None:
            evicted.disconnect()
        try:
            threading.Thread(target=self._serve, args=(channel, host), name="multilane-channel", daemon=True).start()
        except RuntimeError as error:  # no more threads
            log.warning("cannot accept connections from workers: %s", error)
            self._forget(channel)
            channel.close()

    def _serve(self, channel: MessageChannel, host: str) -> None:
        try:
            if not self._has_token(channel):
                self._reject(host)
            elif self._forget(channel):  # else it was evicted, and its caller retries
                channel.trust()
                channel.send(WELCOME)
                self._on_channel(channel)
        except ChannelLost:
            pass
        finally:
            self._forget(channel)
            channel.close()

    def _has_token(self, channel: MessageChannel) -> bool:
        driver_nonce = secrets.token_hex(16)
        channel.send("number", number=driver_nonce)
        member_nonce = hex_field(channel.receive(), "number")
        with self._unauthenticated_lock:
            self._unauthenticated.note_message(channel)
        if member_nonce is None:
            return False
        return prove(channel, self._token, Transcript(self.address, driver_nonce, member_nonce), DRIVER)

    def _forget(self, channel: MessageChannel) -> bool:
        with self._unauthenticated_lock:
            return self._unauthenticated.remove(channel)

    def _reject(self, host: str) -> None:
        """Counts and warns rarely: a flood of connections must not flood the log."""
        now = self._clock.monotonic()
        with self._unauthenticated_lock:
            self._rejected += 1
            if now < self._warn_at:
                return
            count, self._rejected, self._warn_at = self._rejected, 0, now + _WARN_EVERY
        log.warning("rejected %d connections without this run's token, the last one from %s", count, host)
