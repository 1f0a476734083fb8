"""Which consumers of an app share one group member: those whose `sharing` allows it and whose sharing keys are equal.

Thread: any. Reads the certificate files that a cluster names.

A consumer that shares is a trigger: it gets every record of its topic, as every other trigger of that topic does.
Without sharing, two consumers of one group and topic divide its partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final

from multilane.config.app.clients import consumer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.cluster_identity import ClusterOf
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.rules import EntryFinding, RuleFinding
from multilane.config.consumer import parse_consumer
from multilane.config.sharing_key import SharingKey, sharing_key

OFF: Final = "off"
CROSS_TOPIC: Final = "cross-topic"
Pair = tuple[ConsumerGroupConfig, ClusterConfig]


def mode_of(consumer: ConsumerGroupConfig, cluster: ClusterConfig) -> str | None:
    """As written for the consumer, else for its cluster; None if neither says."""
    return consumer.sharing or cluster.sharing


def shares(consumer: ConsumerGroupConfig, cluster: ClusterConfig) -> bool:
    return mode_of(consumer, cluster) not in (None, OFF)


def key_of_trigger(consumer: ConsumerGroupConfig, cluster: ClusterConfig) -> SharingKey:
    topic = None if mode_of(consumer, cluster) == CROSS_TOPIC else consumer.topic
    return sharing_key(parse_consumer(consumer_properties(consumer, cluster)), topic)


def units(consumers: Iterable[Pair]) -> list[tuple[str, ...]]:
    """The consumers that share a member, by name, in the order of the configuration. A consumer that does not share is
    in none of them."""
    return list(units_by_key(consumers).values())


def units_by_key(consumers: Iterable[Pair]) -> dict[SharingKey, tuple[str, ...]]:
    found: dict[SharingKey, tuple[str, ...]] = {}
    for consumer, cluster in consumers:
        if shares(consumer, cluster):
            key = key_of_trigger(consumer, cluster)
            found[key] = (*found.get(key, ()), consumer.name)
    return found


def side_by_side(consumers: Iterable[Pair]) -> frozenset[str]:
    """Consumers whose topic may be read by another one of their group: all that share, and those that say `off`."""
    return frozenset(consumer.name for consumer, cluster in consumers if mode_of(consumer, cluster) is not None)


def of_conflicts(consumers: Iterable[Pair], cluster_of: ClusterOf) -> Iterator[EntryFinding]:
    """Consumers of one group and topic that would divide its partitions although they say that they share, triggers
    that would handle each other's retries, and late starts where nobody shares."""
    consumers = list(consumers)
    for consumer, cluster in consumers:
        if consumer.begin is not None and not shares(consumer, cluster):
            what = "it says where a consumer begins that joins others that share, and this one does not share"
            yield "consumers", consumer.name, RuleFinding(("begin",), what, "set sharing, or use offsetInitial")
    for (first, first_cluster), (second, second_cluster) in combinations(consumers, 2):
        modes = mode_of(first, first_cluster), mode_of(second, second_cluster)
        if first.group_id != second.group_id or None in modes or not _are_one(cluster_of, first, second):
            continue
        if first.topic == second.topic and set(modes) != {OFF}:
            yield from _apart(first, second, modes, key_of_trigger(first, first_cluster), (second, second_cluster))
        if first.audit is not None and first.audit == second.audit and OFF not in modes:
            what = f"consumers.{first.name} shares its records and writes its audit records there"
            yield "consumers", second.name, RuleFinding(("audit",), what, "give each its own directory")
        if first.retry is not None and first.retry == second.retry and OFF not in modes:
            what = f"consumers.{first.name} shares its records and has the same retry topic: both would handle a retry"
            yield "consumers", second.name, RuleFinding(("retry",), what, "give each its own retry topic")


def of_shadow_groups(consumers: Iterable[Pair], cluster_of: ClusterOf) -> Iterator[EntryFinding]:
    """A shadow group is for one trigger and nothing else."""
    every = list(consumers)
    for consumer, cluster in every:
        group = consumer.shadow_group
        if group is None:
            continue
        if not shares(consumer, cluster):
            what = "the consumer does not share: its group has its own position"
            yield "consumers", consumer.name, RuleFinding(("shadow_group",), what, "omit it, or set sharing")
        for other, _ in every:
            own = {other.group_id} if other is consumer else {other.group_id, other.shadow_group}
            if group in own and cluster_of(consumer.cluster.casefold()) == cluster_of(other.cluster.casefold()):
                what = f"consumers.{other.name} uses the group {group}"
                fix = "name a group that nothing else uses"
                yield "consumers", consumer.name, RuleFinding(("shadow_group",), what, fix)
                break


def _apart(
    first: ConsumerGroupConfig,
    second: ConsumerGroupConfig,
    modes: tuple[str | None, str | None],
    key: SharingKey,
    other: Pair,
) -> Iterator[EntryFinding]:
    if modes[0] != modes[1]:
        what = (
            f"consumers.{first.name} reads the same topic and group with sharing {modes[0]}: each would get only some"
        )
        yield "consumers", second.name, RuleFinding(("sharing",), what, "write the same mode for both")
        return
    differences = key.differences(key_of_trigger(*other))
    if differences:
        what = f"it cannot share with consumers.{first.name}: their {' and '.join(differences)} differ"
        fix = "make them equal, or give each its own groupId"
        yield "consumers", second.name, RuleFinding(("sharing",), what, fix)


def _are_one(cluster_of: ClusterOf, first: ConsumerGroupConfig, second: ConsumerGroupConfig) -> bool:
    return cluster_of(first.cluster.casefold()) == cluster_of(second.cluster.casefold())


def with_clusters(consumers: Iterable[ConsumerGroupConfig], clusters: Mapping[str, ClusterConfig]) -> list[Pair]:
    """Each with its cluster, by the cluster's casefolded name; those without one are left out."""
    folded = {name.casefold(): cluster for name, cluster in clusters.items()}
    return [(c, folded[c.cluster.casefold()]) for c in consumers if c.cluster.casefold() in folded]
