"""The events between application and network thread, and the queue that carries them.

Thread: any.

Events are frozen values. An application event requests something from the network thread; a background event reports
something to the application thread. An event that blocks its caller carries a future. Records never travel here but
through the fetch buffer, which keeps the order of a partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from multilane.client.fetch.cursor import StartPosition
    from multilane.client.group.membership import RebalanceStep
    from multilane.client.group.wanted_topics import WantedTopics
    from multilane.errors import MultilaneError, RecordBatchError
    from multilane.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

# --- application events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    """The complete assignment: each partition's generation and start. Known generations continue."""

    starts: Mapping[TopicPartition, tuple[int, StartPosition]]


@dataclass(frozen=True, slots=True)
class Seek:
    partition: TopicPartition
    generation: int
    start: StartPosition


@dataclass(frozen=True, slots=True)
class SetPaused:
    partitions: frozenset[TopicPartition]
    paused: bool


@dataclass(frozen=True, slots=True)
class FindOffsets:
    """Timestamps (or EARLIEST, LATEST, MAX_TIMESTAMP) to look up; with `by_epoch`, epochs whose ends to look up."""

    wanted: Mapping[TopicPartition, int]
    deadline: float
    future: Future[Mapping[TopicPartition, OffsetAndTimestamp | None]]
    by_epoch: bool = False


@dataclass(frozen=True, slots=True)
class BatchUnreadable:
    """From a decoder: nothing from the error's offset on can be decoded. It is fetched again under `refetch_epoch`."""

    partition: TopicPartition
    generation: int
    refetch_epoch: int
    error: RecordBatchError


@dataclass(frozen=True, slots=True)
class BatchReadable:
    """From a decoder: a batch that was fetched again is readable."""

    partition: TopicPartition
    generation: int


ApplicationEvent = Assign | Seek | SetPaused | FindOffsets | BatchUnreadable | BatchReadable

# --- application events to the group ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: WantedTopics


@dataclass(frozen=True, slots=True)
class Leave:
    """Leave the group; the partitions are released already. The future completes when the group knows, or cannot be
    reached."""

    future: Future[None]


@dataclass(frozen=True, slots=True)
class StepDone:
    """The application has finished a step of a rebalance."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Rejoin:
    reason: str


@dataclass(frozen=True, slots=True)
class PollResumed:
    """The application polls again after `max.poll.interval.ms`, so the member may have left the group."""


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    deadline: float | None  # None: no caller waits for it
    future: Future[None]


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    partitions: frozenset[TopicPartition]
    deadline: float
    future: Future[Mapping[TopicPartition, OffsetAndMetadata | None]]


GroupEvent = Subscribe | Leave | StepDone | Rejoin | PollResumed | CommitOffsets | FetchCommitted

# --- background events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErrorRaised:
    """An error for the application: the next poll raises it."""

    error: MultilaneError


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """An asynchronous commit has succeeded or failed: the next poll calls its callback."""

    future: Future[None]


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """The network thread has processed a Leave: earlier steps belong to the old membership."""


@dataclass(frozen=True, slots=True)
class RevocationCommitted:
    """The commit before a revocation has succeeded or failed: now the listener is called."""

    step: RebalanceStep
    error: BaseException | None


BackgroundEvent: TypeAlias = "ErrorRaised | RebalanceStep | CommitAnswered | RevocationCommitted | GroupLeft"

# --- the queues ------------------------------------------------------------------------------------------------------


class Signal(Protocol):
    """Is set when there may be a new event. Its owner decides how to wait for it."""

    def set(self) -> None: ...


E = TypeVar("E")


class EventQueue(Generic[E]):
    """A FIFO queue from any thread to the one that drains it. A deque's ends are atomic: no lock is needed."""

    __slots__ = ("_events", "_signal")

    def __init__(self, signal: Signal) -> None:
        self._events: deque[E] = deque()
        self._signal = signal

    def put(self, event: E) -> None:
        self._events.append(event)
        self._signal.set()

    def ring(self) -> None:
        """Wake the waiting thread, so that it checks again."""
        self._signal.set()

    def drain(self) -> list[E]:
        drained: list[E] = []
        while (event := self.pop()) is not None:
            drained.append(event)
        return drained

    def first(self) -> E | None:
        """The event that `pop` would return, without removing it."""
        try:
            return self._events[0]
        except IndexError:
            return None

    def pop(self) -> E | None:
        try:  # after a failure two threads may drain: check and pop must be atomic
            return self._events.popleft()
        except IndexError:
            return None

    def waiting(self) -> tuple[E, ...]:
        return tuple(self._events.copy())

    def __bool__(self) -> bool:
        return bool(self._events)


def announce(error: MultilaneError, background: EventQueue[BackgroundEvent]) -> None:
    """Let the next poll raise this error. An error with the same text that still waits is not queued again."""
    waiting = [event.error for event in background.waiting() if isinstance(event, ErrorRaised)]
    if all(str(queued) != str(error) for queued in waiting):
        background.put(ErrorRaised(error))
