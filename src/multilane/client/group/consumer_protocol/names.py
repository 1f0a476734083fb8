"""Which topic ids a member has asked the metadata for, and for how long.

Thread: none (pure); belongs to the membership that made it, on the network thread.

An id is wanted while the picture of the cluster does not have it, and on until the application has begun with its
partitions: by then the fetch side holds the topic by name, and the picture does not lose it in between.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster


class TopicIds(Protocol):
    """Whoever finds topics by id; wants are counted there."""

    def add_ids(self, ids: Collection[UUID]) -> None: ...

    def drop_ids(self, ids: Collection[UUID]) -> None: ...


class WantedIds:
    def __init__(self, topic_ids: TopicIds) -> None:
        self._topic_ids = topic_ids
        self._wanted: set[UUID] = set()

    def want(self, ids: frozenset[UUID], cluster: Cluster) -> bool:
        """Ask for these. True when the picture has some of the topics, but not all their partitions: it is old."""
        new = ids - self._wanted
        if new:
            self._wanted |= new
            self._topic_ids.add_ids(new)
        return any(cluster.topic_named(topic_id) is not None for topic_id in ids)

    def keep(self, ids: frozenset[UUID]) -> None:
        """Ask no longer for any but these."""
        gone = self._wanted - ids
        if gone:
            self._wanted -= gone
            self._topic_ids.drop_ids(gone)
