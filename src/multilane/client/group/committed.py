"""Reads the committed offsets of a group: for the application's calls and for the start of new partitions.

Thread: none (pure state machine); owned by the network thread, one per consumer.

At most one OffsetFetch is in flight. Offsets wanted in the meantime share the next request and never the answer in
flight, which may be older than a commit made before the call.

None means that the group has committed nothing for a partition, and only a valid answer means that. Everything else (an
error, a missing partition, no answer) is retried: for the application until its deadline, for the start of a partition
without end. A final refusal is reported as an error.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from multilane.client.futures import fulfil, refuse
from multilane.client.group.commit_queue import some
from multilane.client.group.coordinator_requests import (
    CoordinatorRequests,
    OffsetsBatch,
    timeout_cause,
    topic_ids,
)
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER, NOTHING, Poll, UnsentRequest
from multilane.errors import (
    AuthenticationError,
    BrokerError,
    ClientClosed,
    ClientFailed,
    GroupRefused,
    MultilaneError,
    OperationTimeout,
    WireError,
    broker_error,
)
from multilane.types import NodeId, OffsetAndMetadata, TopicPartition
from multilane.wire.compose_offsets import (
    COMMITTED_AT_LEAST,
    CommittedAnswer,
    Committer,
    committed_answers,
    committed_request,
)
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.group.membership import Coordinators, Identity

_COORDINATOR_MOVED: Final = frozenset({15, 16})
# Not retriable in general, but a reader only has to wait: its membership learns of the problem by heartbeat.
_OF_MEMBERS: Final = frozenset({22, 25, 69, 110, 113})
_REFUSALS: Final[Mapping[int, str]] = {
    24: "group.id must not be empty",
    30: "grant READ on the group to this client, or use another group.id",
}
_ADVICE: Final[Mapping[int, str]] = {29: "grant READ on the topic to this client"}

CommittedOffsets = Mapping[TopicPartition, OffsetAndMetadata | None]


@dataclass(frozen=True, slots=True)
class CommittedListeners:
    """Callbacks of the manager; all are called on the network thread."""

    cluster: Callable[[], Cluster]
    refresh: Callable[[], None]
    identity: Callable[[], Identity | None]
    login_refused: Callable[[MultilaneError], None]
    coordinator_error: Callable[[], MultilaneError | None] = lambda: None


class _OffsetsWanted(Protocol):
    open: set[TopicPartition]
    deadline: float

    def take(self, found: CommittedOffsets) -> None: ...

    def fail(self, errors: Mapping[TopicPartition, MultilaneError]) -> None: ...


@dataclass(slots=True, eq=False)
class _CommittedCall:
    """A call of the application: answered completely or not at all."""

    open: set[TopicPartition]
    deadline: float
    future: Future[CommittedOffsets]
    found: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)

    def take(self, found: CommittedOffsets) -> None:
        self.found.update(found)
        self.open.difference_update(found)
        if not self.open:
            fulfil(self.future, self.found)

    def fail(self, errors: Mapping[TopicPartition, MultilaneError]) -> None:
        self.open.clear()
        refuse(self.future, next(iter(errors.values())))


@dataclass(slots=True, eq=False)
class _Beginning:
    """Partitions that wait for their start offset: each starts as soon as it can."""

    open: set[TopicPartition]
    found: Callable[[CommittedOffsets], None]
    refused: Callable[[TopicPartition, MultilaneError], None]
    deadline: float = NEVER

    def take(self, found: CommittedOffsets) -> None:
        self.open.difference_update(found)
        self.found(found)

    def fail(self, errors: Mapping[TopicPartition, MultilaneError]) -> None:
        self.open.difference_update(errors)
        for partition, error in errors.items():
            self.refused(partition, error)


@dataclass(frozen=True, slots=True, eq=False)
class _FetchBatch(OffsetsBatch):
    """Which callers want which partitions."""

    wanted: tuple[_OffsetsWanted, ...]
    partitions: tuple[TopicPartition, ...]


class CommittedManager:
    def __init__(
        self, group: str, coordinators: Coordinators, backoff: RequestBackoff, listeners: CommittedListeners
    ) -> None:
        self._group = group
        self._listeners = listeners
        what = "reading committed offsets failed, retrying"
        self._requests = CoordinatorRequests(group, coordinators, backoff, listeners.refresh, what)
        self._wanted: list[_OffsetsWanted] = []

    def committed(
        self, partitions: Collection[TopicPartition], deadline: float, future: Future[CommittedOffsets]
    ) -> None:
        call = _CommittedCall(set(partitions), deadline, future)
        if call.open:
            self._wanted.append(call)
        else:
            call.take({})

    def want(
        self,
        partitions: Collection[TopicPartition],
        found: Callable[[CommittedOffsets], None],
        refused: Callable[[TopicPartition, MultilaneError], None],
    ) -> None:
        """Wants start offsets. `found` may be called several times, each time for other partitions."""
        if partitions:
            self._wanted.append(_Beginning(set(partitions), found, refused))

    def unwant(self, partitions: Collection[TopicPartition]) -> None:
        """These partitions no longer start: answers in flight about them are ignored."""
        for wanted in self._wanted:
            if isinstance(wanted, _Beginning):
                wanted.open.difference_update(partitions)
        self._remove_answered()

    def refuse_calls(self, error: MultilaneError) -> None:
        """The group is refused at present: calls of the application fail, starting partitions keep waiting."""
        for wanted in self._wanted:
            if isinstance(wanted, _CommittedCall):
                wanted.fail(dict.fromkeys(wanted.open, error))
        self._remove_answered()

    def abandon(self, error: MultilaneError) -> None:
        """The consumer closes: fails calls of the application and forgets starting partitions."""
        abandoned = self._wanted
        self.refuse_calls(error)
        for wanted in abandoned:
            wanted.open.clear()
        self._wanted = []

    @property
    def is_idle(self) -> bool:
        return not self._wanted and not self._requests.in_flight

    def poll(self, now: float) -> Poll:
        if self._wanted:
            self._expire(now)
        if not self._wanted:
            return NOTHING
        return self._requests.next_requests(now, min(wanted.deadline for wanted in self._wanted), self._request)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _batch(self, node: NodeId) -> _FetchBatch:
        partitions = tuple(sorted(set().union(*(wanted.open for wanted in self._wanted))))
        return _FetchBatch(node, topic_ids(self._listeners.cluster(), partitions), tuple(self._wanted), partitions)

    def _request(self, node: NodeId) -> UnsentRequest:
        batch = self._batch(node)
        identity = self._listeners.identity()
        reader = Committer(self._group)
        if identity is not None and identity.protocol == "consumer":
            reader = Committer(self._group, identity.member_id, identity.epoch)
        return UnsentRequest(
            api=ApiKey.OFFSET_FETCH,
            build=lambda version: committed_request(version, reader, batch.partitions, batch.ids),
            on_response=lambda response, now: self._on_response(batch, response, now),
            on_failure=lambda error, now: self._on_failure(batch, error, now),
            node=batch.node,
            at_least=COMMITTED_AT_LEAST,
            at_most=batch.at_most(batch.partitions),
        )

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_response(self, batch: _FetchBatch, response: Any, now: float) -> None:
        answer = committed_answers(response, self._group, batch.partitions, batch.topics)
        if answer is None:
            self._on_failure(batch, WireError(f"the answer to OffsetFetch lacks group {self._group}"), now)
            return
        code, answers = answer
        if code:
            answers = dict.fromkeys(batch.partitions, CommittedAnswer(code))
        found = {tp: answer.found for tp, answer in answers.items() if not answer.code}
        errors = {tp: self._error(tp, answer.code) for tp, answer in answers.items() if answer.code}
        errors |= {
            tp: WireError(f"the answer to OffsetFetch lacks {tp}") for tp in batch.partitions if tp not in answers
        }
        self._settle_state(batch, errors.values(), now)
        self._deliver(batch, found, {tp: e for tp, e in errors.items() if not _passes(e)})

    def _settle_state(self, batch: _FetchBatch, errors: Collection[MultilaneError], now: float) -> None:
        passing = [e for e in errors if _passes(e)]
        if any(isinstance(e, BrokerError) and e.code in _COORDINATOR_MOVED for e in passing):
            self._requests.moved(batch)
        if any(e.refresh_metadata for e in passing):
            self._listeners.refresh()
        self._requests.answered(passing, now)

    def _on_failure(self, batch: _FetchBatch, error: MultilaneError, now: float) -> None:
        self._requests.unanswered(batch, error, now)
        if error.retriable:
            return
        if isinstance(error, AuthenticationError):
            self._listeners.login_refused(error)
        # A refused login may be accepted later, and the end of the client is reported elsewhere: no partition's fault.
        spared = isinstance(error, AuthenticationError | ClientClosed | ClientFailed)
        for wanted in [w for w in batch.wanted if w.open and (isinstance(w, _CommittedCall) or not spared)]:
            wanted.fail(dict.fromkeys(wanted.open, error))
        self._remove_answered()

    def _error(self, partition: TopicPartition, code: int) -> MultilaneError:
        error = broker_error(code, f"OffsetFetch of {partition} in group {self._group}", _ADVICE.get(code))
        if code in _REFUSALS:
            return GroupRefused(f"{error}: {_REFUSALS[code]}")
        return error

    def _deliver(
        self, batch: _FetchBatch, found: CommittedOffsets, errors: Mapping[TopicPartition, MultilaneError]
    ) -> None:
        for wanted in batch.wanted:
            mine = {tp: found[tp] for tp in sorted(wanted.open) if tp in found}
            refused = {tp: errors[tp] for tp in sorted(wanted.open) if tp in errors}
            if mine:
                wanted.take(mine)
            if refused:
                wanted.fail(refused)
        self._remove_answered()

    # --- expiry ------------------------------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        for wanted in [w for w in self._wanted if now >= w.deadline]:
            why = timeout_cause(self._requests.last_error, self._listeners.coordinator_error)
            what = f"no committed offsets of {some(sorted(wanted.open))} before the timeout"
            text = f"group {self._group}: {what}: {why}"
            wanted.fail(dict.fromkeys(wanted.open, OperationTimeout(text)))
        self._remove_answered()

    def _remove_answered(self) -> None:
        self._wanted = [wanted for wanted in self._wanted if wanted.open]


def _passes(error: MultilaneError) -> bool:
    return error.retriable or (isinstance(error, BrokerError) and error.code in _OF_MEMBERS)
