"""Commits offsets to the group, in the order of the calls.

Thread: none (pure state machine); owned by the network thread, one per consumer.

At most one OffsetCommit is in flight. Commits made in the meantime wait and share the next request, each partition with
its latest offset; so do commits that are retried. Therefore no commit overtakes another, and no retry brings an older
offset back.

A commit is checked against the owned partitions when it is made and on every turn while it waits: the broker of a
KIP-848 group would accept offsets of partitions that another member owns by now. Partitions lost in between are not
committed even if they have come back since: their owner in the meantime may have committed more.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from multilane.client.futures import refuse
from multilane.client.group.commit_answers import OLD_GENERATION, Effect, judge
from multilane.client.group.commit_queue import Commit, CommitQueue, Offsets, some
from multilane.client.group.coordinator_requests import CoordinatorRequests, OffsetsBatch, topic_ids
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NOTHING, Poll, UnsentRequest
from multilane.errors import CommitRefused, MultilaneError, TooManyCommits
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.types import NodeId, TopicPartition
from multilane.wire.compose_offsets import (
    COMMIT_OF_EPOCH_AT_LEAST,
    COMMIT_OF_INSTANCE_AT_LEAST,
    OFFSET_COMMIT_AT_LEAST,
    Committer,
    commit_codes,
    offset_commit_request,
)
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.group.membership import Coordinators, Identity

log = logger(__name__)

# A missing topic may be too new to be known to all brokers, or deleted.
_MISSING_TOPIC_SECONDS: Final = 5.0
_MOST_WAITING: Final = 10_000
_MANUAL: Final = ""
_RETRIED: Final = frozenset({Effect.RETRY, Effect.MOVED, Effect.MISSING})
_LOST: Final = "was lost while the commit waited"
_RECREATED: Final = "is for a topic that was recreated since"

_Verdict = tuple[Effect, MultilaneError | None]


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    backoff: RequestBackoff
    timeout: float  # of commits without a deadline


@dataclass(frozen=True, slots=True)
class CommitListeners:
    """Callbacks of the manager; all are called on the network thread.

    `identity` returns None for a non-member. `owned` returns None for manually assigned partitions, which no other
    member owns.
    """

    cluster: Callable[[], Cluster]
    refresh: Callable[[], None]
    identity: Callable[[], Identity | None]
    owned: Callable[[], frozenset[TopicPartition] | None]
    fenced: Callable[[MultilaneError, float], None]
    observer: Observer = NO_OBSERVER
    coordinator_error: Callable[[], MultilaneError | None] = lambda: None  # a reason why the coordinator may not answer


@dataclass(frozen=True, slots=True, eq=False)
class _CommitBatch(OffsetsBatch):
    offsets: Offsets
    commits: tuple[Commit, ...]
    identity: Identity | None


class CommitManager:
    def __init__(
        self, group: str, coordinators: Coordinators, policy: CommitPolicy, listeners: CommitListeners
    ) -> None:
        self._group = group
        self._policy = policy
        self._listeners = listeners
        self._requests = CoordinatorRequests(group, coordinators, policy.backoff, listeners.refresh, "a commit failed")
        self._queue = CommitQueue(group)
        self._in_flight: _CommitBatch | None = None
        self._stale: Identity | None = None  # the coordinator knows a newer epoch of this member
        # The state that the waiting commits were last checked against: member id, owned partitions, cluster.
        self._checked: tuple[str | None, frozenset[TopicPartition] | None, Cluster] | None = None

    @property
    def is_idle(self) -> bool:
        return not self._queue and self._in_flight is None

    def commit(self, offsets: Offsets, future: Future[None], deadline: float | None, now: float) -> None:
        """Without a deadline (no caller waits) the commit is tried for `policy.timeout` seconds."""
        member_id = self._member_id()
        error = self._not_owned_error(offsets, member_id) or self._too_many_error()
        if error is not None or member_id is None:
            refuse(future, error or self._not_member_error())
            return
        if self._checked is not None and self._checked[:2] != (member_id, self._listeners.owned()):
            self._checked = None  # the state at this call may have changed again by the next turn
        ids, stale = self._ids_of(offsets)
        until = now + self._policy.timeout if deadline is None else deadline
        commit = Commit(set(offsets), future, until, member_id, ids)
        self._queue.add(commit, {tp: offset for tp, offset in offsets.items() if tp not in stale})
        if stale:
            self._listeners.refresh()  # our own cluster metadata may be the old one
            commit.mark_lost(stale, _RECREATED)
            self._settle()

    def _ids_of(self, offsets: Offsets) -> tuple[dict[str, UUID], list[TopicPartition]]:
        """The ids of the topics, and the partitions whose offsets belong to another topic of the same name."""
        ids = topic_ids(self._listeners.cluster(), offsets)
        stale = []
        for partition, offset in offsets.items():
            if offset.topic_id is not None and ids.setdefault(partition.topic, offset.topic_id) != offset.topic_id:
                stale.append(partition)
        return ids, stale

    def lose(self, partitions: Collection[TopicPartition]) -> None:
        """Another member may own these already: their waiting commits are not sent."""
        for commit in self._queue:
            commit.mark_lost(commit.open.intersection(partitions), _LOST)
        self._settle()

    def abandon(self, error: MultilaneError) -> None:
        """Fails all waiting commits. The request in flight may still arrive."""
        self._queue.abandon(error)

    def poll(self, now: float) -> Poll:
        if not self._queue:
            return NOTHING
        self._check()
        self._queue.settle()
        self._queue.expire(now, self._listeners.coordinator_error)
        if not self._queue:
            return NOTHING
        is_stale = self._stale is not None and self._stale == self._listeners.identity()
        return self._requests.next_requests(now, self._queue.next_deadline, self._request, is_paused=is_stale)

    # --- what may be sent --------------------------------------------------------------------------------------------

    def _member_id(self) -> str | None:
        """The member id for commits; empty for manually assigned partitions, None if not a member."""
        if self._listeners.owned() is None:
            return _MANUAL
        identity = self._listeners.identity()
        return None if identity is None else identity.member_id

    def _not_owned_error(self, offsets: Offsets, member_id: str | None) -> CommitRefused | None:
        owned = self._listeners.owned()
        not_owned = [] if owned is None or member_id is None else sorted(set(offsets) - owned)
        if not not_owned:
            return None
        return CommitRefused(
            f"group {self._group}: nothing was committed: this consumer does not own {some(not_owned)}; "
            "commit only assigned partitions"
        )

    def _not_member_error(self) -> CommitRefused:
        return CommitRefused(
            f"group {self._group}: nothing was committed: this consumer is not a member at present; "
            "poll until partitions are assigned, and continue from there"
        )

    def _too_many_error(self) -> TooManyCommits | None:
        if len(self._queue) < _MOST_WAITING:
            return None
        return TooManyCommits(f"group {self._group}: {_MOST_WAITING} commits wait for an answer; commit less often")

    def _check(self) -> None:
        """Runs on every turn, also while a request is in flight: a partition that leaves and comes back takes at least
        one turn."""
        owned, member_id, cluster = self._listeners.owned(), self._member_id(), self._listeners.cluster()
        before = self._checked
        self._checked = (member_id, owned, cluster)
        if before is not None and before[:2] == (member_id, owned) and before[2] is cluster:
            return
        renewed: set[str] = set()
        for commit in reversed(self._queue):  # commits older than one for an old topic are for the old topic too
            renewed |= {t for t, id_ in commit.ids.items() if cluster.topic_id(t) not in (None, id_)}
            if commit.member_id != member_id:
                commit.mark_lost(commit.open, "belongs to a membership that has ended")
            elif owned is not None:
                commit.mark_lost(commit.open - owned, _LOST)
            commit.mark_lost([tp for tp in commit.open if tp.topic in renewed], _RECREATED)
        self._settle()

    def _settle(self) -> None:
        """Drops lost partitions and completes answered commits. Commits in flight wait for their answer first: they may
        have been in time."""
        in_flight = frozenset(() if self._in_flight is None else self._in_flight.commits)
        for commit in self._queue:
            gone = [] if commit in in_flight else sorted(commit.open & commit.lost.keys())
            if not gone:
                continue
            log.warning("group %s: dropping a late commit: %s %s", self._group, some(gone), commit.lost[gone[0]])
            self._listeners.observer.count("commit.dropped", len(gone), group=self._group)
            for partition in gone:
                text = f"the offset of {partition} was not committed: it {commit.lost[partition]}. Do not retry it"
                commit.refuse(partition, CommitRefused(f"group {self._group}: {text}"))
        self._queue.settle()

    def _batch(self, node: NodeId) -> _CommitBatch:
        commits = self._queue.open_commits()
        identity = None if self._listeners.owned() is None else self._listeners.identity()
        ids = {topic: id_ for commit in commits for topic, id_ in commit.ids.items()}
        return _CommitBatch(node, ids, self._queue.latest_offsets(commits), commits, identity)

    def _request(self, node: NodeId) -> UnsentRequest:
        self._in_flight = batch = self._batch(node)
        who = batch.identity
        committer = Committer(self._group)
        at_least = OFFSET_COMMIT_AT_LEAST
        if who is not None:
            committer = Committer(self._group, who.member_id, who.epoch, who.instance_id)
            if who.protocol == "consumer":
                at_least = COMMIT_OF_EPOCH_AT_LEAST
            elif who.instance_id is not None:
                at_least = COMMIT_OF_INSTANCE_AT_LEAST
        return UnsentRequest(
            api=ApiKey.OFFSET_COMMIT,
            build=lambda version: offset_commit_request(version, committer, batch.offsets, batch.ids),
            on_response=lambda response, now: self._on_response(batch, response, now),
            on_failure=lambda error, now: self._on_failure(batch, error, now),
            node=batch.node,
            at_least=at_least,
            at_most=batch.at_most(batch.offsets),
        )

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_response(self, batch: _CommitBatch, response: Any, now: float) -> None:
        self._in_flight = None
        codes = commit_codes(response, batch.offsets, batch.topics)
        verdicts = {tp: self._verdict(batch, tp, codes.get(tp)) for tp in batch.offsets}
        for commit in batch.commits:
            for partition in list(commit.open):
                _apply(commit, partition, verdicts[partition], now)
        self._note(batch, verdicts.values(), now)
        self._settle()
        doubted = (
            tp for tp, (effect, _) in verdicts.items() if effect is Effect.FENCED or codes.get(tp) == OLD_GENERATION
        )
        fencing = [error for tp in doubted if (error := verdicts[tp][1]) is not None]
        if fencing and batch.identity is not None and batch.identity == self._listeners.identity():
            self._listeners.fenced(fencing[0], now)

    def _verdict(self, batch: _CommitBatch, partition: TopicPartition, code: int | None) -> _Verdict:
        effect, error = judge(self._group, partition, batch.offsets[partition], code)
        if effect is not Effect.FENCED:
            return effect, error
        if batch.identity is None:
            text = "the group has members; manually assigned partitions need a group.id of their own"
            return Effect.REFUSED, CommitRefused(f"{error}: {text}")
        # The answer to a JoinGroup in flight shows whether the group moved on with this member or without it.
        return (Effect.STALE if code == OLD_GENERATION or self._has_moved_on(batch) else effect), error

    def _has_moved_on(self, batch: _CommitBatch) -> bool:
        """Whether the same member has a newer epoch by now: then the answer is about its former epoch."""
        then, today = batch.identity, self._listeners.identity()
        if then is None or today is None:
            return False
        return then.member_id == today.member_id and then.epoch < today.epoch

    def _note(self, batch: _CommitBatch, verdicts: Collection[_Verdict], now: float) -> None:
        """Applies the effects of an answer to the next request."""
        effects = {effect for effect, _ in verdicts}
        if Effect.MOVED in effects:
            self._requests.moved(batch)
        if Effect.MISSING in effects:
            self._listeners.refresh()
        self._stale = batch.identity if Effect.STALE in effects else None
        self._requests.answered([error for effect, error in verdicts if effect in _RETRIED], now)

    def _on_failure(self, batch: _CommitBatch, error: MultilaneError, now: float) -> None:
        self._in_flight = None
        self._requests.unanswered(batch, error, now)
        verdict = (Effect.RETRY if error.retriable else Effect.REFUSED, error)
        for commit in batch.commits:
            for partition in list(commit.open):
                _apply(commit, partition, verdict, now)
        self._settle()


def _apply(commit: Commit, partition: TopicPartition, verdict: _Verdict, now: float) -> None:
    effect, error = verdict
    if error is None:
        commit.open.discard(partition)
        return
    commit.last_error = error
    if effect is Effect.MISSING:
        commit.missing_since = now if commit.missing_since is None else commit.missing_since
        if now - commit.missing_since < _MISSING_TOPIC_SECONDS:
            return
    if effect in (Effect.MISSING, Effect.REFUSED, Effect.FENCED):
        commit.refuse(partition, error)
