"""The topic ids that a member requests from the metadata.

Thread: none (pure); belongs to the membership that made it, on the network thread.

An id is wanted while the cluster metadata lacks it, and until the application has started its partitions: by then
fetching holds the topic by name, so the metadata does not lose it in between.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster


class TopicIds(Protocol):
    """Finds topics by id, and counts how often each is wanted."""

    def add_ids(self, ids: Collection[UUID]) -> None: ...

    def drop_ids(self, ids: Collection[UUID]) -> None: ...


class WantedIds:
    def __init__(self, topic_ids: TopicIds) -> None:
        self._topic_ids = topic_ids
        self._wanted: set[UUID] = set()

    def want(self, ids: frozenset[UUID], cluster: Cluster) -> bool:
        """Requests these ids. True if the metadata has a topic but not all its partitions: it is old."""
        new = ids - self._wanted
        if new:
            self._wanted |= new
            self._topic_ids.add_ids(new)
        return any(cluster.topic_named(topic_id) is not None for topic_id in ids)

    def keep(self, ids: frozenset[UUID]) -> None:
        """Stops requesting all ids but these."""
        gone = self._wanted - ids
        if gone:
            self._wanted -= gone
            self._topic_ids.drop_ids(gone)
