"""The words between the threads: events are frozen values, and the two queues that carry them.

Thread: any.

An application event asks the network thread for something; a background event tells the application thread something.
What blocks the caller carries a future. Records do not travel here but through the fetch buffer, which keeps the order
of a partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from multilane.client.fetch.cursor import Start
    from multilane.client.group.membership import RebalanceStep
    from multilane.client.group.wanted_topics import WantedTopics
    from multilane.errors import MultilaneError, RecordBatchError
    from multilane.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

# --- application events ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assign:
    """The whole assignment: where each partition starts and under which generation. Known generations go on."""

    starts: Mapping[TopicPartition, tuple[int, Start]]


@dataclass(frozen=True, slots=True)
class Seek:
    partition: TopicPartition
    generation: int
    start: Start


@dataclass(frozen=True, slots=True)
class SetPaused:
    partitions: frozenset[TopicPartition]
    paused: bool


@dataclass(frozen=True, slots=True)
class FindOffsets:
    """Timestamps (or EARLIEST, LATEST, MAX_TIMESTAMP) to look up; with `by_epoch`, epochs to find the ends of."""

    wanted: Mapping[TopicPartition, int]
    deadline: float
    future: Future[Mapping[TopicPartition, OffsetAndTimestamp | None]]
    by_epoch: bool = False


@dataclass(frozen=True, slots=True)
class BatchUnreadable:
    """From a decoder: nothing from this offset on could be decoded. `run` is the one to fetch it again in."""

    partition: TopicPartition
    generation: int
    run: int
    error: RecordBatchError


@dataclass(frozen=True, slots=True)
class BatchReadable:
    """From a decoder: a batch that was fetched again is fine."""

    partition: TopicPartition
    generation: int


ApplicationEvent = Assign | Seek | SetPaused | FindOffsets | BatchUnreadable | BatchReadable

# --- application events to the group ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Subscribe:
    topics: WantedTopics


@dataclass(frozen=True, slots=True)
class Leave:
    """The partitions are given up already. The future tells when the group knows, or cannot be told."""

    future: Future[None]


@dataclass(frozen=True, slots=True)
class StepDone:
    """The application is through with a step of a rebalance."""

    ticket: int


@dataclass(frozen=True, slots=True)
class Rejoin:
    reason: str


@dataclass(frozen=True, slots=True)
class Returned:
    """The application polls again, after so long an absence that the group may have been told."""


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    deadline: float | None  # None: nobody waits for it
    future: Future[None]


@dataclass(frozen=True, slots=True)
class FetchCommitted:
    partitions: frozenset[TopicPartition]
    deadline: float
    future: Future[Mapping[TopicPartition, OffsetAndMetadata | None]]


GroupEvent = Subscribe | Leave | StepDone | Rejoin | Returned | CommitOffsets | FetchCommitted

# --- background events -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ErrorRaised:
    """Something the application must know: the next poll raises it."""

    error: MultilaneError


@dataclass(frozen=True, slots=True)
class CommitAnswered:
    """A commit that nobody waited for is done, or has failed: the next poll calls back."""

    future: Future[None]


@dataclass(frozen=True, slots=True)
class GroupLeft:
    """The group has been left: steps that come before this one are of a membership that is over."""


@dataclass(frozen=True, slots=True)
class RevocationCommitted:
    """What a step gives up has been committed, or could not be: now the listener is to be told."""

    step: RebalanceStep
    error: BaseException | None


BackgroundEvent: TypeAlias = "ErrorRaised | RebalanceStep | CommitAnswered | RevocationCommitted | GroupLeft"

# --- the queues ------------------------------------------------------------------------------------------------------


class Signal(Protocol):
    """Rings when there may be something new; how to wait for it is its owner's matter."""

    def set(self) -> None: ...


E = TypeVar("E")


class EventQueue(Generic[E]):
    """First in, first out, from any thread to the one that drains. A deque's ends are atomic: no lock is needed."""

    __slots__ = ("_events", "_signal")

    def __init__(self, signal: Signal) -> None:
        self._events: deque[E] = deque()
        self._signal = signal

    def put(self, event: E) -> None:
        self._events.append(event)
        self._signal.set()

    def ring(self) -> None:
        """Whoever waits for an event looks again."""
        self._signal.set()

    def drain(self) -> list[E]:
        drained: list[E] = []
        while (event := self.pop()) is not None:
            drained.append(event)
        return drained

    def first(self) -> E | None:
        """What `pop` would give, left in its place."""
        try:
            return self._events[0]
        except IndexError:
            return None

    def pop(self) -> E | None:
        try:  # after a failure two threads may drain: look and take must be one
            return self._events.popleft()
        except IndexError:
            return None

    def waiting(self) -> tuple[E, ...]:
        return tuple(self._events.copy())

    def __bool__(self) -> bool:
        return bool(self._events)


def announce(error: MultilaneError, background: EventQueue[BackgroundEvent]) -> None:
    """Let the next poll raise this. What is still to be raised in the same words is not queued again."""
    waiting = [event.error for event in background.waiting() if isinstance(event, ErrorRaised)]
    if all(str(one) != str(error) for one in waiting):
        background.put(ErrorRaised(error))
