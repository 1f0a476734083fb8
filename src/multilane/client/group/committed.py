"""Reads what a group has committed: for the application's questions and for where to begin.

Thread: none (pure state machine); owned by the network thread, one per consumer.

At most one OffsetFetch is under way. What is wished for meanwhile goes together into the next one and never shares the
answer that is under way: that may be older than a commit which the wish comes after.

None means that the group has committed nothing for a partition, and only a sound answer says so. Whatever else comes
back - an error, a partition left out, no answer - is asked again: for the application until its deadline, for a
beginning without end. What is refused for good is told as an error.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol
from uuid import UUID

from multilane.client.futures import fulfil, refuse
from multilane.client.group.commit_queue import some
from multilane.client.net.request_state import RequestBackoff, RequestState
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
from multilane.logs import logger
from multilane.types import NodeId, OffsetAndMetadata, TopicPartition
from multilane.wire.compose_offsets import (
    COMMITTED_AT_LEAST,
    OFFSETS_BY_NAME_AT_MOST,
    CommittedAnswer,
    Committer,
    committed_answers,
    committed_request,
)
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.group.membership import Coordinators, Identity

log = logger(__name__)

_COORDINATOR_MOVED: Final = frozenset({15, 16})
# Not retriable for everybody, but a reader has only to wait: its membership finds out by its heartbeat.
_OF_MEMBERS: Final = frozenset({22, 25, 69, 110, 113})
_REFUSALS: Final[Mapping[int, str]] = {
    24: "group.id must not be empty",
    30: "grant READ on the group to this client, or use another group.id",
}
_ADVICE: Final[Mapping[int, str]] = {29: "grant READ on the topic to this client"}

Committed = Mapping[TopicPartition, OffsetAndMetadata | None]


@dataclass(frozen=True, slots=True)
class CommittedListeners:
    """Whom the manager asks and tells; all on the network thread."""

    cluster: Callable[[], Cluster]
    refresh: Callable[[], None]
    identity: Callable[[], Identity | None]
    login_refused: Callable[[MultilaneError], None]
    trouble: Callable[[], MultilaneError | None] = lambda: None


class _OffsetsWanted(Protocol):
    open: set[TopicPartition]
    deadline: float

    def take(self, found: Committed) -> None: ...

    def fail(self, errors: Mapping[TopicPartition, MultilaneError]) -> None: ...


@dataclass(slots=True, eq=False)
class _CommittedQuestion:
    """The application's: answered whole or not at all."""

    open: set[TopicPartition]
    deadline: float
    future: Future[Committed]
    found: dict[TopicPartition, OffsetAndMetadata | None] = field(default_factory=dict)

    def take(self, found: Committed) -> None:
        self.found.update(found)
        self.open.difference_update(found)
        if not self.open:
            fulfil(self.future, self.found)

    def fail(self, errors: Mapping[TopicPartition, MultilaneError]) -> None:
        self.open.clear()
        refuse(self.future, next(iter(errors.values())))


@dataclass(slots=True, eq=False)
class _Beginning:
    """Partitions that want to begin: each as soon as it can."""

    open: set[TopicPartition]
    found: Callable[[Committed], None]
    refused: Callable[[TopicPartition, MultilaneError], None]
    deadline: float = NEVER

    def take(self, found: Committed) -> None:
        self.open.difference_update(found)
        self.found(found)

    def fail(self, errors: Mapping[TopicPartition, MultilaneError]) -> None:
        self.open.difference_update(errors)
        for partition, error in errors.items():
            self.refused(partition, error)


@dataclass(frozen=True, slots=True, eq=False)
class _FetchBatch:
    """What is under way: for which wishes, about what."""

    wishes: tuple[_OffsetsWanted, ...]
    partitions: tuple[TopicPartition, ...]
    ids: Mapping[str, UUID]
    node: NodeId


class CommittedManager:
    def __init__(
        self, group: str, coordinators: Coordinators, backoff: RequestBackoff, listeners: CommittedListeners
    ) -> None:
        self._group = group
        self._coordinators = coordinators
        self._listeners = listeners
        self._state = RequestState(backoff)
        self._wishes: list[_OffsetsWanted] = []
        self._last_error: MultilaneError | None = None

    def committed(self, partitions: Collection[TopicPartition], deadline: float, future: Future[Committed]) -> None:
        question = _CommittedQuestion(set(partitions), deadline, future)
        if question.open:
            self._wishes.append(question)
        else:
            question.take({})

    def want(
        self,
        partitions: Collection[TopicPartition],
        found: Callable[[Committed], None],
        refused: Callable[[TopicPartition, MultilaneError], None],
    ) -> None:
        """Where to begin. `found` may be called several times, each time about other partitions."""
        if partitions:
            self._wishes.append(_Beginning(set(partitions), found, refused))

    def unwant(self, partitions: Collection[TopicPartition]) -> None:
        """These are not to begin any more: what is under way for them is not told."""
        for wish in self._wishes:
            if isinstance(wish, _Beginning):
                wish.open.difference_update(partitions)
        self._tidy()

    def refuse_questions(self, error: MultilaneError) -> None:
        """The group is refused at present: who waits for an answer is told, what is to begin goes on waiting."""
        for wish in self._wishes:
            if isinstance(wish, _CommittedQuestion):
                wish.fail(dict.fromkeys(wish.open, error))
        self._tidy()

    def abandon(self, error: MultilaneError) -> None:
        """The consumer closes: questions are refused, beginnings forgotten."""
        wishes = self._wishes
        self.refuse_questions(error)
        for wish in wishes:
            wish.open.clear()
        self._wishes = []

    @property
    def is_idle(self) -> bool:
        return not self._wishes and not self._state.in_flight

    def poll(self, now: float) -> Poll:
        if self._wishes:
            self._expire(now)
        if not self._wishes:
            return NOTHING
        patience = max(0.0, min(wish.deadline for wish in self._wishes) - now)
        if not self._state.may_send(now):
            return Poll(wait=min(patience, self._state.wait(now)))
        node = self._coordinators.of(self._group)
        if node is None:
            return Poll(wait=patience)
        return Poll((self._request(self._batch(node)),), patience)

    # --- asking ------------------------------------------------------------------------------------------------------

    def _batch(self, node: NodeId) -> _FetchBatch:
        partitions = tuple(sorted(set().union(*(wish.open for wish in self._wishes))))
        cluster = self._listeners.cluster()
        ids = {tp.topic: id_ for tp in partitions if (id_ := cluster.topic_id(tp.topic)) is not None}
        return _FetchBatch(tuple(self._wishes), partitions, ids, node)

    def _request(self, batch: _FetchBatch) -> UnsentRequest:
        self._state.sent()
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
            at_most=None if all(tp.topic in batch.ids for tp in batch.partitions) else OFFSETS_BY_NAME_AT_MOST,
        )

    # --- what came back ----------------------------------------------------------------------------------------------

    def _on_response(self, batch: _FetchBatch, response: Any, now: float) -> None:
        names = {id_: topic for topic, id_ in batch.ids.items()}
        told = committed_answers(response, self._group, batch.partitions, names)
        if told is None:
            self._on_failure(batch, WireError(f"OffsetFetch of group {self._group} was answered without it"), now)
            return
        code, answers = told
        if code:
            answers = dict.fromkeys(batch.partitions, CommittedAnswer(code))
        found = {tp: answer.found for tp, answer in answers.items() if not answer.code}
        errors = {tp: self._error(tp, answer.code) for tp, answer in answers.items() if answer.code}
        errors |= {tp: WireError(f"OffsetFetch: {tp} was left out") for tp in batch.partitions if tp not in answers}
        self._settle_state(batch, errors.values(), now)
        self._tell(batch, found, {tp: e for tp, e in errors.items() if not _passes(e)})

    def _settle_state(self, batch: _FetchBatch, errors: Collection[MultilaneError], now: float) -> None:
        passing = [e for e in errors if _passes(e)]
        if any(isinstance(e, BrokerError) and e.code in _COORDINATOR_MOVED for e in passing):
            self._coordinators.forget(self._group, batch.node)
        if any(e.refresh_metadata for e in passing):
            self._listeners.refresh()
        if passing:
            self._failed(passing[0], now)
        else:
            self._state.succeeded()

    def _failed(self, error: MultilaneError, now: float) -> None:
        self._last_error = error
        level = logging.WARNING if self._state.failures == 0 else logging.DEBUG
        log.log(level, "group %s: its offsets cannot be read now and are asked for again: %s", self._group, error)
        self._state.failed(now)

    def _on_failure(self, batch: _FetchBatch, error: MultilaneError, now: float) -> None:
        self._failed(error, now)
        if error.retriable:
            self._coordinators.forget(self._group, batch.node)
        if error.refresh_metadata:
            self._listeners.refresh()
        if error.retriable:
            return
        if isinstance(error, AuthenticationError):
            self._listeners.login_refused(error)
        # A refused login may be accepted later, and of the end of the client everybody is told: no partition's fault.
        spared = isinstance(error, AuthenticationError | ClientClosed | ClientFailed)
        for wish in [w for w in batch.wishes if w.open and (isinstance(w, _CommittedQuestion) or not spared)]:
            wish.fail(dict.fromkeys(wish.open, error))
        self._tidy()

    def _error(self, partition: TopicPartition, code: int) -> MultilaneError:
        error = broker_error(code, f"OffsetFetch of {partition} in group {self._group}", _ADVICE.get(code))
        if code in _REFUSALS:
            return GroupRefused(f"{error}: {_REFUSALS[code]}")
        return error

    def _tell(self, batch: _FetchBatch, found: Committed, errors: Mapping[TopicPartition, MultilaneError]) -> None:
        for wish in batch.wishes:
            mine = {tp: found[tp] for tp in sorted(wish.open) if tp in found}
            refused = {tp: errors[tp] for tp in sorted(wish.open) if tp in errors}
            if mine:
                wish.take(mine)
            if refused:
                wish.fail(refused)
        self._tidy()

    # --- the end of a wish -------------------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        for wish in [w for w in self._wishes if now >= w.deadline]:
            cause = self._last_error if self._state.failures else None
            why = cause or self._listeners.trouble() or "the coordinator is unknown or does not answer"
            what = f"no committed offsets of {some(sorted(wish.open))} within the time given"
            text = f"group {self._group}: {what}: {why}"
            wish.fail(dict.fromkeys(wish.open, OperationTimeout(text)))
        self._tidy()

    def _tidy(self) -> None:
        self._wishes = [wish for wish in self._wishes if wish.open]


def _passes(error: MultilaneError) -> bool:
    return error.retriable or (isinstance(error, BrokerError) and error.code in _OF_MEMBERS)
