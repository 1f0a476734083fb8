"""Where a driver, or a query's process, takes calls of its tasks.

Thread: one accepts calls and ends those that take too long; each line has one of its own.

Anyone who reaches the port may call. Who does not prove to know the run's token is turned away, and keeps nobody else
from calling meanwhile (`strangers`).
"""

from __future__ import annotations

import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from multilane.clock import SystemClock
from multilane.engines.channel.channel import WELCOME, MessageChannel, digits, prove, tuned
from multilane.engines.channel.seal import DRIVER, Transcript
from multilane.engines.channel.strangers import UnprovenCallers
from multilane.errors import LineLost
from multilane.logs import logger

log = logger(__name__)

_BACKLOG: Final = 128
_SWEEP_SECONDS: Final = 0.1  # between two looks for strangers that take too long, and after a failed accept
_WARN_EVERY: Final = 10.0


class ChannelServer:
    """The driver's side: hands every line whose peer knows the token to `on_line`, on a thread of that line."""

    def __init__(self, bind: str, host: str, token: str, on_line: Callable[[MessageChannel], None]) -> None:
        self._token = token
        self._on_line = on_line
        self._clock = SystemClock()
        self._is_closed = threading.Event()
        self._strangers: UnprovenCallers[MessageChannel] = UnprovenCallers()
        self._guard = threading.Lock()  # of the strangers
        self._turned_away = 0  # since the last warning
        self._warn_at = 0.0
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
                self._listening.settimeout(_SWEEP_SECONDS if self._strangers else None)
                connection, peer = self._listening.accept()
            except TimeoutError:
                self._sweep()
            except OSError as error:  # closed, or this process has no room for one more at present
                self._sweep()
                if not self._is_closed.wait(_SWEEP_SECONDS):
                    log.warning("cannot accept connections from workers: %s", error)
            else:
                self._sweep()
                self._take_in(connection, str(peer[0]))

    def _sweep(self) -> None:
        with self._guard:
            late = self._strangers.overdue(self._clock.monotonic())
        for line in late:
            line.hang_up()

    def _take_in(self, connection: socket.socket, host: str) -> None:
        try:
            line = tuned(connection)
        except LineLost:  # it is gone again
            return
        with self._guard:
            evicted = self._strangers.come(line, host, self._clock.monotonic())
        if evicted is not None:
            evicted.hang_up()
        try:
            threading.Thread(target=self._welcome, args=(line, host), name="multilane-line", daemon=True).start()
        except RuntimeError as error:  # no thread more
            log.warning("cannot accept connections from workers: %s", error)
            self._forget(line)
            line.close()

    def _welcome(self, line: MessageChannel, host: str) -> None:
        try:
            if not self._is_ours(line):
                self._turn_away(host)
            elif self._forget(line):  # else it had to go, and its caller tries again
                line.trust()
                line.send(WELCOME)
                self._on_line(line)
        except LineLost:
            pass
        finally:
            self._forget(line)
            line.close()

    def _is_ours(self, line: MessageChannel) -> bool:
        drivers = secrets.token_hex(16)
        line.send("number", number=drivers)
        members = digits(line.receive(), "number")
        with self._guard:
            self._strangers.speak(line)
        return members is not None and prove(line, self._token, Transcript(self.address, drivers, members), DRIVER)

    def _forget(self, line: MessageChannel) -> bool:
        with self._guard:
            return self._strangers.leave(line)

    def _turn_away(self, host: str) -> None:
        """Whoever floods the port does not flood the log."""
        now = self._clock.monotonic()
        with self._guard:
            self._turned_away += 1
            if now < self._warn_at:
                return
            count, self._turned_away, self._warn_at = self._turned_away, 0, now + _WARN_EVERY
        log.warning("rejected %d connections without this run's token, the last one from %s", count, host)
