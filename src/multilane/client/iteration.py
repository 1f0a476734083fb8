"""Iterates over single records: `for record in consumer` and `async for record in consumer`.

Thread: application, one at a time.

Owns the rows that a poll returned and the loop has not reached. Positions are exact: a partition's position is right
after the loop's current record, so a commit never covers a record that the loop has not seen. When the loop ends or is
interrupted (break, poll(), pause(), a rebalance), the remaining rows are put back and fetched again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from multilane.client.fetch.cursor import At
from multilane.client.group.membership import RebalanceStep
from multilane.types import NO_EPOCH, LeaderEpoch, Offset, TopicPartition

if TYPE_CHECKING:
    from multilane.client.blocks import Blocks
    from multilane.client.consumer_state import ConsumerState
    from multilane.client.partition_state import PartitionState
    from multilane.client.subscriber import Subscriber
    from multilane.wire.records.block import Block
    from multilane.wire.records.record import Record


class _Rest:
    """The remaining rows of one block. Valid until a seek, removal or new assignment of its partition."""

    __slots__ = ("block", "generation", "partition", "rows", "state")

    def __init__(self, block: Block, state: PartitionState) -> None:
        self.block = block
        self.partition = TopicPartition(block.topic, block.partition)
        self.state = state
        self.generation = state.generation
        self.rows: Iterator[Record] = block.records()


class RecordStream:
    def __init__(self, consumer: ConsumerState, subscriber: Subscriber) -> None:
        self._consumer = consumer
        self._subscriber = subscriber
        self._rests: deque[_Rest] = deque()
        consumer.put_back()
        consumer.put_back = self.put_back

    def add(self, blocks: Blocks) -> None:
        """Rows of a poll count as consumed only when the loop reaches them."""
        seen: set[TopicPartition] = set()
        for block in blocks:
            partition = TopicPartition(block.topic, block.partition)
            state = self._consumer.states.get(partition)
            if state is None:
                continue
            if partition not in seen:
                seen.add(partition)
                epoch = NO_EPOCH if state.before is None else LeaderEpoch(state.before.leader_epoch)
                state.position, state.epoch = Offset(int(block.offsets[0])), epoch
            self._rests.append(_Rest(block, state))

    def next(self) -> Record | None:
        """The next record; None if there is none, or if poll() must do something else first."""
        if not self._may_go_on(self._subscriber.enter_record()):
            self.put_back()
        while self._rests:
            rest = self._rests[0]
            if self._is_valid(rest):
                record = next(rest.rows, None)
                if record is not None:
                    self._move(rest, record.offset + 1)
                    return record
                self._move(rest, rest.block.next_offset)
            self._rests.popleft()
        return None

    def put_back(self) -> None:
        """Fetch the remaining rows again, from the loop's position."""
        rests, self._rests = self._rests, deque()
        for rest in rests:
            if self._is_valid(rest) and rest.state.position is not None:
                self._consumer.seek(rest.partition, At(rest.state.position, rest.state.epoch))

    def _may_go_on(self, now: float) -> bool:
        background = self._consumer.background
        steps = background and any(isinstance(e, RebalanceStep) for e in background.waiting())
        return not steps and self._subscriber.may_deliver_at(now) and not any(r.state.paused for r in self._rests)

    def _is_valid(self, rest: _Rest) -> bool:
        """A seek changes the generation, so only the first of several blocks of one partition is put back."""
        state = self._consumer.states.get(rest.partition)
        return state is rest.state and state.generation == rest.generation and not self._consumer.is_done

    def _move(self, rest: _Rest, offset: int) -> None:
        rest.state.advance(Offset(offset), LeaderEpoch(rest.block.leader_epoch), self._consumer.polls)
