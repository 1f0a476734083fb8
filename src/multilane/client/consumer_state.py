"""The application side of one consumer. Never waits.

Thread: application (the thread or task that uses the consumer, one at a time).

Owns the exchange with the network thread: the fetch buffer, the events in both directions, wake-ups, and that only one
thread or task uses the consumer. What the application reads without a round trip is in `assigned_partitions.py`.
Everything else is sent to the network thread as an event. `Consumer` and `AsyncConsumer` differ only in how they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from multilane.client.arguments import checked_partition
from multilane.client.assigned_partitions import AssignedPartitions
from multilane.client.blocks import Blocks
from multilane.client.calls import Call
from multilane.client.events import (
    ApplicationEvent,
    BackgroundEvent,
    CommitAnswered,
    ErrorRaised,
    EventQueue,
    FindOffsets,
    GroupEvent,
    GroupLeft,
    RevocationCommitted,
    Signal,
)
from multilane.client.fetch.backend import Backend
from multilane.client.fetch.buffer import FetchBuffer
from multilane.client.fetch.offsets import FoundOffsets
from multilane.client.group.group_client import GroupClient
from multilane.client.group.membership import MemberStatus, PollActivity, RebalanceStep
from multilane.client.network_events import Attach, Detach, ForBackend, ForGroupClient
from multilane.client.one_at_a_time import OneAtATime
from multilane.client.sharing import NetworkThreadLease
from multilane.errors import (
    ClientClosed,
    ForkedClient,
    GroupError,
    MultilaneError,
    OperationTimeout,
    WakeupError,
)
from multilane.types import PartitionLike, TopicPartition

if TYPE_CHECKING:
    from multilane.clock import Clock
    from multilane.config.consumer import ConsumerConfig

_consumers: Final = count(1)


class ConsumerState(AssignedPartitions):
    def __init__(
        self,
        config: ConsumerConfig,
        lease: NetworkThreadLease,
        signal: Signal,
        clock: Clock,
        caller: Callable[[], object],
    ) -> None:
        """`caller` returns the calling thread or task."""
        buffer = FetchBuffer(config.fetch_buffer_bytes, on_ready=signal.set, on_room=lease.thread.wake)
        super().__init__(config, buffer, clock.wall)
        self._lease = lease
        self.topic_id = lease.thread.topic_id  # in the latest cluster metadata
        self._signal = signal
        self.background: EventQueue[BackgroundEvent] = EventQueue(signal)
        name = f"fetch-{next(_consumers)}"
        self.member_status = MemberStatus()
        self.poll_activity = PollActivity(clock.monotonic(), self.member_status)
        self._group_client = None
        if config.group_id is not None:
            self._group_client = GroupClient(
                config, lease.thread.group_context(), self.background, self.poll_activity, self.member_status, name
            )
        self._backend = Backend(
            config, lease.thread.backend_context(), buffer, self.background, name, self._group_client
        )
        self.put_back: Callable[[], None] = lambda: None  # rows that a loop over records has not reached
        self._users = OneAtATime(caller)
        self._wakeups = 0
        self._closed = False
        lease.thread.put(Attach(self._backend, self._group_client))

    def __str__(self) -> str:
        state = "closed" if self._closed else f"{len(self._partitions)} partitions"
        brokers = ",".join(f"{host}:{port}" for host, port in self.config.connection.bootstrap_servers)
        return f"{brokers}, {state}"

    # --- exclusive use -----------------------------------------------------------------------------------------------

    @contextmanager
    def used(self) -> Iterator[ConsumerState]:
        """Wraps every public call except wakeup(): one thread or task at a time, and only while the client is open. The
        polling thread may call again from its callbacks."""
        with self._users.exclusive(self._check_usable):
            yield self

    @contextmanager
    def exclusive_if_free(self) -> Iterator[bool]:
        """Wraps leaving the group. Yields False if another thread uses the consumer, or if it is not usable."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._users.exclusive(self._check_usable))
            except MultilaneError:
                yield False
                return
            yield True

    def _check_usable(self) -> None:
        if self._closed:
            raise ClientClosed("this consumer is closed")
        if self._lease.is_inherited:
            raise ForkedClient("this consumer was created before a fork; create a new one in this process")

    # --- positions ---------------------------------------------------------------------------------------------------

    def position_timeout(self, partition: PartitionLike) -> OperationTimeout:
        last_failure = self._lease.thread.last_failure
        cause = "" if last_failure is None else f": {last_failure}"
        return OperationTimeout(f"the position of {TopicPartition(*partition)} is not known yet{cause}")

    def lag(self, partition: PartitionLike) -> int | None:
        self._check_usable()
        return super().lag(partition)

    def set_paused(self, partitions: Iterable[PartitionLike], paused: bool) -> None:
        super().set_paused(partitions, paused)
        self._signal.set()

    # --- records -----------------------------------------------------------------------------------------------------

    @property
    def is_done(self) -> bool:
        """Closed, or inherited in a fork: then the parent process closes it."""
        return self._closed or self._lease.is_inherited

    def check_open(self) -> None:
        """A callback may have closed this consumer during a poll."""
        if self._closed:
            raise ClientClosed("this consumer was closed during poll()")

    def begin_poll(self) -> None:
        self.put_back()
        self.polls += 1

    def collect(self, limit: int | None) -> Blocks:
        """The buffered blocks, at most `limit` rows. Raises a new failure if there are none."""
        taken = self._buffer.take(limit, self.paused | self._withheld)
        blocks = [b for item in taken if (b := self._note(item)) is not None and len(b)]
        if not blocks:
            self._raise_new_failure()
        return Blocks(blocks)

    def next_event(self) -> RebalanceStep | CommitAnswered | RevocationCommitted | GroupLeft | None:
        """The next event of the network thread, in order. Raises its errors, each time without the earlier traceback,
        which would only grow."""
        event = self.background.pop()
        if isinstance(event, ErrorRaised):
            raise event.error.with_traceback(None)
        if self._lease.thread.failure is not None:  # every time: nothing will ever arrive again
            raise self._lease.thread.failure.with_traceback(None)
        return event

    def forget_steps(self) -> None:
        """Drop the steps and errors of the group that this consumer leaves."""
        for event in self.background.drain():
            is_of_group = isinstance(event, ErrorRaised) and isinstance(event.error, GroupError)
            if not is_of_group and not isinstance(event, RebalanceStep | RevocationCommitted):
                self.background.put(event)

    @property
    def is_warming_up(self) -> bool:
        """Whether the decoder is still loading, so that no block can be handed out."""
        thread = self._lease.thread
        return not thread.can_decode and thread.failure is None and not self._closed

    def update_positions(self) -> None:
        """Apply buffered moves to partitions without a position, without handing out records."""
        self.check_wakeup()
        if self._lease.thread.failure is not None or isinstance(self.background.first(), ErrorRaised):
            self.next_event()
        placed = [p for p, s in self._partitions.items() if s.position is not None]
        for item in self._buffer.take(0, placed):
            self._note(item)

    # --- requests to the network thread ------------------------------------------------------------------------------

    def find_offsets(
        self, wanted: Mapping[TopicPartition, int], deadline: float, *, by_epoch: bool = False
    ) -> Future[FoundOffsets]:
        future: Future[FoundOffsets] = Future()
        checked = {checked_partition(p): int(t) for p, t in wanted.items()}
        if not checked:
            future.set_result({})
            return future
        self._send(FindOffsets(checked, deadline, future, by_epoch))
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

    def begin_close(self, until: float) -> Future[None] | None:
        """Detach from the network thread; None if not attached. `until` limits the wait for the member to leave."""
        if self._closed:
            return None
        self._closed = True
        if self._lease.is_inherited:  # a lock that the parent held at the fork stays locked here
            return None
        self._buffer.clear()
        self._signal.set()
        future: Future[None] = Future()
        self._lease.thread.put(Detach(self._backend, future, self._group_client, until))
        return future

    def end_close(self) -> Future[None] | None:
        return self._lease.release()

    def send_to_group(self, event: GroupEvent) -> None:
        if self._group_client is not None and not self._closed:
            self._lease.thread.put(ForGroupClient(self._group_client, event))

    def _send(self, event: ApplicationEvent) -> None:
        if not self._closed:  # a callback may have closed this consumer
            self._lease.thread.put(ForBackend(self._backend, event))
