"""The application side of one consumer. Never waits.

Thread: application (the thread or task that uses the consumer, one at a time).

Owns everything that the application reads without a round trip: the assignment, the position after the last record
handed out, paused partitions and failures. Sends everything else to the network thread as an event. `Consumer` and
`AsyncConsumer` differ only in how they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from multilane.client.arguments import checked_partition, partition_list
from multilane.client.blocks import Blocks
from multilane.client.calls import Call
from multilane.client.events import (
    ApplicationEvent,
    Assign,
    BackgroundEvent,
    CommitAnswered,
    ErrorRaised,
    EventQueue,
    FindOffsets,
    GroupEvent,
    GroupLeft,
    RevocationCommitted,
    Seek,
    SetPaused,
    Signal,
)
from multilane.client.fetch.backend import Backend
from multilane.client.fetch.buffer import Failed, FetchBuffer, Moved
from multilane.client.fetch.cursor import At, AtCommitted, Lookup, StartPosition
from multilane.client.fetch.offsets import FoundOffsets
from multilane.client.fetch.reset import ResetRule
from multilane.client.group.group_client import GroupClient
from multilane.client.group.membership import MemberStanding, Pulse, RebalanceStep
from multilane.client.network_events import Attach, Detach, ForBackend, ForGroupClient
from multilane.client.one_at_a_time import OneAtATime
from multilane.client.partition_state import PartitionState
from multilane.client.sharing import NetworkThreadLease
from multilane.errors import (
    ClientClosed,
    ForkedClient,
    GroupError,
    MultilaneError,
    NoOffsetForPartition,
    NotAssigned,
    OperationTimeout,
    WakeupError,
)
from multilane.types import NO_EPOCH, LeaderEpoch, Offset, OffsetAndMetadata, PartitionLike, TopicPartition

if TYPE_CHECKING:
    from multilane.clock import Clock
    from multilane.config.consumer import ConsumerConfig
    from multilane.wire.records.block import Block

_consumers: Final = count(1)


class ConsumerState:
    def __init__(
        self,
        config: ConsumerConfig,
        lease: NetworkThreadLease,
        signal: Signal,
        clock: Clock,
        caller: Callable[[], object],
    ) -> None:
        """`caller` returns the calling thread or task."""
        self.config = config
        self._lease = lease
        self.topic_id = lease.thread.topic_id  # in the latest cluster metadata
        self._signal = signal
        self._reset = ResetRule(config.auto_offset_reset, clock.wall)
        self._partitions: dict[TopicPartition, PartitionState] = {}
        self._generations = count(1)
        self.background: EventQueue[BackgroundEvent] = EventQueue(signal)
        self._buffer = FetchBuffer(config.fetch_buffer_bytes, on_ready=signal.set, on_room=lease.thread.wake)
        name = f"fetch-{next(_consumers)}"
        self.standing = MemberStanding()
        self.pulse = Pulse(clock.monotonic(), self.standing)
        self._group_client = None
        if config.group_id is not None:
            self._group_client = GroupClient(
                config, lease.thread.group_context(), self.background, self.pulse, self.standing, name
            )
        self._backend = Backend(
            config, lease.thread.backend_context(), self._buffer, self.background, name, self._group_client
        )
        self.polls = 0
        self.put_back: Callable[[], None] = lambda: None  # rows that a loop over records has not reached
        self._withheld: frozenset[TopicPartition] = frozenset()  # revoked once their commit is done
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

    # --- assignment --------------------------------------------------------------------------------------------------

    @property
    def states(self) -> Mapping[TopicPartition, PartitionState]:
        return self._partitions

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return frozenset(self._partitions)

    def assign(self, partitions: Iterable[PartitionLike]) -> None:
        wanted = partition_list(partitions)
        self._partitions = {p: self._partitions.get(p) or self._new(p) for p in wanted}
        self._publish()

    def add_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Add the partitions that the group assigned."""
        self._partitions.update({p: self._new(p) for p in partitions})
        self._publish()

    def withhold(self, partitions: frozenset[TopicPartition]) -> None:
        """Hand out nothing of these, but still own them until they are committed and revoked."""
        self._withheld |= partitions

    def remove_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Drop these partitions; nothing of them is handed out from now on."""
        self._withheld -= frozenset(partitions)
        self._partitions = {p: s for p, s in self._partitions.items() if p not in partitions}
        self._publish()

    def _new(self, partition: TopicPartition) -> PartitionState:
        start = AtCommitted() if self._group_client is not None else self._reset.lookup("no position was given")
        state = PartitionState(next(self._generations), start)
        if state.start is None:
            state.failure = NoOffsetForPartition(
                f"{partition} has no position: seek first, or set auto.offset.reset to earliest, latest or "
                "by_duration:..."
            )
        return state

    def _publish(self) -> None:
        """Partitions without a start are not fetched: the network thread does not learn of their generation."""
        placed = {p: s for p, s in self._partitions.items() if s.start is not None}
        self._buffer.expect({p: s.generation for p, s in placed.items()})
        self._send(Assign({p: (s.generation, s.start) for p, s in placed.items() if s.start is not None}))
        paused = frozenset(p for p, s in placed.items() if s.paused)
        if paused:
            self._send(SetPaused(paused, True))

    # --- positions ---------------------------------------------------------------------------------------------------

    def seek(self, partition: PartitionLike, start: StartPosition) -> None:
        partition = checked_partition(partition)
        state = self._state(partition)
        was_placed = state.start is not None
        state.generation = next(self._generations)
        state.start = start
        state.position = start.offset if isinstance(start, At) else None
        state.epoch = start.epoch if isinstance(start, At) else NO_EPOCH
        state.topic_id = start.topic_id if isinstance(start, At) else None
        state.failure, state.failure_raised = None, False
        if not was_placed:
            self._publish()
            return
        self._buffer.expect({p: s.generation for p, s in self._partitions.items() if s.start is not None})
        self._send(Seek(partition, state.generation, start))

    def seek_lookup(self, partitions: Collection[PartitionLike], timestamp: int) -> None:
        """Seek these partitions, or all assigned ones, to the beginning or the end."""
        states = partition_list(partitions) or list(self._partitions)
        for partition in states:
            self._state(partition)
        for partition in states:
            self.seek(partition, Lookup(timestamp, "seek"))

    def position(self, partition: PartitionLike) -> Offset | None:
        """The offset of the next record that poll() returns; None during the lookup."""
        state = self._state(partition)
        if state.failure is not None and state.position is None:
            raise state.failure
        return state.position

    def position_timeout(self, partition: PartitionLike) -> OperationTimeout:
        last_failure = self._lease.thread.last_failure
        cause = "" if last_failure is None else f": {last_failure}"
        return OperationTimeout(f"the position of {TopicPartition(*partition)} is not known yet{cause}")

    def leader_epoch(self, partition: PartitionLike) -> LeaderEpoch:
        return self._state(partition).epoch

    def consumed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The position to commit for each of these partitions."""
        offsets = {p: self._partitions[p].to_commit() for p in partitions if p in self._partitions}
        return {p: offset for p, offset in offsets.items() if offset is not None}

    def consumed_before_last_poll(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """The same, without the rows of the last poll."""
        states = {p: self._partitions[p] for p in partitions if p in self._partitions}
        offsets = {p: s.before if s.moved_in == self.polls else s.to_commit() for p, s in states.items()}
        return {p: offset for p, offset in offsets.items() if offset is not None}

    def lag(self, partition: PartitionLike) -> int | None:
        self._check_usable()
        state = self._state(partition)
        return None if state.end is None or state.position is None else max(0, state.end - state.position)

    def set_paused(self, partitions: Iterable[PartitionLike], paused: bool) -> None:
        states = [(p, self._state(p)) for p in partition_list(partitions)]
        for _, state in states:
            state.paused = paused
        self._send(SetPaused(frozenset(p for p, _ in states), paused))
        self._signal.set()

    @property
    def paused(self) -> frozenset[TopicPartition]:
        return frozenset(p for p, s in self._partitions.items() if s.paused)

    def failures(self) -> Mapping[TopicPartition, MultilaneError]:
        return {p: s.failure for p, s in self._partitions.items() if s.failure is not None}

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

    def _note(self, item: Block | Moved | Failed) -> Block | None:
        if isinstance(item, Failed):
            state = self._partitions.get(item.partition)
            if state is not None:
                state.failure, state.failure_raised = item.error, False
            return None
        if isinstance(item, Moved):
            state = self._partitions.get(item.partition)
            if state is not None:
                state.reset_to(item.offset, item.epoch, self.polls, item.topic_id)
            return None
        state = self._partitions.get(TopicPartition(item.topic, item.partition))
        if state is not None:
            state.advance(Offset(item.next_offset), LeaderEpoch(item.leader_epoch), self.polls)
            state.end = item.last_stable_offset if self.config.read_committed else item.high_watermark
        return item

    def _raise_new_failure(self) -> None:
        for state in self._partitions.values():
            if state.failure is not None and not state.failure_raised and not state.paused:
                state.failure_raised = True
                raise state.failure.with_traceback(None)

    def raise_current_failure(self) -> None:
        """A stopped partition stays stopped: every poll that would return nothing raises its failure again."""
        for state in self._partitions.values():
            if state.failure is not None and not state.paused:
                raise state.failure.with_traceback(None)

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

    def _state(self, partition: PartitionLike) -> PartitionState:
        state = self._partitions.get(checked_partition(partition))
        if state is None:
            raise NotAssigned(f"{TopicPartition(*partition)} is not assigned to this consumer: assign it first")
        return state

    def send_to_group(self, event: GroupEvent) -> None:
        if self._group_client is not None and not self._closed:
            self._lease.thread.put(ForGroupClient(self._group_client, event))

    def _send(self, event: ApplicationEvent) -> None:
        if not self._closed:  # a callback may have closed this consumer
            self._lease.thread.put(ForBackend(self._backend, event))
