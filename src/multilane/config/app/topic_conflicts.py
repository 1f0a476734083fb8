"""Finds conflicts between entries that are each valid: two readers of a topic in one group, and cycles of topics.

Thread: none (pure).

Each finding names its entry: the section and the name.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from multilane.config.app.cluster_identity import ClusterOf
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.files.source_location import joined
from multilane.config.app.model import ShovelConfig
from multilane.config.app.rules import EntryFinding, RuleFinding

CycleTopic = tuple[str, str]  # the cluster's identity, and the name


@dataclass(frozen=True, slots=True)
class _Edge:
    """Failed records of one topic go to another topic."""

    source: CycleTopic
    target: CycleTopic
    consumer: str
    field: str


def of_same_readers(
    consumers: Iterable[ConsumerGroupConfig],
    shovels: Iterable[ShovelConfig],
    cluster_of: ClusterOf,
    side_by_side: frozenset[str] = frozenset(),
) -> Iterator[EntryFinding]:
    """A group divides a topic's partitions among all its readers, whatever they do with the records. `side_by_side`:
    consumers whose topic others may read as well."""
    readers: dict[tuple[str, str, str], tuple[str, str, bool]] = {}
    for section, name, (cluster, group_id), topic, field in _reading(consumers, shovels):
        is_beside = section == "consumers" and field == "topic" and name in side_by_side
        reader = (section, name, is_beside)
        section_before, before, was_beside = readers.setdefault((cluster_of(cluster), group_id, topic), reader)
        if (section_before, before) != (section, name) and not (is_beside and was_beside):
            what = (
                f"{joined(section_before, before)} also reads {topic} as group {group_id}: each would get only some of "
                "the partitions and miss the other records"
            )
            fix = "give each its own groupId, or merge them"
            if field == "topic" and section == section_before == "consumers":
                fix = "give each its own groupId; or write sharing: same-topic for both, and each gets every record"
            yield section, name, RuleFinding((field,), what, fix)


def _reading(
    consumers: Iterable[ConsumerGroupConfig], shovels: Iterable[ShovelConfig]
) -> Iterator[tuple[str, str, tuple[str, str], str, str]]:
    for consumer in consumers:
        group = consumer.cluster, consumer.group_id
        yield "consumers", consumer.name, group, consumer.topic, "topic"
        if consumer.retry is not None and consumer.retry != consumer.topic:
            yield "consumers", consumer.name, group, consumer.retry, "retry"
    for shovel in shovels:
        for topic in dict.fromkeys(shovel.topics):
            yield "errorConsumers", shovel.name, (shovel.cluster, shovel.group_id), topic, "topics"


def of_cycles(consumers: Iterable[ConsumerGroupConfig], cluster_of: ClusterOf) -> Iterator[EntryFinding]:
    """Each cycle once. The rules of a consumer report a cycle within it. Error consumers are no part of a cycle: they
    count how often they move a record, and `maxErrorCount` bounds it."""
    edges = _on_cycles([edge for consumer in consumers for edge in _edges(consumer, cluster_of(consumer.cluster))])
    known: set[frozenset[CycleTopic]] = set()
    for first in edges:
        cycle = _cycle_through(first, edges)
        topics = frozenset(edge.source for edge in cycle)
        if len({edge.consumer for edge in cycle}) > 1 and topics not in known:
            known.add(topics)
            way = ", ".join(f"{edge.source[1]} to {edge.target[1]} (consumer {edge.consumer})" for edge in cycle)
            what = f"a record that keeps failing circulates forever: from {way}"
            yield "consumers", first.consumer, RuleFinding((first.field,), what, "give one of them another topic")


def _edges(consumer: ConsumerGroupConfig, cluster: str) -> Iterator[_Edge]:
    ways = (
        (consumer.topic, consumer.retry, "retry"),
        (consumer.topic, consumer.error, "error"),
        (consumer.retry, consumer.error, "error"),
    )
    for source, target, field in ways:
        if source is not None and target is not None and source != target:
            yield _Edge((cluster, source), (cluster, target), consumer.name, field)


def _on_cycles(edges: list[_Edge]) -> list[_Edge]:
    """Removes edges that lead nowhere and edges that nothing leads to; usually none remain."""
    while True:
        sources, targets = {edge.source for edge in edges}, {edge.target for edge in edges}
        left = [edge for edge in edges if edge.target in sources and edge.source in targets]
        if len(left) == len(edges):
            return edges
        edges = left


def _cycle_through(first: _Edge, edges: Iterable[_Edge]) -> list[_Edge]:
    """The shortest cycle through this edge, or an empty list."""
    leading: Mapping[CycleTopic, list[_Edge]] = _by_source(edges)
    ways: dict[CycleTopic, list[_Edge]] = {first.target: [first]}
    waiting = deque([first.target])
    while waiting:
        at = waiting.popleft()
        for edge in leading.get(at, ()):
            if edge.target == first.source:
                return [*ways[at], edge]
            if edge.target not in ways:
                ways[edge.target] = [*ways[at], edge]
                waiting.append(edge.target)
    return []


def _by_source(edges: Iterable[_Edge]) -> dict[CycleTopic, list[_Edge]]:
    found: dict[CycleTopic, list[_Edge]] = defaultdict(list)
    for edge in edges:
        found[edge.source].append(edge)
    return found
