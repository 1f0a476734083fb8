"""Producers by the names of the configuration: one record or many, blocking or not, from threads or an event loop.

Thread: application, any number at a time; the `a...` forms on their event loop. Callbacks run on the producer's thread.

Owns one producer per cluster, created on first use. Reports the result of every message: by the call, by its future or,
without a callback, in the log. Never sends part of a bulk that contains an unsendable message, and never waits for
anything that the caller would have to fetch itself.
"""

from __future__ import annotations

import asyncio
import difflib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self, TypeVar

from multilane.client.produce.producer import Producer, RecordMetadata
from multilane.errors import ClientClosed, ClientFailed, ConfigError, MultilaneError, ProduceFailed
from multilane.listeners.context import current_context
from multilane.logs import logger
from multilane.outcome.next_step import Publish
from multilane.outcome.outbox import Outbox
from multilane.outcome.producer_slot import ProducerSlot
from multilane.runtime.produced_messages import CustomMessage, Message, body_bytes, copy_of, key_bytes

if TYPE_CHECKING:
    from multilane.wire.records.record import Headers

log = logger(__name__)

T = TypeVar("T")
OnProduced = Callable[[RecordMetadata | None, BaseException | None], object]


class ProducerInterceptor(Protocol):
    def on_produce(self, context: Any, message: Message | CustomMessage) -> object:
        """Look at a message before it is sent; its key, body and headers may be changed."""


class ClusterTopic(NamedTuple):
    """A topic, and the name of its cluster."""

    topic: str
    cluster: str


class _Ready(NamedTuple):
    """A message in bytes, and its producer."""

    slot: ProducerSlot[Producer]
    cluster: str
    record: Publish


class Producers:
    """Takes the topics by name, and the Kafka properties of each cluster. Names ignore case.

    >>> with Producers({"orders": ("shop.orders.0", "main")}, {"main": {"bootstrap.servers": "localhost:9092"}}) as p:
    ...     p.produce(Message("orders", "customer-7", {"item": "apples"}))
    """

    def __init__(
        self,
        topics: Mapping[str, tuple[str, str]],
        clusters: Mapping[str, Mapping[str, object]],
        *,
        interceptors: Sequence[ProducerInterceptor] = (),
    ) -> None:
        self._topics = {name.lower(): ClusterTopic(*topic) for name, topic in topics.items()}
        self._slots = {name.lower(): ProducerSlot(partial(Producer, props)) for name, props in clusters.items()}
        self._interceptors = tuple(interceptors)
        self._outboxes: dict[tuple[asyncio.AbstractEventLoop, str], Outbox] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def topic(self, config_name: str) -> ClusterTopic:
        """The topic with this name in the configuration."""
        return _look_up(self._topics, config_name, "producer topic")

    def producer(self, cluster: str) -> Producer:
        """The underlying producer of a cluster, for everything that this class does not offer."""
        return self._slot(cluster).get()

    # --- blocking ----------------------------------------------------------------------------------------------------

    def produce(self, message: Any, context: Any = None) -> RecordMetadata:
        """Send a message and wait until it is stored."""
        return self._send(self._ready(message, context)).result()

    def produce_bulk(self, messages: Iterable[Any], size: int = 0, context: Any = None) -> list[RecordMetadata]:
        """Send many, `size` at a time (all at once when it is 0 or less), and wait until they are stored.

        Raises ProduceFailed with every message that was not stored, once all that were sent have a result. If a part
        fails, the messages after it are not sent, and count as failures.
        """
        ready = [self._ready(message, context) for message in messages]
        stored: list[RecordMetadata] = []
        for part in _parts(ready, size):
            outcomes = [_outcome(f) for f in [self._sent_or_failed(r) for r in part]]
            stored += _all_stored(outcomes, len(stored), len(ready))
        return stored

    # --- not blocking ------------------------------------------------------------------------------------------------

    def produce_async(
        self, message: Any, context: Any = None, callback: OnProduced | None = None
    ) -> Future[RecordMetadata]:
        """Send a message without waiting for the result. Blocks only for buffer space (`max.block.ms` at most).
        `callback(stored, error)` must not block. Without a callback a failure is logged, even if the future is read."""
        ready = self._ready(message, context)
        future = self._sent_or_failed(ready)
        future.add_done_callback(partial(_report, callback, ready.record.topic))
        return future

    def produce_async_bulk(
        self, messages: Iterable[Any], size: int = 0, context: Any = None, callback: OnProduced | None = None
    ) -> list[Future[RecordMetadata]]:
        """Send many without waiting for the results. `size` has no effect here."""
        del size
        ready = [self._ready(message, context) for message in messages]
        futures = [self._sent_or_failed(one) for one in ready]
        for one, future in zip(ready, futures, strict=True):
            future.add_done_callback(partial(_report, callback, one.record.topic))
        return futures

    # --- asyncio -----------------------------------------------------------------------------------------------------

    async def aproduce(self, message: Any, context: Any = None) -> RecordMetadata:
        """Send a message and await until it is stored. Never blocks the loop for buffer space."""
        ready = self._ready(message, context)
        return await self._outbox(ready).send(ready.record)

    async def aproduce_bulk(self, messages: Iterable[Any], size: int = 0, context: Any = None) -> list[RecordMetadata]:
        """`produce_bulk` for an event loop."""
        ready = [self._ready(message, context) for message in messages]
        stored: list[RecordMetadata] = []
        for part in _parts(ready, size):
            waits = [self._outbox(r).send(r.record) for r in part]
            outcomes = await asyncio.gather(*waits, return_exceptions=True)
            stored += _all_stored(outcomes, len(stored), len(ready))
        return stored

    # --- life --------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Wait for acknowledgements (default timeout: 30s) and close. A second call does nothing."""
        with self._lock:
            self._closed = True
            outboxes, self._outboxes = self._outboxes, {}
        for outbox in outboxes.values():
            outbox.close()
        for slot in self._slots.values():
            slot.close(timeout)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _ready(self, message: Any, context: Any) -> _Ready:
        copy = copy_of(message)
        for interceptor in self._interceptors:
            interceptor.on_produce(current_context() if context is None else context, copy)
        if isinstance(copy, CustomMessage):
            target = ClusterTopic(copy.topic, copy.cluster)
        else:
            target = self.topic(copy.config_name)
        headers: Headers = tuple((n, v.encode() if isinstance(v, str) else v) for n, v in copy.headers)
        record = Publish(target.topic, None, key_bytes(copy.key), body_bytes(copy.body), headers)
        return _Ready(self._slot(target.cluster), target.cluster.lower(), record)

    def _slot(self, cluster: str) -> ProducerSlot[Producer]:
        return _look_up(self._slots, cluster, "cluster")

    def _send(self, ready: _Ready) -> Future[RecordMetadata]:
        producer = ready.slot.get()
        record = ready.record
        future = producer.send(record.topic, record.value, record.key, record.headers, record.partition)
        future.add_done_callback(partial(_replace_if_failed, ready.slot, producer))
        return future

    def _sent_or_failed(self, ready: _Ready) -> Future[RecordMetadata]:
        """Like `_send`, but an error goes into the future: it must not hide the results of the messages before it."""
        try:
            return self._send(ready)
        except Exception as error:  # noqa: BLE001 - reported by the future
            failed: Future[RecordMetadata] = Future()
            failed.set_exception(error)
            return failed

    def _outbox(self, ready: _Ready) -> Outbox:
        loop = asyncio.get_running_loop()
        found = self._outboxes.get((loop, ready.cluster))
        if found is not None:
            return found
        with self._lock:
            if self._closed:
                raise ClientClosed("the producers of this application are closed")
            for known in [k for k in self._outboxes if k[0].is_closed()]:  # left by an earlier asyncio.run()
                self._outboxes.pop(known).close()
            return self._outboxes.setdefault((loop, ready.cluster), Outbox(ready.slot))


def _look_up(names: Mapping[str, T], name: object, kind: str) -> T:
    found = names.get(str(name).lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(str(name).lower(), names, n=1, cutoff=0.6)
    known = ", ".join(sorted(names)) or "none"
    hint = f"did you mean {near[0]}?" if near else f"configured: {known}"
    raise ConfigError(f"there is no {kind} {str(name)!r} in the configuration; {hint}")


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    everything = list(items)
    step = size if size > 0 else max(1, len(everything))
    for start in range(0, len(everything), step):
        yield everything[start : start + step]


def _outcome(future: Future[RecordMetadata]) -> RecordMetadata | BaseException:
    return future.exception() or future.result()


def _all_stored(outcomes: Sequence[RecordMetadata | BaseException], before: int, total: int) -> list[RecordMetadata]:
    failures = [(before + n, o) for n, o in enumerate(outcomes) if isinstance(o, Exception)]
    stored = [o for o in outcomes if isinstance(o, RecordMetadata)]
    if not failures:
        return stored
    error = MultilaneError("not sent, because messages before it failed")
    unsent = [(n, error) for n in range(before + len(outcomes), total)]
    raise ProduceFailed((*failures, *unsent), total)


def _report(callback: OnProduced | None, topic: str, future: Future[RecordMetadata]) -> None:
    if future.cancelled():
        return
    error = future.exception()
    if callback is not None:
        callback(None if error is not None else future.result(), error)
    elif error is not None:
        log.error("a message to %s was not stored: %s", topic, error)


def _replace_if_failed(slot: ProducerSlot[Producer], producer: Producer, future: Future[RecordMetadata]) -> None:
    if not future.cancelled() and isinstance(future.exception(), ClientFailed):
        slot.replace(producer)
