"""Consumers that share: who is one unit, and which of them contradict each other."""

from __future__ import annotations

import pytest

from multilane.config.app.sharing import units, with_clusters
from multilane.errors import ConfigProblems

HEAD = "clusters:\n  main: {clientId: c, brokers: 'h:1'%s}\nconsumers:\n"


def text(*consumers: str, cluster: str = "") -> str:
    rows = [
        f"  c{n}: {{groupId: g, name: t, cluster: main, offsetInitial: oldest, {more}}}"
        for n, more in enumerate(consumers)
    ]
    return HEAD % cluster + "\n".join(rows)


def units_of(loaded, *consumers: str, cluster: str = "") -> list[tuple[str, ...]]:
    config = loaded(text(*consumers, cluster=cluster)).config
    return units(with_clusters(config.consumers.values(), config.clusters))


def test_consumers_of_one_group_and_topic_are_one_unit(loaded):
    assert units_of(loaded, "sharing: same-topic", "sharing: same-topic") == [("c0", "c1")]


def test_the_cluster_has_the_default(loaded):
    assert units_of(loaded, "retry: r", "error: e", cluster=", sharing: same-topic") == [("c0", "c1")]


def test_topics_share_only_across_topics(loaded):
    topics = ("sharing: %s", "sharing: %s, name: u")
    assert units_of(loaded, *(one % "cross-topic" for one in topics[:1]), "sharing: cross-topic") == [("c0", "c1")]


@pytest.mark.parametrize(("mode", "expected"), [("cross-topic", [("a", "b")]), ("same-topic", [("a",), ("b",)])])
def test_two_topics_of_a_group(loaded, mode, expected):
    consumers = "".join(
        f"  {name}: {{groupId: g, name: {topic}, cluster: main, sharing: {mode}}}\n"
        for name, topic in (("a", "t"), ("b", "u"))
    )
    config = loaded(HEAD % "" + consumers).config
    assert units(with_clusters(config.consumers.values(), config.clusters)) == expected


def test_who_says_off_competes_and_is_in_no_unit(loaded):
    assert units_of(loaded, "sharing: 'off'", "sharing: 'off'") == []


@pytest.mark.parametrize(
    ("consumers", "problem"),
    [
        (("retry: r", "retry: s"), "write sharing: same-topic for both, and each gets every record"),
        (("sharing: same-topic", "retry: s"), "write sharing: same-topic for both"),
        (("sharing: same-topic", "sharing: cross-topic"), "write the same mode for both"),
        (("sharing: same-topic", "sharing: 'off'"), "write the same mode for both"),
        (("sharing: same-topic, retry: r", "sharing: same-topic, retry: r"), "give each its own retry topic"),
        (("sharing: same-topic, audit: a", "sharing: same-topic, audit: a"), "give each its own directory"),
        (
            ("sharing: same-topic", "sharing: same-topic, properties: {isolation.level: read_committed}"),
            "their isolation level differ",
        ),
        (("sharing: sometimes", "retry: r"), "cross-topic"),
        (("sharing: same-topic", "sharing: same-topic, from: soon"), "write earliest, latest, or a time"),
        (("sharing: same-topic", "sharing: same-topic, from: '1969-12-31'"), "it is before 1970"),
        (("from: earliest",), "this one does not share"),
    ],
)
def test_contradictions_are_problems(loaded, consumers, problem):
    with pytest.raises(ConfigProblems, match=problem):
        loaded(text(*consumers))
