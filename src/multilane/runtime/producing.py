"""Producers by the names of the configuration: one record or many, waiting or not, from threads or an event loop.

Thread: application, any number at a time; the `a...` forms on their event loop. Callbacks run on the producer's thread.

Owns one producer per cluster, made on first use. Every message's fate is told: by the call, by its future or, when
nobody asked, by the log. Nothing is sent of a bulk that holds a message which cannot be. Never waits for anything that
the caller would have to fetch itself.
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
from multilane.outcome.flow import Publish
from multilane.outcome.outbox import Outbox
from multilane.outcome.producer_slot import ProducerSlot
from multilane.runtime.produced_messages import CustomMessage, Message, body_bytes, drafted, key_bytes

if TYPE_CHECKING:
    from multilane.wire.records.record import Headers

log = logger(__name__)

T = TypeVar("T")
OnProduced = Callable[[RecordMetadata | None, BaseException | None], object]


class ProducerInterceptor(Protocol):
    def on_produce(self, context: Any, message: Message | CustomMessage) -> object:
        """Look at a message before it is sent; its key, body and headers may be changed."""


class TopicPlace(NamedTuple):
    """A topic, and the name of its cluster."""

    topic: str
    cluster: str


class _Ready(NamedTuple):
    """A message in bytes, and the producer it goes through."""

    slot: ProducerSlot
    cluster: str
    record: Publish


class Producers:
    """Made from the names of topics and the Kafka properties of each cluster. Names are the same in any case.

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
        self._topics = {name.lower(): TopicPlace(*place) for name, place in topics.items()}
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

    def topic(self, config_name: str) -> TopicPlace:
        """The topic under a name of the configuration."""
        return _looked_up(self._topics, config_name, "producer topic")

    def producer(self, cluster: str) -> Producer:
        """The producer of a cluster itself, for what is not offered here."""
        return self._slot(cluster).get()

    # --- waiting -----------------------------------------------------------------------------------------------------

    def produce(self, message: Any, context: Any = None) -> RecordMetadata:
        """Send a message and wait until it is stored."""
        return self._send(self._ready(message, context)).result()

    def produce_bulk(self, messages: Iterable[Any], size: int = 0, context: Any = None) -> list[RecordMetadata]:
        """Send many, `size` at a time (all at once when it is 0 or less), and wait until they are stored.

        Raises ProduceFailed with every message that was not, once the fate of all that were sent is known; the messages
        behind a part that failed are not sent, and are among the failures.
        """
        ready = [self._ready(message, context) for message in messages]
        stored: list[RecordMetadata] = []
        for part in _parts(ready, size):
            outcomes = [_outcome(f) for f in [self._sent_or_failed(r) for r in part]]
            stored += _all_stored(outcomes, len(stored), len(ready))
        return stored

    # --- not waiting -------------------------------------------------------------------------------------------------

    def produce_async(
        self, message: Any, context: Any = None, callback: OnProduced | None = None
    ) -> Future[RecordMetadata]:
        """Send a message and go on. Waits for room only (`max.block.ms` at most); `callback(stored, error)` must not
        block. Without a callback a failure is logged, whether or not anybody looks at the future."""
        ready = self._ready(message, context)
        future = self._sent_or_failed(ready)
        future.add_done_callback(partial(_tell, callback, ready.record.topic))
        return future

    def produce_async_bulk(
        self, messages: Iterable[Any], size: int = 0, context: Any = None, callback: OnProduced | None = None
    ) -> list[Future[RecordMetadata]]:
        """Send many and go on. Nothing is waited for, so that `size` makes no difference here."""
        del size
        ready = [self._ready(message, context) for message in messages]
        futures = [self._sent_or_failed(one) for one in ready]
        for one, future in zip(ready, futures, strict=True):
            future.add_done_callback(partial(_tell, callback, one.record.topic))
        return futures

    # --- asyncio -----------------------------------------------------------------------------------------------------

    async def aproduce(self, message: Any, context: Any = None) -> RecordMetadata:
        """Send a message and await that it is stored; the loop never waits for room."""
        ready = self._ready(message, context)
        return await self._outbox(ready).send(ready.record)

    async def aproduce_bulk(self, messages: Iterable[Any], size: int = 0, context: Any = None) -> list[RecordMetadata]:
        """The same as `produce_bulk`."""
        ready = [self._ready(message, context) for message in messages]
        stored: list[RecordMetadata] = []
        for part in _parts(ready, size):
            waits = [self._outbox(r).send(r.record) for r in part]
            outcomes = await asyncio.gather(*waits, return_exceptions=True)
            stored += _all_stored(outcomes, len(stored), len(ready))
        return stored

    # --- life --------------------------------------------------------------------------------------------------------

    def close(self, timeout: float | None = None) -> None:
        """Wait for acknowledgements (30 s at most without a timeout) and end. A second call does nothing."""
        with self._lock:
            self._closed = True
            outboxes, self._outboxes = self._outboxes, {}
        for outbox in outboxes.values():
            outbox.close()
        for slot in self._slots.values():
            slot.close(timeout)

    # --- how ---------------------------------------------------------------------------------------------------------

    def _ready(self, message: Any, context: Any) -> _Ready:
        draft = drafted(message)
        for interceptor in self._interceptors:
            interceptor.on_produce(current_context() if context is None else context, draft)
        if isinstance(draft, CustomMessage):
            place = TopicPlace(draft.topic, draft.cluster)
        else:
            place = self.topic(draft.config_name)
        headers: Headers = tuple((n, v.encode() if isinstance(v, str) else v) for n, v in draft.headers)
        record = Publish(place.topic, None, key_bytes(draft.key), body_bytes(draft.body), headers)
        return _Ready(self._slot(place.cluster), place.cluster.lower(), record)

    def _slot(self, cluster: str) -> ProducerSlot:
        return _looked_up(self._slots, cluster, "cluster")

    def _send(self, ready: _Ready) -> Future[RecordMetadata]:
        producer = ready.slot.get()
        record = ready.record
        future = producer.send(record.topic, record.value, record.key, record.headers, record.partition)
        future.add_done_callback(partial(_replace_if_failed, ready.slot, producer))
        return future

    def _sent_or_failed(self, ready: _Ready) -> Future[RecordMetadata]:
        """One message that cannot be sent must not hide what became of those before it."""
        try:
            return self._send(ready)
        except Exception as error:  # noqa: BLE001 - told by the future
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
            for known in [k for k in self._outboxes if k[0].is_closed()]:  # of an earlier asyncio.run()
                self._outboxes.pop(known).close()
            return self._outboxes.setdefault((loop, ready.cluster), Outbox(ready.slot))


def _looked_up(names: Mapping[str, T], name: object, what: str) -> T:
    found = names.get(str(name).lower())
    if found is not None:
        return found
    near = difflib.get_close_matches(str(name).lower(), names, n=1, cutoff=0.6)
    known = ", ".join(sorted(names)) or "none"
    hint = f"did you mean {near[0]}?" if near else f"configured are: {known}"
    raise ConfigError(f"there is no {what} {str(name)!r} in the configuration; {hint}")


def _parts(items: Iterable[T], size: int) -> Iterator[list[T]]:
    everything = list(items)
    step = size if size > 0 else max(1, len(everything))
    for at in range(0, len(everything), step):
        yield everything[at : at + step]


def _outcome(future: Future[RecordMetadata]) -> RecordMetadata | BaseException:
    return future.exception() or future.result()


def _all_stored(outcomes: Sequence[RecordMetadata | BaseException], before: int, total: int) -> list[RecordMetadata]:
    failures = [(before + n, o) for n, o in enumerate(outcomes) if isinstance(o, Exception)]
    stored = [o for o in outcomes if isinstance(o, RecordMetadata)]
    if not failures:
        return stored
    unsent = MultilaneError("not sent, because messages before it failed")
    behind = [(n, unsent) for n in range(before + len(outcomes), total)]
    raise ProduceFailed((*failures, *behind), total)


def _tell(callback: OnProduced | None, topic: str, future: Future[RecordMetadata]) -> None:
    if future.cancelled():
        return
    error = future.exception()
    if callback is not None:
        callback(None if error is not None else future.result(), error)
    elif error is not None:
        log.error("a message to %s was not stored: %s", topic, error)


def _replace_if_failed(slot: ProducerSlot, producer: Producer, future: Future[RecordMetadata]) -> None:
    if not future.cancelled() and isinstance(future.exception(), ClientFailed):
        slot.replace(producer)
