"""The topics that one consumer of a group wants, and what the cluster metadata must contain because of them.

Thread: network.

Owns what was subscribed to and the topics that are watched in the metadata; they are watched until `drop`. Never talks
to the coordinator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multilane.client.group.membership import Subscription
from multilane.client.group.wanted_topics import ClientPattern, ServerPattern, TopicNames, WantedTopics

if TYPE_CHECKING:
    from multilane.client.metadata import MetadataManager


class TopicInterest:
    def __init__(self, metadata: MetadataManager, *, create: bool) -> None:
        self.wanted: WantedTopics | None = None
        self._metadata = metadata
        self._create = create
        self._watched: frozenset[str] = frozenset()
        self._watches_all = False

    def want(self, wanted: WantedTopics | None) -> None:
        self.wanted = wanted
        self._watch_all(isinstance(wanted, ClientPattern))

    def names(self, topic: str) -> bool:
        """Whether the topic is subscribed to by its name."""
        return isinstance(self.wanted, TopicNames) and topic in self.wanted.topics

    @property
    def follows_metadata(self) -> bool:
        """Whether topics come and go with the list of all topics."""
        return isinstance(self.wanted, ClientPattern)

    @property
    def is_resolved(self) -> bool:
        """A pattern waits for the list of topics."""
        return not self.follows_metadata or self._metadata.has_all

    def subscription(self) -> Subscription | None:
        match self.wanted:
            case TopicNames(topics):
                return Subscription(topics)
            case ClientPattern() as pattern:
                known = self._metadata.cluster.topics.values()
                readable = [t.name for t in known if not (pattern.without_internal and t.is_internal)]
                return Subscription(pattern.fitting(readable))
            case ServerPattern(regex):
                return Subscription(regex=regex)
            case None:
                return None

    def watch(self, topics: frozenset[str]) -> None:
        """The metadata contains these from now on, and no longer the earlier ones."""
        if topics != self._watched:
            self._metadata.add_interest(topics - self._watched, create=self._create)
            self._metadata.drop_interest(self._watched - topics, create=self._create)
            self._watched = topics

    def drop(self) -> None:
        self._metadata.drop_interest(self._watched, create=self._create)
        self._watched = frozenset()
        self._watch_all(False)

    def _watch_all(self, wanted: bool) -> None:
        if wanted and not self._watches_all:
            self._metadata.watch_all()
        elif self._watches_all and not wanted:
            self._metadata.unwatch_all()
        self._watches_all = wanted
