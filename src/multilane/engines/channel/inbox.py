"""The driver's inbox: messages of its tasks and other events, handled one at a time.

Thread: the driver's own, which owns everything here; `put` from any, also from a signal handler.

Each task has a number and one channel. A second connection with the same number replaces the first: Spark has restarted
the task, and the earlier attempt gives up when its channel closes.
"""

from __future__ import annotations

import queue
import secrets
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from multilane.clock import Clock
from multilane.engines.channel.channel import ChannelMessage, MessageChannel
from multilane.engines.channel.server import ChannelServer
from multilane.errors import ChannelLost
from multilane.logs import logger

log = logger(__name__)

_DRAIN_SECONDS: Final = 1.0


class InboxListener(Protocol):
    """Handles what arrives from tasks."""

    def on_message(self, number: int, channel: MessageChannel, message: ChannelMessage) -> None: ...

    def on_disconnect(self, number: int) -> None:
        """The task's channel has closed, and no other has replaced it."""


class DriverInbox:
    """For one run. Events may be put before `open`."""

    _server: ChannelServer
    _listener: InboxListener

    def __init__(self, task_name: str, clock: Clock) -> None:
        """`task_name`: what log lines call a task of this run."""
        self.token = secrets.token_hex(32)
        self._task_name = task_name
        self._clock = clock
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._channels: dict[int, MessageChannel] = {}

    def open(self, bind: str, host: str, tasks: int, listener: InboxListener) -> tuple[str, int]:
        """Returns the address that tasks connect to. Their numbers are below `tasks`."""
        self._listener = listener
        self._server = ChannelServer(bind, host, self.token, partial(self._receive, tasks))
        return self._server.address

    def put(self, event: Callable[[], None]) -> None:
        self._events.put(event)

    def handle_next(self, until: float) -> None:
        """Handle the next event, or return at `until`."""
        try:
            handle = self._events.get(timeout=max(0.0, until - self._clock.monotonic()))
        except queue.Empty:
            return
        handle()

    def drain(self) -> None:
        """Handle the last messages of tasks: they may arrive after the end of their jobs."""
        until = self._clock.monotonic() + _DRAIN_SECONDS
        while self._channels and self._clock.monotonic() < until:
            self.handle_next(until)

    def close(self) -> None:
        self._server.close()
        for channel in self._channels.values():
            channel.close()

    # --- channels ----------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[int]:
        """The numbers of connected tasks."""
        return iter(sorted(self._channels))

    def __len__(self) -> int:
        return len(self._channels)

    def connect(self, number: int, channel: MessageChannel) -> None:
        if self._channels.get(number) is not channel:
            self.disconnect(number)
            self._channels[number] = channel

    def is_connected(self, number: int, channel: MessageChannel) -> bool:
        """False when another channel has replaced this one."""
        return self._channels.get(number) is channel

    def disconnect(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None:
            channel.close()

    def send(self, number: int, kind: str, **fields: object) -> None:
        """Ignored when the task is not connected."""
        try:
            self._channels[number].send(kind, **fields)
        except (KeyError, ChannelLost):
            log.debug("cannot send %s to %s %d: its connection is gone", kind, self._task_name, number)

    def _receive(self, tasks: int, channel: MessageChannel) -> None:
        """On the channel's own thread, until the channel closes."""
        number: int | None = None
        while (message := channel.receive()) is not None:
            sender = message.get("number")
            if not isinstance(sender, int) or not 0 <= sender < tasks:
                log.warning("closing a connection of unknown %s %r", self._task_name, sender)
                break
            number = sender
            self._events.put(partial(self._listener.on_message, number, channel, message))
        if number is not None:
            self._events.put(partial(self._on_closed, number, channel))

    def _on_closed(self, number: int, channel: MessageChannel) -> None:
        if self.is_connected(number, channel):
            del self._channels[number]
            self._listener.on_disconnect(number)
