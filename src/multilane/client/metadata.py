"""Keeps the cluster snapshot up to date.

Thread: none (pure state machine); owned by the network thread and shared by all consumers on it.

Owns the current `Cluster` and the number of users of each topic: by name, by id (assigned by a KIP-848 coordinator), or
of all topics (pattern subscriptions). Requests Metadata from any broker when a topic is new, when a component sees a
sign of stale metadata (`request_update`), and when its age exceeds `metadata.max.age.ms`. Retries a topic that does not
exist with back-off for as long as it has users.

While all topics are watched, every request is for all of them, with one exception: names that were missing from the
response are requested once more by name, because a broker reports missing authorization only for topics it is asked
for by name.

A broker creates every absent topic that a request names, if the request allows it. So the manager also counts the users
that allow creation (`allow.auto.create.topics`). A request that allows creation names only topics that are absent and
may be created. It always follows a request that does not allow it: the two take turns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from multilane.broker_codes import BROKER_CODES
from multilane.client.cluster import Cluster, Leadership
from multilane.client.net.request_state import RequestBackoff, RequestState
from multilane.client.net.requests import NEVER, NOTHING, Poll, UnsentRequest
from multilane.client.topic_ids import TopicIdLookup
from multilane.errors import AuthenticationError, BrokerError, MultilaneError, NetworkError, broker_error
from multilane.logs import logger
from multilane.wire.compose import METADATA_AT_LEAST, metadata_request
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from uuid import UUID

    from multilane.types import Node, TopicPartition

log = logger(__name__)

_UNKNOWN_TOPIC: Final = 3
_REBOOTSTRAP_REQUIRED: Final = 129
_TRANSIENT_TOPIC_CODES: Final = frozenset(code for code, (_, retriable, _) in BROKER_CODES.items() if retriable)


@dataclass(frozen=True, slots=True)
class MetadataPolicy:
    max_age: float
    backoff: RequestBackoff
    rebootstrap_after: float


@dataclass(slots=True)
class MetadataListeners:
    """The manager's callbacks; all run on the network thread."""

    on_cluster: Callable[[Cluster], None] = lambda _: None
    on_topic_error: Callable[[str, BrokerError], None] = lambda _topic, _error: None
    on_failure: Callable[[MultilaneError], None] = lambda _: None
    on_rebootstrap: Callable[[], None] = lambda: None
    unreachable: Callable[[], MultilaneError | None] = lambda: None  # returns why a broker is unreachable


@dataclass(frozen=True, slots=True)
class _MetadataQuery:
    names: tuple[str, ...] | None  # None: all topics
    create: bool = False


@dataclass(slots=True, eq=False)
class _Progress:
    """Times are None until the event first happens."""

    refreshed_at: float | None = None
    failing_since: float | None = None
    missing: set[str] = field(default_factory=set)
    absent: set[str] = field(default_factory=set)  # a subset of `missing`: nonexistent in the last response
    announced: set[str] = field(default_factory=set)


class MetadataManager:
    def __init__(self, policy: MetadataPolicy, listeners: MetadataListeners) -> None:
        self.cluster = Cluster()
        self.failure: MultilaneError | None = None  # why the last request failed, until one succeeds
        self._policy = policy
        self._listeners = listeners
        self.has_all = False  # the snapshot contains all topics; only while there are watchers
        self._watchers = 0
        self._interest: Counter[str] = Counter()
        self._creators: Counter[str] = Counter()  # the users of each topic that allow its creation
        self._ids = TopicIdLookup(policy.backoff, self._on_ids)
        self._state = RequestState(policy.backoff)
        self._progress = _Progress()
        self._update_wanted = True

    def add_interest(self, topics: Iterable[str], *, create: bool = False) -> None:
        for topic in topics:
            self._interest[topic] += 1
            self._creators[topic] += create
            if topic not in self.cluster.topics:
                self._ask_at_once()

    def drop_interest(self, topics: Iterable[str], *, create: bool = False) -> None:
        """`create` must be the same as in `add_interest`."""
        gone = []
        for topic in topics:
            self._interest[topic] -= 1
            self._creators[topic] -= create
            if self._interest[topic] <= 0:
                del self._interest[topic], self._creators[topic]
                self._progress.missing.discard(topic)
                gone.append(topic)
        self._cut(gone)

    def add_ids(self, ids: Iterable[UUID]) -> None:
        """Look up the topics with these ids; the snapshot contains them under their names once they are found."""
        self._ids.add(ids, self.cluster)

    def drop_ids(self, ids: Iterable[UUID]) -> None:
        found = (self.cluster.topic_named(topic_id) for topic_id in self._ids.drop(ids))
        self._cut([topic.name for topic in found if topic is not None])

    def watch_all(self) -> None:
        """Request all topics; `on_cluster` reports them. If the snapshot is complete, this is a regular update."""
        self._watchers += 1
        self._update_wanted = True
        if not self.has_all:
            self._ask_at_once()

    def unwatch_all(self) -> None:
        self._watchers = max(0, self._watchers - 1)
        if not self._watchers:
            self.has_all = False
            self.cluster = self.cluster.only(self._named())

    def _ask_at_once(self) -> None:
        self._update_wanted = True
        if not self._state.failures:
            self._state.rest_until(0.0)  # the caller waits for this topic

    def _cut(self, topics: Iterable[str]) -> None:
        """Remove topics without users from the snapshot: they would become stale unnoticed."""
        gone = [t for t in topics if t not in self._interest and self.cluster.topic_id(t) not in self._ids]
        if gone and not self._watchers:
            self.cluster = self.cluster.without(*gone)

    def _named(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys([*self._interest, *self._ids.names(self.cluster)]))

    def why_no_leader(self, partition: TopicPartition) -> MultilaneError:
        topic = self.cluster.topics.get(partition.topic)
        if topic is None:
            unreachable = self._listeners.unreachable()
            if self.failure is not None or (unreachable is not None and self._progress.refreshed_at is None):
                return self.failure or unreachable or NetworkError("no broker responds")
            also = "" if unreachable is None else f" ({unreachable})"
            return NetworkError(f"topic {partition.topic} is unknown to the cluster{also}")
        if partition.partition not in topic.partitions:
            return NetworkError(f"topic {partition.topic} has {len(topic.partitions)} partitions, numbered from 0")
        return NetworkError(f"{partition} has no leader")

    def request_update(self) -> None:
        self._update_wanted = True

    def learn_leader(self, partition: TopicPartition, leader: Leadership, endpoints: Iterable[Node]) -> bool:
        """Apply a leader hint (KIP-951); True if it is newer than the snapshot."""
        hinted = self.cluster.with_leader(partition, leader, endpoints)
        if hinted is self.cluster:
            return False
        self._adopt(hinted)
        return True

    def poll(self, now: float) -> Poll:
        named, by_id = self._poll_named(now), self._ids.poll(now)
        if by_id is NOTHING:
            return named
        return Poll(named.requests + by_id.requests, min(named.wait, by_id.wait))

    def _poll_named(self, now: float) -> Poll:
        due = self._due_in(now)
        if due > 0:
            return NOTHING if due == NEVER else Poll(wait=due)
        if not self._state.may_send(now):
            return Poll(wait=self._state.wait(now))
        query = self._query(now)
        self._state.sent()
        self._progress.absent.clear()
        self._update_wanted = self._update_wanted and query.create
        return Poll((self._request(query),))

    def _query(self, now: float) -> _MetadataQuery:
        to_create = tuple(sorted(t for t in self._progress.absent if self._creators[t] > 0))
        if to_create:
            return _MetadataQuery(to_create, create=True)
        if not self._watchers:
            return _MetadataQuery(self._named())
        grew_old = self._progress.refreshed_at is None or now >= self._progress.refreshed_at + self._policy.max_age
        if self._update_wanted or grew_old or not self.has_all:
            return _MetadataQuery(None)
        return _MetadataQuery(tuple(self._progress.missing))

    def _due_in(self, now: float) -> float:
        if self._update_wanted or self._progress.refreshed_at is None:
            return 0.0
        if self._progress.missing:
            return self._state.wait(now)
        return max(0.0, self._progress.refreshed_at + self._policy.max_age - now)

    def _request(self, query: _MetadataQuery) -> UnsentRequest:
        return UnsentRequest(
            api=ApiKey.METADATA,
            build=lambda version: metadata_request(version, query.names, create=query.create),
            on_response=lambda response, now: self._on_response(query, response, now),
            on_failure=self._on_failure,
            at_least=METADATA_AT_LEAST,
        )

    def _on_response(self, query: _MetadataQuery, response: Any, now: float) -> None:
        asked = query.names
        if int(getattr(response, "error_code", 0)) == _REBOOTSTRAP_REQUIRED:
            self._state.failed(now)
            self._rebootstrap()
            return
        self.failure = None
        if asked is None or not (self._watchers or query.create):
            self._progress.refreshed_at = now
        self._progress.failing_since = None
        self._note_topic_errors(query, response)
        if self._progress.missing:
            self._state.failed(now)  # the request succeeded, but the next one waits as after a failure
        else:
            self._state.succeeded()
            if asked is None or self._interest.keys() <= set(asked):  # one update serves many requests for it
                self._state.rest_until(now + self._policy.backoff.initial)
        self._adopt(self._merged(asked, response))

    def _merged(self, asked: tuple[str, ...] | None, response: Any) -> Cluster:
        merged = self.cluster.merged(response, asked)
        if asked is None:
            self.has_all = self._watchers > 0
            if not self.has_all:  # the last watcher left during the request
                return merged.only(self._named())
        return merged

    def _note_topic_errors(self, query: _MetadataQuery, response: Any) -> None:
        asked, progress = query.names, self._progress
        if asked is None:
            progress.absent = self._interest.keys() - {str(topic.name) for topic in response.topics}
            progress.missing = set(progress.absent)
        else:
            progress.missing.difference_update(asked)
        relevant = frozenset(self._interest if asked is None else asked)
        for topic in response.topics:
            if asked is None and topic.name not in relevant:
                continue  # most of all topics have no user here
            code = int(topic.error_code)
            leaderless = any(int(p.leader_id) < 0 for p in topic.partitions)
            if topic.name in relevant and (code in _TRANSIENT_TOPIC_CODES or leaderless):
                progress.missing.add(str(topic.name))
                if code == _UNKNOWN_TOPIC:
                    self._note_absent(str(topic.name), query)
            elif code:
                self._listeners.on_topic_error(str(topic.name), broker_error(code, f"Metadata of topic {topic.name}"))
        progress.missing &= self._interest.keys()  # some may have been dropped during the request

    def _note_absent(self, topic: str, query: _MetadataQuery) -> None:
        if not query.create:
            self._progress.absent.add(topic)
            if self._creators[topic] > 0:  # the broker gets to create it before this is reported
                return
        if topic not in self._progress.announced:
            self._progress.announced.add(topic)
            log.warning("topic %s does not exist; waiting for it", topic)

    def _on_failure(self, error: MultilaneError, now: float) -> None:
        self.failure = error
        self._state.failed(now)
        self._update_wanted = True
        if isinstance(error, AuthenticationError) or not error.retriable:
            self._listeners.on_failure(error)
        progress = self._progress
        progress.failing_since = now if progress.failing_since is None else progress.failing_since
        if now - progress.failing_since >= self._policy.rebootstrap_after:
            progress.failing_since = now
            self._rebootstrap()

    def _rebootstrap(self) -> None:
        self._update_wanted = True
        self._listeners.on_rebootstrap()

    def _on_ids(self, response: Any, ids: tuple[UUID, ...]) -> None:
        merged = self.cluster.merged(response, (), ids)
        found = (merged.topic_named(topic_id) for topic_id in ids if topic_id not in self._ids)
        dropped = [t.name for t in found if t is not None and t.name not in self._interest and not self._watchers]
        self._adopt(merged.without(*dropped) if dropped else merged)

    def _adopt(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._ids.compare(cluster)
        self._listeners.on_cluster(cluster)
