"""Sends copies from an event loop that must not block: a sender thread blocks instead.

Thread: loop (`send`, `abandon`, `close`), its own sender thread, and the thread that serves the producer.

A producer may block its caller (for room, for its first start), so copies go through a queue to the sender thread.
Acknowledgements come back in batches: a new one wakes the loop only if no wakeup is pending. Owns both queues and the
futures of the callers; never sends a copy twice by itself.
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
from typing import TYPE_CHECKING, Any, Final

from multilane.errors import ClientFailed

if TYPE_CHECKING:
    from multilane.client.produce.delivery import RecordMetadata
    from multilane.client.produce.producer import Producer
    from multilane.outcome.next_step import Publish
    from multilane.outcome.producer_slot import ProducerSlot
    from multilane.outcome.shared_producers import ProducerShare

    Waiter = asyncio.Future[RecordMetadata]

_numbers: Final = count(1)


class Outbox:
    """Create it inside a running event loop."""

    def __init__(self, slot: ProducerSlot[Any]) -> None:
        self._slot = slot
        self._loop = asyncio.get_running_loop()
        self._to_send: SimpleQueue[tuple[Publish, Waiter] | None] = SimpleQueue()
        self._answers: deque[tuple[Waiter, RecordMetadata | BaseException]] = deque()
        self._is_woken = False
        self._waiting: set[Waiter] = set()
        self._thread: threading.Thread | None = None

    @property
    def waiting(self) -> int:
        """Copies that are neither acknowledged nor failed."""
        return len(self._waiting)

    def send(self, copy: Publish) -> Waiter:
        """Queue a copy; the future returns where it was stored. Copies are sent in the order of the calls."""
        waiter: Waiter = self._loop.create_future()
        self._waiting.add(waiter)
        waiter.add_done_callback(self._waiting.discard)
        if self._thread is None:
            name = f"multilane-outbox-{next(_numbers)}"
            self._thread = threading.Thread(target=self._run, name=name, daemon=True)
            self._thread.start()
        self._to_send.put((copy, waiter))
        return waiter

    def abandon(self, error: Callable[[], BaseException]) -> None:
        """Fail all futures; copies may still be stored. Each future gets its own error: tracebacks grow."""
        for waiter in list(self._waiting):
            if not waiter.done():
                waiter.set_exception(error())

    def close(self) -> None:
        """The thread ends after it has handed over the queued copies."""
        if self._thread is not None:
            self._thread = None
            self._to_send.put(None)

    # --- the sender thread -------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (item := self._to_send.get()) is not None:
            self._hand_over(*item)

    def _hand_over(self, copy: Publish, waiter: Waiter) -> None:
        if waiter.done():  # abandoned in the queue: then it must not be stored either
            return
        try:
            producer = self._slot.get()
            sent = producer.send(copy.topic, copy.value, copy.key, copy.headers, copy.partition)
        except Exception as error:  # noqa: BLE001 - the future gets it
            self._answer(waiter, error)
        else:
            sent.add_done_callback(partial(self._acknowledged, waiter, producer))

    def _acknowledged(self, waiter: Waiter, producer: Producer | ProducerShare, sent: Future[RecordMetadata]) -> None:
        error = sent.exception()
        if isinstance(error, ClientFailed):
            self._slot.replace(producer)
        self._answer(waiter, sent.result() if error is None else error)

    def _answer(self, waiter: Waiter, answer: RecordMetadata | BaseException) -> None:
        self._answers.append((waiter, answer))
        if self._is_woken:
            return
        self._is_woken = True
        try:
            self._loop.call_soon_threadsafe(self._resolve)
        except RuntimeError:
            return  # the loop is closed: no caller waits any more

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        """Clears the flag before it empties the queue: an answer that saw the flag set is in the queue already and is
        taken now; a later one wakes the loop again."""
        self._is_woken = False
        while self._answers:
            waiter, answer = self._answers.popleft()
            if waiter.done():
                continue
            if isinstance(answer, BaseException):
                waiter.set_exception(answer)
            else:
                waiter.set_result(answer)
