"""What a driver hears from its tasks and what else happens to it, one thing after the other.

Thread: the driver's own, which owns everything here; `put` from any, also from a signal handler.

Every task has a number and one line. Who calls with a number that has a line already took the other's place: Spark has
started a task again, and the one before gives up when it notices that nobody listens.
"""

from __future__ import annotations

import queue
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from multilane.clock import Clock
from multilane.engines.channel.channel import Message, MessageChannel
from multilane.engines.channel.server import ChannelServer
from multilane.errors import LineLost
from multilane.logs import logger

log = logger(__name__)

_LAST_WORDS: Final = 1.0  # seconds


class InboxListener(Protocol):
    """Who is told what tasks say."""

    def on_message(self, number: int, line: MessageChannel, message: Message) -> None: ...

    def on_unheard(self, number: int) -> None:
        """Its line is gone, and nobody has taken its place."""


class DriverInbox:
    """For one run. Things may be put on it before that begins."""

    _desk: ChannelServer
    _listener: InboxListener

    def __init__(self, who: str, clock: Clock) -> None:
        self.token = secrets.token_hex(32)
        self._who = who  # a task, in the words of this run
        self._clock = clock
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._lines: dict[int, MessageChannel] = {}

    def open(self, bind: str, host: str, tasks: int, listener: InboxListener) -> tuple[str, int]:
        """Gives the address at which tasks call, which have the numbers below `tasks`."""
        self._listener = listener
        self._desk = ChannelServer(bind, host, self.token, partial(self._hear, tasks))
        return self._desk.address

    def put(self, event: Callable[[], None]) -> None:
        self._events.put(event)

    def turn(self, until: float) -> None:
        """The next event, or as much time as there is."""
        try:
            handle = self._events.get(timeout=max(0.0, until - self._clock.monotonic()))
        except queue.Empty:
            return
        handle()

    def hear_out(self) -> None:
        """What tasks said last may come after their jobs are known to have ended."""
        until = self._clock.monotonic() + _LAST_WORDS
        while self._lines and self._clock.monotonic() < until:
            self.turn(until)

    def close(self) -> None:
        self._desk.close()
        for line in self._lines.values():
            line.close()

    # --- lines -------------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[int]:
        """The numbers that have a line."""
        return iter(sorted(self._lines))

    def __len__(self) -> int:
        return len(self._lines)

    def connect(self, number: int, line: MessageChannel) -> None:
        if self._lines.get(number) is not line:
            self.hang_up(number)
            self._lines[number] = line

    def is_connected(self, number: int, line: MessageChannel) -> bool:
        """Else it is of one whose place somebody else has."""
        return self._lines.get(number) is line

    def hang_up(self, number: int) -> None:
        line = self._lines.pop(number, None)
        if line is not None:
            line.close()

    def say(self, number: int, kind: str, **fields: object) -> None:
        try:
            self._lines[number].send(kind, **fields)
        except (KeyError, LineLost):
            log.debug("%s %d cannot be told %s: its line is gone", self._who, number, kind)

    def _hear(self, tasks: int, line: MessageChannel) -> None:
        """On the line's own thread, until it ends."""
        number: int | None = None
        while (message := line.receive()) is not None:
            told = message.get("number")
            if not isinstance(told, int) or not 0 <= told < tasks:
                log.warning("a %s that does not exist calls: %r", self._who, told)
                break
            number = told
            self._events.put(partial(self._listener.on_message, number, line, message))
        if number is not None:
            self._events.put(partial(self._gone, number, line))

    def _gone(self, number: int, line: MessageChannel) -> None:
        if self.is_connected(number, line):
            del self._lines[number]
            self._listener.on_unheard(number)
