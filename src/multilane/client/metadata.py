"""Keeps the picture of the cluster fresh.

Thread: none (pure state machine); owned by the network thread and shared by all consumers on it.

Owns the current `Cluster` and the count of who is interested in which topic. Asks any broker for Metadata when a topic
is new, when somebody saw a sign that the picture is old (`request_update`), and when its age exceeds
`metadata.max.age.ms`. A topic that does not exist is asked for again with back-off for as long as someone wants it.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from multilane.broker_codes import BROKER_CODES
from multilane.client.cluster import Cluster, Leadership
from multilane.client.net.request_state import Backoff, RequestState
from multilane.client.net.requests import NEVER, NOTHING, Poll, UnsentRequest
from multilane.errors import AuthenticationError, BrokerError, MultilaneError, NetworkError, broker_error
from multilane.wire.compose import METADATA_AT_LEAST, metadata_request
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.types import Node, TopicPartition

log = logging.getLogger(__name__)

_UNKNOWN_TOPIC: Final = 3
_REBOOTSTRAP_REQUIRED: Final = 129
_TRANSIENT_TOPIC_CODES: Final = frozenset(code for code, (_, retriable, _) in BROKER_CODES.items() if retriable)


@dataclass(frozen=True, slots=True)
class MetadataPolicy:
    max_age: float
    backoff: Backoff
    rebootstrap_after: float
    create_topics: bool = False


@dataclass(slots=True)
class MetadataListeners:
    """What the manager tells, and to whom: every callback runs on the network thread."""

    on_cluster: Callable[[Cluster], None] = lambda _: None
    on_topic_error: Callable[[str, BrokerError], None] = lambda _topic, _error: None
    on_failure: Callable[[MultilaneError], None] = lambda _: None
    on_rebootstrap: Callable[[], None] = lambda: None


@dataclass(slots=True, eq=False)
class _Progress:
    """When things last happened; None: never."""

    refreshed_at: float | None = None
    failing_since: float | None = None
    missing: set[str] = field(default_factory=set)
    announced: set[str] = field(default_factory=set)


class MetadataManager:
    def __init__(self, policy: MetadataPolicy, listeners: MetadataListeners) -> None:
        self.cluster = Cluster()
        self.failure: MultilaneError | None = None  # why the last request failed, until one succeeds
        self._policy = policy
        self._listeners = listeners
        self._interest: Counter[str] = Counter()
        self._state = RequestState(policy.backoff)
        self._progress = _Progress()
        self._update_wanted = True

    def add_interest(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._interest[topic] += 1
            if topic not in self.cluster.topics:
                self._update_wanted = True
                if not self._state.failures:
                    self._state.rest_until(0.0)  # somebody waits for just this

    def drop_interest(self, topics: Iterable[str]) -> None:
        for topic in topics:
            self._interest[topic] -= 1
            if self._interest[topic] <= 0:
                del self._interest[topic]
                self._progress.missing.discard(topic)
                self.cluster = self.cluster.without(topic)  # what nobody looks at grows old unseen

    def why_no_leader(self, partition: TopicPartition) -> MultilaneError:
        topic = self.cluster.topics.get(partition.topic)
        if topic is None:
            return self.failure or NetworkError(f"topic {partition.topic} is not known to the cluster")
        if partition.partition not in topic.partitions:
            return NetworkError(f"topic {partition.topic} has {len(topic.partitions)} partitions, from 0")
        return NetworkError(f"{partition} has no leader at present")

    def request_update(self) -> None:
        self._update_wanted = True

    def learn_leader(self, partition: TopicPartition, leader: Leadership, endpoints: Iterable[Node]) -> bool:
        """Take a leader hint (KIP-951); True when it told something new."""
        hinted = self.cluster.with_leader(partition, leader, endpoints)
        if hinted is self.cluster:
            return False
        self._adopt(hinted)
        return True

    def poll(self, now: float) -> Poll:
        due = self._due_in(now)
        if due > 0:
            return NOTHING if due == NEVER else Poll(wait=due)
        if not self._state.may_send(now):
            return Poll(wait=self._state.wait(now))
        self._state.sent()
        self._update_wanted = False
        asked = tuple(self._interest)
        return Poll((self._request(asked),))

    def _due_in(self, now: float) -> float:
        if self._update_wanted or self._progress.refreshed_at is None:
            return 0.0
        if self._progress.missing:
            return self._state.wait(now)
        return max(0.0, self._progress.refreshed_at + self._policy.max_age - now)

    def _request(self, asked: tuple[str, ...]) -> UnsentRequest:
        return UnsentRequest(
            api=ApiKey.METADATA,
            build=lambda version: metadata_request(version, asked, create=self._policy.create_topics),
            on_response=lambda response, now: self._on_response(asked, response, now),
            on_failure=self._on_failure,
            at_least=METADATA_AT_LEAST,
        )

    def _on_response(self, asked: tuple[str, ...], response: Any, now: float) -> None:
        if int(getattr(response, "error_code", 0)) == _REBOOTSTRAP_REQUIRED:
            self._state.failed(now)
            self._rebootstrap()
            return
        self.failure = None
        self._progress.refreshed_at = now
        self._progress.failing_since = None
        self._note_topic_errors(asked, response)
        if self._progress.missing:
            self._state.failed(now)  # not a failure of the request, but the same patience before the next one
        else:
            self._state.succeeded()
            if self._interest.keys() <= set(asked):  # many may ask for an update; one will do
                self._state.rest_until(now + self._policy.backoff.initial)
        self._adopt(self.cluster.merged(response, asked))

    def _note_topic_errors(self, asked: tuple[str, ...], response: Any) -> None:
        self._progress.missing.clear()
        for told in response.topics:
            code = int(told.error_code)
            leaderless = any(int(p.leader_id) < 0 for p in told.partitions)
            if told.name in asked and (code in _TRANSIENT_TOPIC_CODES or leaderless):
                self._progress.missing.add(str(told.name))
                if code == _UNKNOWN_TOPIC and str(told.name) not in self._progress.announced:
                    self._progress.announced.add(str(told.name))
                    log.warning("topic %s does not exist; waiting for it", told.name)
            elif code:
                self._listeners.on_topic_error(str(told.name), broker_error(code, f"Metadata of topic {told.name}"))

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

    def _adopt(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._listeners.on_cluster(cluster)
