"""The application side of one consumer, without any waiting.

Thread: application (whichever thread or task uses the consumer; one at a time).

Owns what the application may ask without a round trip: the assignment, the position after the last record handed out,
what is paused, what has failed. Everything else is an event to the network thread. `Consumer` and `AsyncConsumer`
differ only in how they wait.
"""

from __future__ import annotations

import operator
import re
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from multilane.client.blocks import Blocks
from multilane.client.calls import Call
from multilane.client.events import (
    ApplicationEvent,
    Assign,
    BackgroundEvent,
    EventQueue,
    FindOffsets,
    Seek,
    SetPaused,
    Signal,
)
from multilane.client.fetch.backend import Backend
from multilane.client.fetch.buffer import Failed, FetchBuffer, Moved
from multilane.client.fetch.cursor import At, Lookup, Start
from multilane.client.fetch.offsets import Found
from multilane.client.fetch.reset import ResetRule
from multilane.client.network import Attach, Detach, ForBackend
from multilane.client.sharing import Lease
from multilane.errors import (
    ClientClosed,
    ConcurrentUse,
    ForkedClient,
    MultilaneError,
    NoOffsetForPartition,
    NotAssigned,
    WakeupError,
    printable,
)
from multilane.types import LeaderEpoch, Offset, OffsetAndTimestamp, TopicPartition
from multilane.wire.compose import EARLIEST, LATEST

if TYPE_CHECKING:
    from multilane.config.consumer import ConsumerConfig
    from multilane.wire.records.block import Block

_LARGEST_INT32: Final = (1 << 31) - 1
_LARGEST_INT64: Final = (1 << 63) - 1
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_consumers: Final = count(1)


class _Partition:
    """What the application knows of one of its partitions."""

    __slots__ = ("failure", "generation", "high_watermark", "paused", "position", "start", "told")

    def __init__(self, generation: int, start: Start | None) -> None:
        self.generation = generation
        self.start = start
        self.position: Offset | None = start.offset if isinstance(start, At) else None
        self.high_watermark: int | None = None
        self.paused = False
        self.failure: MultilaneError | None = None
        self.told = False  # whether poll has raised the failure


class Front:
    def __init__(self, config: ConsumerConfig, lease: Lease, signal: Signal, wall: Callable[[], float]) -> None:
        self.config = config
        self._lease = lease
        self._signal = signal
        self._reset = ResetRule(config.auto_offset_reset, wall)
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._generations = count(1)
        self._background: EventQueue[BackgroundEvent] = EventQueue(signal)
        self._buffer = FetchBuffer(config.fetch_buffer_bytes, on_ready=signal.set, on_room=lease.thread.wake)
        name = f"fetch-{next(_consumers)}"
        self._backend = Backend(config, lease.thread.surroundings(), self._buffer, self._background, name)
        self._in_use = threading.Lock()
        self._wakeups = 0
        self._closed = False
        lease.thread.put(Attach(self._backend))

    def __str__(self) -> str:
        state = "closed" if self._closed else f"{len(self._partitions)} partitions"
        brokers = ",".join(f"{host}:{port}" for host, port in self.config.connection.bootstrap_servers)
        return f"{brokers}, {state}"

    # --- who may call ------------------------------------------------------------------------------------------------

    @contextmanager
    def used(self) -> Iterator[Front]:
        """Around every public call but wakeup: one thread or task at a time, and only while there is a client."""
        self._enter()
        try:
            yield self
        finally:
            self._in_use.release()

    def _enter(self) -> None:
        if self._closed:
            raise ClientClosed("this consumer is closed")
        if self._lease.is_inherited:
            raise ForkedClient("this consumer was made before a fork; make a new one in this process")
        if not self._in_use.acquire(blocking=False):
            raise ConcurrentUse("another thread or task uses this consumer; give each its own, or use a lock")

    # --- assignment --------------------------------------------------------------------------------------------------

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._partitions)

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        wanted = [_checked(p) for p in partitions]
        self._partitions = {p: self._partitions.get(p) or self._new(p) for p in wanted}
        self._publish()

    def _new(self, partition: TopicPartition) -> _Partition:
        state = _Partition(next(self._generations), self._reset.lookup("no position was given"))
        if state.start is None:
            state.failure = NoOffsetForPartition(
                f"{partition} has no position: seek first, or set auto.offset.reset to earliest, latest or "
                "by_duration:..."
            )
        return state

    def _publish(self) -> None:
        """Partitions without a starting point are not fetched: their generation is not told."""
        placed = {p: s for p, s in self._partitions.items() if s.start is not None}
        self._buffer.expect({p: s.generation for p, s in placed.items()})
        self._tell(Assign({p: (s.generation, s.start) for p, s in placed.items() if s.start is not None}))
        paused = frozenset(p for p, s in placed.items() if s.paused)
        if paused:
            self._tell(SetPaused(paused, True))

    # --- positions ---------------------------------------------------------------------------------------------------

    def seek(self, partition: TopicPartition, start: Start) -> None:
        partition = _checked(partition)
        state = self._state(partition)
        was_placed = state.start is not None
        state.generation = next(self._generations)
        state.start = start
        state.position = start.offset if isinstance(start, At) else None
        state.failure, state.told = None, False
        if not was_placed:
            self._publish()
            return
        self._buffer.expect({p: s.generation for p, s in self._partitions.items() if s.start is not None})
        self._tell(Seek(partition, state.generation, start))

    def seek_lookup(self, partitions: Collection[TopicPartition], timestamp: int) -> None:
        """Seek these, or all there are, to the beginning or the end."""
        states = [_checked(p) for p in (partitions or self._partitions)]
        for partition in states:
            self._state(partition)
        for partition in states:
            self.seek(partition, Lookup(timestamp, "seek"))

    def position(self, partition: TopicPartition) -> Offset | None:
        """The offset of the next record poll hands out; None while it is being looked up."""
        state = self._state(partition)
        if state.failure is not None and state.position is None:
            raise state.failure
        return state.position

    def lag(self, partition: TopicPartition) -> int | None:
        state = self._state(partition)
        if state.high_watermark is None or state.position is None:
            return None
        return max(0, state.high_watermark - state.position)

    def set_paused(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        states = [(p, self._state(p)) for p in map(_checked, partitions)]
        for _, state in states:
            state.paused = paused
        self._tell(SetPaused(frozenset(p for p, _ in states), paused))
        self._signal.set()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(p for p, s in self._partitions.items() if s.paused)

    def failures(self) -> Mapping[TopicPartition, MultilaneError]:
        return {p: s.failure for p, s in self._partitions.items() if s.failure is not None}

    # --- records -----------------------------------------------------------------------------------------------------

    def collect(self) -> Blocks:
        """What is there now. Raises what the network thread had to say, and new failures when nothing else is."""
        self._raise_told()
        if self._closed:
            raise ClientClosed("this consumer was closed while it polled")
        taken = self._buffer.take(self.config.max_poll_records, self.paused)
        blocks = [b for item in taken if (b := self._note(item)) is not None and len(b)]
        if not blocks:
            self._raise_new_failure()
        return Blocks(blocks)

    def _raise_told(self) -> None:
        """Errors are raised again and again: each time without the traceback of the last, which would only grow."""
        event = self._background.pop()
        if event is not None:
            raise event.error.with_traceback(None)
        if self._lease.thread.failure is not None:  # not only the first time: nothing will ever come again
            raise self._lease.thread.failure.with_traceback(None)

    @property
    def is_warming_up(self) -> bool:
        """Nothing can be handed out yet because the decoder is still being loaded."""
        thread = self._lease.thread
        return not thread.can_decode and thread.failure is None and not self._closed

    def absorb(self) -> None:
        """Take notice of moves without handing anything out: of partitions whose place is not known yet."""
        self.check_wakeup()
        self._raise_told()
        placed = [p for p, s in self._partitions.items() if s.position is not None]
        for item in self._buffer.take(0, placed):
            self._note(item)

    def _note(self, item: Block | Moved | Failed) -> Block | None:
        if isinstance(item, Failed):
            state = self._partitions.get(item.partition)
            if state is not None:
                state.failure, state.told = item.error, False
            return None
        if isinstance(item, Moved):
            state = self._partitions.get(item.partition)
            if state is not None:
                state.position = item.offset
            return None
        state = self._partitions.get(TopicPartition(item.topic, item.partition))
        if state is not None:
            state.position = Offset(item.next_offset)
            state.high_watermark = item.high_watermark
        return item

    def _raise_new_failure(self) -> None:
        for state in self._partitions.values():
            if state.failure is not None and not state.told and not state.paused:
                state.told = True
                raise state.failure.with_traceback(None)

    def raise_standing_failure(self) -> None:
        """A partition that stopped stays stopped; a poll that would come back empty says so again."""
        for state in self._partitions.values():
            if state.failure is not None and not state.paused:
                raise state.failure.with_traceback(None)

    # --- questions to the network thread -----------------------------------------------------------------------------

    def find_offsets(self, wanted: Mapping[TopicPartition, int], deadline: float) -> Future[Found]:
        future: Future[Found] = Future()
        checked = {_checked(p): int(t) for p, t in wanted.items()}
        if not checked:
            future.set_result({})
            return future
        self._tell(FindOffsets(checked, deadline, future))
        return future

    def call(self, call: Call) -> Future[Any]:
        self._lease.thread.put(call)
        return call.future

    # --- waking and closing ------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        self._wakeups += 1
        self._signal.set()

    def check_wakeup(self) -> None:
        if self._wakeups:
            self._wakeups = 0
            raise WakeupError("wakeup() was called")

    def begin_close(self) -> Future[None] | None:
        """Leave the network thread; None when there is nothing to leave."""
        if self._closed:
            return None
        self._closed = True
        if self._lease.is_inherited:  # a lock that the parent held at the fork stays held here
            return None
        self._buffer.clear()
        self._signal.set()
        future: Future[None] = Future()
        self._lease.thread.put(Detach(self._backend, future))
        return future

    def end_close(self) -> Future[None] | None:
        return self._lease.release()

    def _state(self, partition: TopicPartition | tuple[str, int]) -> _Partition:
        state = self._partitions.get(_checked(partition))
        if state is None:
            raise NotAssigned(f"{TopicPartition(*partition)} is not assigned to this consumer; assign it first")
        return state

    def _tell(self, event: ApplicationEvent) -> None:
        self._lease.thread.put(ForBackend(self._backend, event))


def beginning(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return dict.fromkeys(partitions, EARLIEST)


def end(partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    return dict.fromkeys(partitions, LATEST)


def only_offsets(found: Mapping[TopicPartition, OffsetAndTimestamp | None]) -> dict[TopicPartition, Offset]:
    """Look-ups of the beginning or the end always find one."""
    return {p: f.offset for p, f in found.items() if f is not None}


def at_time(timestamp: int) -> Lookup:
    return Lookup(_within("timestamp", timestamp, _LARGEST_INT64, "milliseconds since 1970"), "seek to a time")


def at_offset(offset: int, leader_epoch: int | None) -> At:
    place = _within("offset", offset, _LARGEST_INT64, "a number from 0; or use seek_to_beginning or seek_to_end")
    if leader_epoch is None:
        return At(Offset(place))
    return At(Offset(place), LeaderEpoch(_within("leader epoch", leader_epoch, _LARGEST_INT32, "a number from 0")))


def _within(what: str, value: Any, largest: int, instead: str) -> int:
    """A whole number that the protocol can carry."""
    try:
        number = operator.index(value)
    except TypeError:
        raise ValueError(f"{what} {value!r} is not a whole number: write {instead}") from None
    if not 0 <= number <= largest:
        raise ValueError(f"{what} {number} is out of range: write {instead}")
    return number


def _checked(partition: Any) -> TopicPartition:
    if type(partition) is not TopicPartition and (not isinstance(partition, Sequence) or len(partition) != 2):
        raise ValueError(f"{printable(repr(partition), 80)} is not a partition: write TopicPartition(topic, number)")
    topic = checked_topic(partition[0])
    return TopicPartition(topic, _within(f"partition of {topic}", partition[1], _LARGEST_INT32, "a number from 0"))


def checked_topic(topic: Any) -> str:
    if isinstance(topic, str) and _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return topic
    shown = printable(repr(topic), 80)
    raise ValueError(f"{shown} is not a topic name: 1 to 249 letters, digits, dots, hyphens or underscores")
