"""The whole configuration of an app: clusters, consumers, producers and shovels. Lookups ignore the case of names.

Thread: none (pure values).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from multilane.config.app.cluster import ClusterConfig, ErrorReading
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.files.source_location import did_you_mean, listed
from multilane.config.app.kinds import Seconds, Text, TopicList, TopicName, whole
from multilane.config.app.shape import ENTRY_NAME, Frozen, setting
from multilane.errors import ConfigError, printable

NamedEntry = TypeVar("NamedEntry")


class ProducerTopicConfig(Frozen):
    """A topic that the application writes to, under a name of its own."""

    name: str = setting("The name of the producer.", key=ENTRY_NAME)
    topic: TopicName = setting("The topic.", key="name")
    cluster: Text = setting("The name of the cluster.")


class ShovelConfig(ErrorReading):
    """A scheduled consumer that moves records from some topics to another topic, or back to their origin."""

    name: str = setting("The name of the error consumer.", key=ENTRY_NAME)
    group_id: Text = setting("The group that reads the topics.")
    topics: TopicList = setting("The topics to read.")
    max_error_count: Annotated[int, whole(0)] = setting("How often a record may be moved before the last step.")
    cluster: Text = setting("The name of the cluster.")
    target_topic: TopicName | None = setting("Where records go; without it, back to their original topic.", None)
    close_when_no_message: Seconds = setting(
        "A partition is done after this long without a record.", 60.0, key="closeConsumerWhenThereIsNoMessage"
    )
    close_when_message_is_new: Seconds = setting(
        "A record younger than this ends the run of its partition: it failed only recently.", 60.0,
        key="closeConsumerWhenMessageIsNew",
    )  # fmt: skip


class AppConfig(Frozen):
    """The mappings keep the names as written; the methods ignore case."""

    clusters: Mapping[str, ClusterConfig] = setting("Clusters.", derived=lambda _: {})
    consumers: Mapping[str, ConsumerGroupConfig] = setting("Consumer groups.", derived=lambda _: {})
    producers: Mapping[str, ProducerTopicConfig] = setting("Topics to write to.", derived=lambda _: {})
    shovels: Mapping[str, ShovelConfig] = setting("Error consumers.", derived=lambda _: {}, key="errorConsumers")

    def cluster(self, name: str) -> ClusterConfig:
        return _found(self.clusters, name, "cluster")

    def consumer(self, name: str) -> ConsumerGroupConfig:
        return _found(self.consumers, name, "consumer")

    def producer(self, name: str) -> ProducerTopicConfig:
        return _found(self.producers, name, "producer")

    def shovel(self, name: str) -> ShovelConfig:
        return _found(self.shovels, name, "error consumer")


def _found(entries: Mapping[str, NamedEntry], name: str, what: str) -> NamedEntry:
    folded = name.casefold()
    for known, entry in entries.items():
        if known.casefold() == folded:
            return entry
    hint = did_you_mean(name, entries) or f"it has: {listed(entries)}"
    raise ConfigError(f"the configuration has no {what} {printable(name, 80)!r}; {hint}")
