"""Looks up the names of topics by their ids.

Thread: none (pure state machine); owned by the network thread, a part of `MetadataManager`.

A KIP-848 coordinator assigns topic ids. Owns the number of users of each id, and requests unknown ids from any broker.
Ids go in a request of their own, because a broker ignores the names in a Metadata request that contains an id. Retries
an unknown id with back-off for as long as it is in use. Never changes the cluster snapshot itself: it passes responses
on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any
from uuid import UUID

from multilane.client.net.request_state import RequestBackoff, RequestState
from multilane.client.net.requests import NOTHING, Poll, UnsentRequest
from multilane.logs import logger
from multilane.wire.compose import IDS_AT_LEAST, metadata_request
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.errors import MultilaneError

log = logger(__name__)


class TopicIdLookup:
    def __init__(self, backoff: RequestBackoff, learn: Callable[[Any, tuple[UUID, ...]], None]) -> None:
        self._wanted: Counter[UUID] = Counter()
        self._unknown: dict[UUID, None] = {}  # a subset of `_wanted`, in request order
        self._announced: set[UUID] = set()
        self._state = RequestState(backoff)
        self._learn = learn

    def __contains__(self, topic_id: UUID | None) -> bool:
        return topic_id in self._wanted

    def add(self, ids: Iterable[UUID], cluster: Cluster) -> None:
        for topic_id in ids:
            self._wanted[topic_id] += 1
            if cluster.topic_named(topic_id) is None:
                self._unknown[topic_id] = None

    def drop(self, ids: Iterable[UUID]) -> list[UUID]:
        """Returns the ids that have no user any more."""
        gone = []
        for topic_id in ids:
            self._wanted[topic_id] -= 1
            if self._wanted[topic_id] <= 0:
                del self._wanted[topic_id]
                self._unknown.pop(topic_id, None)
                self._announced.discard(topic_id)
                gone.append(topic_id)
        return gone

    def names(self, cluster: Cluster) -> list[str]:
        """The known names of the wanted ids: the metadata manager refreshes these topics by name."""
        found = (cluster.topic_named(topic_id) for topic_id in self._wanted)
        return [topic.name for topic in found if topic is not None]

    def compare(self, cluster: Cluster) -> None:
        """Check which wanted ids a new cluster snapshot contains."""
        if self._wanted:
            self._unknown = {i: None for i in self._wanted if cluster.topic_named(i) is None}

    def poll(self, now: float) -> Poll:
        if not self._unknown:
            return NOTHING
        if not self._state.may_send(now):
            return Poll(wait=self._state.wait(now))
        self._state.sent()
        asked = tuple(self._unknown)
        request = UnsentRequest(
            api=ApiKey.METADATA,
            build=lambda version: metadata_request(version, (), create=False, ids=asked),
            on_response=lambda response, now: self._on_response(asked, response, now),
            on_failure=self._on_failure,
            at_least=IDS_AT_LEAST,
        )
        return Poll((request,))

    def _on_response(self, asked: tuple[UUID, ...], response: Any, now: float) -> None:
        self._learn(response, asked)  # which calls `compare`
        missing = [i for i in asked if i in self._unknown]
        if not missing:
            self._state.succeeded()
            return
        self._state.failed(now)  # the request succeeded, but the next one waits as after a failure
        for topic_id in missing:
            if topic_id not in self._announced:
                self._announced.add(topic_id)
                log.warning("topic id %s is unknown to the cluster, or we may not see the topic; retrying", topic_id)

    def _on_failure(self, error: MultilaneError, now: float) -> None:
        log.debug("could not look up %d topic ids: %s", len(self._unknown), error)
        self._state.failed(now)
