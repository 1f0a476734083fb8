"""Conflicts between entries that are each valid."""

from __future__ import annotations

import pytest

from multilane.config.app.cluster_identity import cluster_identities

CLUSTERS = "clusters: {k: {clientId: c, brokers: b}, j: {clientId: c, brokers: d}}\n"


def consumers(**entries):
    written = "".join(f"  {name}: {{cluster: k, {keys}}}\n" for name, keys in entries.items())
    return f"{CLUSTERS}consumers:\n{written}"


@pytest.mark.parametrize(
    ("first", "second", "key"),
    [
        ("groupId: g, name: t", "groupId: g, name: t", "name"),
        ("groupId: g, name: t", "groupId: g, name: u, retry: t", "retry"),
        ("groupId: g, name: t, retry: r", "groupId: g, name: r", "name"),
        ("groupId: g, name: t, retry: r", "groupId: g, name: u, retry: r", "retry"),
    ],
)
def test_two_that_read_one_topic_as_one_group(problems, first, second, key):
    """Each handled half of the records, and there was only advice about it."""
    [(_, path, what, fix)] = problems(consumers(a=first, b=second))
    assert path == f"consumers.b.{key}"
    assert "consumers.a also reads " in what
    assert "miss the other records" in what
    assert "groupId" in fix


@pytest.mark.parametrize(
    "second", ["groupId: h, name: t", "groupId: g, name: u", "groupId: g, name: t, cluster: j"]
)  # fmt: skip
def test_another_group_topic_or_cluster_is_fine(loaded, second):
    entry = second if "cluster" in second else f"cluster: k, {second}"
    assert loaded(f"{CLUSTERS}consumers:\n  a: {{cluster: k, groupId: g, name: t}}\n  b: {{{entry}}}\n")


def aliases(first, second):
    return f"clusters: {{k: {{clientId: c, brokers: {first}}}, j: {{clientId: e, brokers: {second}}}}}\n"


ONE_CLUSTER = [("'b, d'", "[d, b]"), ("b:9092", "b"), ("b:9092", "B:9092"), ("'b:1,c:1'", "b:1"), ("b:1", "'a:1,b:1'")]


@pytest.mark.parametrize(("first", "second"), ONE_CLUSTER)
def test_two_names_of_one_cluster_are_one(problems, first, second):
    a, b = "a: {cluster: k, groupId: g, name: t}", "b: {cluster: J, groupId: g, name: t}"
    [(_, path, what, _)] = problems(f"{aliases(first, second)}consumers:\n  {a}\n  {b}\n")
    assert (path, "consumers.a also reads t as group g" in what) == ("consumers.b.name", True)


@pytest.mark.parametrize(("first", "second"), ONE_CLUSTER)
def test_a_ring_through_two_names_of_one_cluster(problems, first, second):
    a, b = "a: {cluster: k, groupId: g, name: t, error: u}", "b: {cluster: j, groupId: h, name: u, error: t}"
    [(_, _, what, _)] = problems(f"{aliases(first, second)}consumers:\n  {a}\n  {b}\n")
    assert "circulates forever" in what


def test_no_ring_through_two_clusters(loaded):
    a, b = "a: {cluster: k, groupId: g, name: t, error: u}", "b: {cluster: j, groupId: h, name: u, error: t}"
    assert loaded(f"{CLUSTERS}consumers:\n  {a}\n  {b}\n")


def test_clusters_that_a_third_one_connects_are_one():
    identity = cluster_identities({"a": ["x:1"], "b": ["y:1"], "c": ["X:1", "z:1"], "d": ["z:1", "y:1"], "e": ["x:2"]})
    assert len({identity(name) for name in "abcDA"}) == 1
    assert len({identity(name) for name in ("a", "e", "unknown")}) == 3


def test_error_consumers_may_move_records_in_a_ring(loaded):
    """They count the moves in the record, and end the ring after maxErrorCount."""
    keys = "cron: '@daily', maxErrorCount: 1, cluster: k"
    s, r = (
        f"s: {{groupId: x, topics: [u], targetTopic: v, {keys}}}",
        f"r: {{groupId: y, topics: [v], targetTopic: u, {keys}}}",
    )
    assert loaded(f"{CLUSTERS}errorConsumers:\n  {s}\n  {r}\n")


def test_an_error_consumer_is_a_reader_too(problems):
    shovels = (
        "errorConsumers:\n"
        "  s: {groupId: g, topics: [x], cron: '@daily', maxErrorCount: 1, cluster: k}\n"
        "  r: {groupId: g, topics: [y, x], cron: '@daily', maxErrorCount: 1, cluster: k}\n"
    )
    [(_, path, what, _)] = problems(CLUSTERS + shovels)
    assert (path, "errorConsumers.s also reads x" in what) == ("errorConsumers.r.topics", True)


@pytest.mark.parametrize(
    "entries",
    [
        {"a": "groupId: g, name: t, error: u", "b": "groupId: h, name: u, error: t"},
        {"a": "groupId: g, name: t, retry: u, retryCount: 1", "b": "groupId: h, name: u, error: t"},
        {"a": "groupId: g, name: t, retry: r, error: u", "b": "groupId: h, name: u, error: r"},
        {
            "a": "groupId: g, name: t, error: u",
            "b": "groupId: h, name: u, error: v",
            "c": "groupId: i, name: v, error: t",
        },
    ],
)
def test_topics_that_lead_from_consumer_to_consumer_and_back(problems, entries):
    [(_, path, what, fix)] = problems(consumers(**entries))
    assert path.startswith("consumers.")
    assert "circulates forever" in what
    assert all(f"(consumer {name})" in what for name in entries)
    assert "another topic" in fix


def test_a_chain_of_consumers_is_fine(loaded):
    assert loaded(
        consumers(
            a="groupId: g, name: t, retry: r, error: u",
            b="groupId: h, name: u, retry: s, error: v",
            c="groupId: i, name: v",
        )
    )
