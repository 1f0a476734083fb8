"""The application side of one consumer, without any waiting.

Thread: application (whichever thread or task uses the consumer; one at a time).

Owns what the application may ask without a round trip: the assignment, the position after the last record handed out,
what is paused, what has failed. Everything else is an event to the network thread. `Consumer` and `AsyncConsumer`
differ only in how they wait.
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
    CommittedFirst,
    ErrorRaised,
    EventQueue,
    FindOffsets,
    GroupEvent,
    Parted,
    Seek,
    SetPaused,
    Signal,
)
from multilane.client.fetch.backend import Backend
from multilane.client.fetch.buffer import Failed, FetchBuffer, Moved
from multilane.client.fetch.cursor import At, AtCommitted, Lookup, Start
from multilane.client.fetch.offsets import Found
from multilane.client.fetch.reset import ResetRule
from multilane.client.group.group_client import GroupClient
from multilane.client.group.membership import MemberStanding, Pulse, RebalanceStep
from multilane.client.network import Attach, Detach, ForBackend, ForGroupClient
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
        """`caller` names whoever is calling: a thread, or a task."""
        self.config = config
        self._lease = lease
        self.topic_id = lease.thread.topic_id  # as the newest picture of the cluster has it
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
                config, lease.thread.group_surroundings(), self.background, self.pulse, self.standing, name
            )
        self._backend = Backend(
            config, lease.thread.surroundings(), self._buffer, self.background, name, self._group_client
        )
        self.polls = 0
        self.put_back: Callable[[], None] = lambda: None  # what a loop over records has not come to
        self._held: frozenset[TopicPartition] = frozenset()  # about to be given up
        self._users = OneAtATime(caller)
        self._wakeups = 0
        self._closed = False
        lease.thread.put(Attach(self._backend, self._group_client))

    def __str__(self) -> str:
        state = "closed" if self._closed else f"{len(self._partitions)} partitions"
        brokers = ",".join(f"{host}:{port}" for host, port in self.config.connection.bootstrap_servers)
        return f"{brokers}, {state}"

    # --- who may call ------------------------------------------------------------------------------------------------

    @contextmanager
    def used(self) -> Iterator[ConsumerState]:
        """Around every public call but wakeup: one thread or task at a time, and only while there is a client. The one
        that polls may come again, from its callbacks."""
        with self._users.one(self._check_usable):
            yield self

    @contextmanager
    def parting(self) -> Iterator[bool]:
        """Around the last words to the group; False when somebody else uses the consumer, or nobody can any more."""
        with ExitStack() as stack:
            try:
                stack.enter_context(self._users.one(self._check_usable))
            except MultilaneError:
                yield False
                return
            yield True

    def _check_usable(self) -> None:
        if self._closed:
            raise ClientClosed("this consumer is closed")
        if self._lease.is_inherited:
            raise ForkedClient("this consumer was made before a fork; make a new one in this process")

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

    def begin_with(self, partitions: Collection[TopicPartition]) -> None:
        """The group gives us these, besides what we have."""
        self._partitions.update({p: self._new(p) for p in partitions})
        self._publish()

    def hold(self, partitions: frozenset[TopicPartition]) -> None:
        """Nothing of these is handed out either, but they are still ours: to be committed, and given up."""
        self._held |= partitions

    def give_up(self, partitions: Collection[TopicPartition]) -> None:
        """Nothing of these is handed out from now on."""
        self._held -= frozenset(partitions)
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
        """Partitions without a starting point are not fetched: their generation is not told."""
        placed = {p: s for p, s in self._partitions.items() if s.start is not None}
        self._buffer.expect({p: s.generation for p, s in placed.items()})
        self._tell(Assign({p: (s.generation, s.start) for p, s in placed.items() if s.start is not None}))
        paused = frozenset(p for p, s in placed.items() if s.paused)
        if paused:
            self._tell(SetPaused(paused, True))

    # --- positions ---------------------------------------------------------------------------------------------------

    def seek(self, partition: PartitionLike, start: Start) -> None:
        partition = checked_partition(partition)
        state = self._state(partition)
        was_placed = state.start is not None
        state.generation = next(self._generations)
        state.start = start
        state.position = start.offset if isinstance(start, At) else None
        state.epoch = start.epoch if isinstance(start, At) else NO_EPOCH
        state.topic_id = start.topic_id if isinstance(start, At) else None
        state.failure, state.told = None, False
        if not was_placed:
            self._publish()
            return
        self._buffer.expect({p: s.generation for p, s in self._partitions.items() if s.start is not None})
        self._tell(Seek(partition, state.generation, start))

    def seek_lookup(self, partitions: Collection[PartitionLike], timestamp: int) -> None:
        """Seek these, or all there are, to the beginning or the end."""
        states = partition_list(partitions) or list(self._partitions)
        for partition in states:
            self._state(partition)
        for partition in states:
            self.seek(partition, Lookup(timestamp, "seek"))

    def position(self, partition: PartitionLike) -> Offset | None:
        """The offset of the next record poll hands out; None while it is being looked up."""
        state = self._state(partition)
        if state.failure is not None and state.position is None:
            raise state.failure
        return state.position

    def unplaced(self, partition: PartitionLike) -> OperationTimeout:
        trouble = self._lease.thread.trouble
        cause = "" if trouble is None else f": {trouble}"
        return OperationTimeout(f"the position of {TopicPartition(*partition)} is not known yet{cause}")

    def leader_epoch(self, partition: PartitionLike) -> LeaderEpoch:
        return self._state(partition).epoch

    def consumed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """How far each of these was handed out."""
        places = {p: self._partitions[p].place() for p in partitions if p in self._partitions}
        return {p: place for p, place in places.items() if place is not None}

    def returned(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The same without what the last poll handed out."""
        states = {p: self._partitions[p] for p in partitions if p in self._partitions}
        places = {p: s.before if s.moved_in == self.polls else s.place() for p, s in states.items()}
        return {p: place for p, place in places.items() if place is not None}

    def lag(self, partition: PartitionLike) -> int | None:
        state = self._state(partition)
        if state.end is None or state.position is None:
            return None
        return max(0, state.end - state.position)

    def set_paused(self, partitions: Iterable[PartitionLike], paused: bool) -> None:
        states = [(p, self._state(p)) for p in partition_list(partitions)]
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

    @property
    def is_done(self) -> bool:
        """Closed, or of another process: then it is not ours to close."""
        return self._closed or self._lease.is_inherited

    def check_open(self) -> None:
        """A callback may have closed us in the middle of a poll."""
        if self._closed:
            raise ClientClosed("this consumer was closed while it polled")

    def begin_poll(self) -> None:
        self.put_back()
        self.polls += 1

    def collect(self, limit: int | None) -> Blocks:
        """What is there now, at most `limit` rows. Raises new failures when nothing else is."""
        taken = self._buffer.take(limit, self.paused | self._held)
        blocks = [b for item in taken if (b := self._note(item)) is not None and len(b)]
        if not blocks:
            self._raise_new_failure()
        return Blocks(blocks)

    def next_event(self) -> RebalanceStep | CommitAnswered | CommittedFirst | Parted | None:
        """What the network thread wants done, in its order. Raises what it had to say: errors again and again, but each
        time without the traceback of the last, which would only grow."""
        event = self.background.pop()
        if isinstance(event, ErrorRaised):
            raise event.error.with_traceback(None)
        if self._lease.thread.failure is not None:  # not only the first time: nothing will ever come again
            raise self._lease.thread.failure.with_traceback(None)
        return event

    def forget_steps(self) -> None:
        """What a group that we leave wanted done, or said of itself, is nobody's concern."""
        for event in self.background.drain():
            is_of_group = isinstance(event, ErrorRaised) and isinstance(event.error, GroupError)
            if not is_of_group and not isinstance(event, RebalanceStep | CommittedFirst):
                self.background.put(event)

    @property
    def is_warming_up(self) -> bool:
        """Nothing can be handed out yet because the decoder is still being loaded."""
        thread = self._lease.thread
        return not thread.can_decode and thread.failure is None and not self._closed

    def absorb(self) -> None:
        """Take notice of moves without handing anything out: of partitions whose place is not known yet."""
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
                state.failure, state.told = item.error, False
            return None
        if isinstance(item, Moved):
            state = self._partitions.get(item.partition)
            if state is not None:
                state.put(item.offset, item.epoch, self.polls, item.topic_id)
            return None
        state = self._partitions.get(TopicPartition(item.topic, item.partition))
        if state is not None:
            state.move(Offset(item.next_offset), LeaderEpoch(item.leader_epoch), self.polls)
            state.end = item.last_stable_offset if self.config.read_committed else item.high_watermark
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

    def find_offsets(
        self, wanted: Mapping[TopicPartition, int], deadline: float, *, by_epoch: bool = False
    ) -> Future[Found]:
        future: Future[Found] = Future()
        checked = {checked_partition(p): int(t) for p, t in wanted.items()}
        if not checked:
            future.set_result({})
            return future
        self._tell(FindOffsets(checked, deadline, future, by_epoch))
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
        """Leave the network thread; None when there is nothing to leave. A group that was not left is told `until`."""
        if self._closed:
            return None
        self._closed = True
        if self._lease.is_inherited:  # a lock that the parent held at the fork stays held here
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
            raise NotAssigned(f"{TopicPartition(*partition)} is not assigned to this consumer; assign it first")
        return state

    def tell_group(self, event: GroupEvent) -> None:
        if self._group_client is not None and not self._closed:
            self._lease.thread.put(ForGroupClient(self._group_client, event))

    def _tell(self, event: ApplicationEvent) -> None:
        if not self._closed:  # a callback may have closed us in the middle of something
            self._lease.thread.put(ForBackend(self._backend, event))
