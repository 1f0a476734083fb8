"""Commits against a coordinator that delays, fails and loses answers, and a group that takes partitions away.

Every call is numbered, and its number travels as the metadata of its offsets: so the model sees which call's offset the
coordinator has accepted. Per partition those numbers never fall: the offset goes back only where a later call said so.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from multilane.client.group.commits import CommitListeners, CommitManager, CommitPolicy
from multilane.client.group.membership import Identity
from multilane.client.net.request_state import RequestBackoff
from multilane.errors import MultilaneError, NetworkError, OperationTimeout
from multilane.types import LeaderEpoch, NodeId, Offset, OffsetAndMetadata, TopicPartition
from offset_builder import KnownCoordinators, commit_response
from response_builder import cluster_of

PARTITIONS = tuple(TopicPartition("t", n) for n in range(3))
SOME = st.sets(st.sampled_from(PARTITIONS), min_size=1)
CODES = st.sampled_from([0, 0, 0, 0, 3, 7, 12, 14, 15, 16, 22, 25, 27, 29, 113, None])
TIMEOUT = 30.0


@dataclass
class Call:
    number: int
    partitions: frozenset[TopicPartition]
    future: Future[None]
    deadline: float
    completions: int = 0


class CommitMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.identity: Identity | None = Identity("g", "member-1", 1, None, "consumer")
        self.owned = frozenset(PARTITIONS)
        self.coordinators = KnownCoordinators()
        self.calls: list[Call] = []
        self.done_in_time: list[int] = []
        self.complaints: list[str] = []
        self.accepted: dict[TopicPartition, list[int]] = {p: [] for p in PARTITIONS}
        self.lost_before: dict[TopicPartition, int] = dict.fromkeys(PARTITIONS, 0)  # calls up to here are void
        self.under_way: list[Any] = []
        cluster = cluster_of(dict.fromkeys(PARTITIONS, (1, 1)))
        self.manager = CommitManager(
            "g",
            self.coordinators,
            CommitPolicy(RequestBackoff(0.1, 1.0, jitter=0.0), TIMEOUT),
            CommitListeners(lambda: cluster, lambda: None, lambda: self.identity, lambda: self.owned, self._fenced),
        )

    def _fenced(self, _error: MultilaneError, _now: float) -> None:
        assert self.identity is not None
        self.identity = None

    # --- the application ---------------------------------------------------------------------------------------------

    @rule(partitions=SOME, offset=st.integers(0, 50), patience=st.sampled_from([None, 0.5, 5.0]))
    def commit(self, partitions: set[TopicPartition], offset: int, patience: float | None) -> None:
        deadline = self.now + (TIMEOUT if patience is None else patience)
        call = Call(len(self.calls) + 1, frozenset(partitions), Future(), deadline)
        self.calls.append(call)
        may = partitions <= self.owned and self.identity is not None
        call.future.add_done_callback(lambda _: self._completed(call))
        what = OffsetAndMetadata(Offset(offset), LeaderEpoch(-1), str(call.number))
        told = None if patience is None else deadline
        self.manager.commit(dict.fromkeys(partitions, what), call.future, told, self.now)
        assert call.future.done() is not may

    def _completed(self, call: Call) -> None:
        """Runs as a callback of the future, which swallows what is raised: complaints are looked at afterwards."""
        call.completions += 1
        error = call.future.exception()
        if error is None:
            late = [p for p in call.partitions if max(self.accepted[p], default=0) < call.number]
            self.complaints += [f"call {call.number} was told done, but {p} is not" for p in late]
        if self.now < call.deadline and (error is None or "nothing was committed" not in str(error)):
            self.done_in_time.append(call.number)
            if isinstance(error, OperationTimeout):
                self.complaints.append(f"call {call.number} ended before its time")

    # --- the loop ----------------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 0.05, 0.3, 1.0, 6.0]))
    def turn(self, seconds: float) -> None:
        self.now += seconds
        for request in self.manager.poll(self.now).requests:
            assert not self.under_way, "two at a time"
            self.under_way.append(request)
            for partition, number in self._wanted(request).items():
                assert partition in self.owned
                assert number > self.lost_before[partition], "a zombie's commit"

    def _wanted(self, request: Any) -> dict[TopicPartition, int]:
        entity = request.build(9)
        return {
            TopicPartition(t.name, p.partition_index): int(p.committed_metadata)
            for t in entity.topics
            for p in t.partitions
        }

    # --- the coordinator ---------------------------------------------------------------------------------------------

    def _accept(self, partition: TopicPartition, number: int) -> None:
        self.accepted[partition].append(number)

    @precondition(lambda self: self.under_way)
    @rule(codes=st.fixed_dictionaries({p: CODES for p in PARTITIONS}))
    def answer(self, codes: dict[TopicPartition, int | None]) -> None:
        """A code of None leaves a partition out of the answer, after it was accepted."""
        request = self.under_way.pop()
        wanted = self._wanted(request)
        for partition, number in wanted.items():
            if not codes[partition]:
                self._accept(partition, number)
        told = {p: code for p, code in codes.items() if code is not None and p in wanted}
        request.on_response(commit_response(9, told), self.now)

    @precondition(lambda self: self.under_way)
    @rule(arrived=st.booleans())
    def lose_connection(self, arrived: bool) -> None:
        request = self.under_way.pop()
        if arrived:
            for partition, number in self._wanted(request).items():
                self._accept(partition, number)
        request.on_failure(NetworkError("connection lost"), self.now)

    @rule()
    def find_coordinator(self) -> None:
        self.coordinators.node = NodeId(1)

    # --- the group ---------------------------------------------------------------------------------------------------

    @rule(partitions=SOME)
    def revoke(self, partitions: set[TopicPartition]) -> None:
        self.owned -= partitions
        for partition in partitions:
            self.lost_before[partition] = len(self.calls)
        self.turn(0.0)

    @rule(partitions=SOME)
    def assign(self, partitions: set[TopicPartition]) -> None:
        self.owned |= partitions

    @precondition(lambda self: self.identity is not None)
    @rule()
    def next_epoch(self) -> None:
        assert self.identity is not None
        self.identity = replace(self.identity, epoch=self.identity.epoch + 1)

    @precondition(lambda self: self.identity is None)
    @rule()
    def join_again(self) -> None:
        self.revoke(set(PARTITIONS))
        self.identity = Identity("g", "member-1", 100 + len(self.calls), None, "consumer")

    # --- what always holds -------------------------------------------------------------------------------------------

    @invariant()
    def never_backwards(self) -> None:
        for partition, numbers in self.accepted.items():
            assert numbers == sorted(numbers), f"{partition}: an older call after a newer one: {numbers}"

    @invariant()
    def in_the_order_of_the_calls(self) -> None:
        assert self.done_in_time == sorted(self.done_in_time)

    @invariant()
    def at_most_once(self) -> None:
        assert all(call.completions <= 1 for call in self.calls)

    @invariant()
    def nothing_to_complain_of(self) -> None:
        assert not self.complaints

    def teardown(self) -> None:
        """All is well again: whatever still waits is committed or refused, and nothing is left."""
        self.find_coordinator()
        self.identity = self.identity or Identity("g", "member-1", 999, None, "consumer")
        for _ in range(8):
            self.next_epoch()
            self.turn(1.0)
            if self.under_way:
                self.answer(dict.fromkeys(PARTITIONS, 0))
        assert self.manager.is_idle
        assert all(call.completions == 1 for call in self.calls)
        self.never_backwards()
        self.in_the_order_of_the_calls()
        self.nothing_to_complain_of()


TestCommitOrder = CommitMachine.TestCase
TestCommitOrder.settings = settings(max_examples=100, stateful_step_count=40)
