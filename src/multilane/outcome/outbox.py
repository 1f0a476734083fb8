"""Sends copies from an event loop that must not wait: a thread of its own waits instead.

Thread: loop (`send`, `abandon`, `close`), its own sender thread, and whichever thread serves the producer.

A producer may make its caller wait (for room, for its first start), so copies go through a queue to the sender thread.
Acknowledgements come back in batches: whoever adds one rings the loop only if nobody has rung since the loop last
looked. Owns both queues and the futures of those who wait; never sends a copy twice by itself.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from itertools import count
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

from multilane.errors import ClientFailed

if TYPE_CHECKING:
    from multilane.client.produce.delivery import RecordMetadata
    from multilane.client.produce.producer import Producer
    from multilane.outcome.flow import Publish
    from multilane.outcome.producer_slot import ProducerSlot

    Waiter = asyncio.Future[RecordMetadata]

_numbers: Final = count(1)


class Outbox:
    """Make it inside a running event loop."""

    def __init__(self, slot: ProducerSlot) -> None:
        self._slot = slot
        self._loop = asyncio.get_running_loop()
        self._out: SimpleQueue[tuple[Publish, Waiter] | None] = SimpleQueue()
        self._back: deque[tuple[Waiter, RecordMetadata | BaseException]] = deque()
        self._rung = False
        self._waiting: set[Waiter] = set()
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Copies whose fate is not known."""
        return len(self._waiting)

    def send(self, copy: Publish) -> Waiter:
        """Put a copy on its way; the future tells where it was stored. Copies are sent in the order of the calls."""
        waiter: Waiter = self._loop.create_future()
        self._waiting.add(waiter)
        waiter.add_done_callback(self._waiting.discard)
        if self._thread is None:
            name = f"multilane-outbox-{next(_numbers)}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        self._out.put((copy, waiter))
        return waiter

    def abandon(self, error: Callable[[], BaseException]) -> None:
        """Nobody waits any more; copies may still arrive. Each gets an error of its own: tracebacks grow."""
        for waiter in list(self._waiting):
            if not waiter.done():
                waiter.set_exception(error())

    def close(self) -> None:
        """The thread ends when it has handed over what is queued."""
        if self._thread is not None:
            self._thread = None
            self._out.put(None)

    # --- the sender thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (item := self._out.get()) is not None:
            self._hand_over(*item)

    def _hand_over(self, copy: Publish, waiter: Waiter) -> None:
        if waiter.done():  # given up while it queued: then it should not be stored either
            return
        try:
            producer = self._slot.get()
            sent = producer.send(copy.topic, copy.value, copy.key, copy.headers, copy.partition)
        except Exception as error:  # noqa: BLE001 - whoever waits for the copy is told
            self._answer(waiter, error)
        else:
            sent.add_done_callback(partial(self._acknowledged, waiter, producer))

    def _acknowledged(self, waiter: Waiter, producer: Producer, sent: Future[RecordMetadata]) -> None:
        error = sent.exception()
        if isinstance(error, ClientFailed):
            self._slot.replace(producer)
        self._answer(waiter, sent.result() if error is None else error)

    def _answer(self, waiter: Waiter, answer: RecordMetadata | BaseException) -> None:
        self._back.append((waiter, answer))
        if self._rung:
            return
        self._rung = True
        try:
            self._loop.call_soon_threadsafe(self._hand_out)
        except RuntimeError:
            return  # the loop is closed: nobody waits any more

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _hand_out(self) -> None:
        """The flag is lowered before the queue is emptied: an answer that finds it raised is in the queue already, and
        is taken now; one that comes later rings again."""
        self._rung = False
        while self._back:
            waiter, answer = self._back.popleft()
            if waiter.done():
                continue
            if isinstance(answer, BaseException):
                waiter.set_exception(answer)
            else:
                waiter.set_result(answer)
