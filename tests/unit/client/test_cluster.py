"""The cluster snapshot: what a response or a leader hint changes, and what it does not."""

from __future__ import annotations

from uuid import UUID

import pytest

from multilane.client.cluster import Cluster, Leadership, Topic
from multilane.types import LeaderEpoch, Node, NodeId, TopicPartition
from response_builder import TOPIC_ID, cluster_of, metadata_response

TP = TopicPartition("t", 0)
NODES = [Node(NodeId(1), "one", 1), Node(NodeId(2), "two", 2, "rack-b")]


def _leader(node: int | None, epoch: int) -> Leadership:
    return Leadership(None if node is None else NodeId(node), LeaderEpoch(epoch))


@pytest.mark.parametrize("version", range(9, 14))
def test_a_response_of_every_version_is_understood(version):
    cluster = Cluster().merged(metadata_response(version, NODES, {"t": {0: (1, 7), 1: (-1, 3)}}), ["t"])
    assert dict(cluster.nodes) == {1: NODES[0], 2: NODES[1]}
    assert cluster.leadership(TP) == _leader(1, 7)
    assert cluster.leadership(TopicPartition("t", 1)) == _leader(None, 3)
    assert cluster.leadership(TopicPartition("t", 2)) is None
    assert cluster.leadership(TopicPartition("u", 0)) is None
    assert cluster.topic_id("t") == (TOPIC_ID if version >= 10 else None)
    assert cluster.id == "test-cluster"


def test_an_older_epoch_never_overwrites_a_newer():
    known = cluster_of({TP: (1, 7)})
    assert known.merged(metadata_response(12, NODES, {"t": {0: (2, 6)}}), ["t"]).leadership(TP) == _leader(1, 7)
    assert known.merged(metadata_response(12, NODES, {"t": {0: (2, 7)}}), ["t"]).leadership(TP) == _leader(2, 7)
    assert known.merged(metadata_response(12, NODES, {"t": {0: (2, 8)}}), ["t"]).leadership(TP) == _leader(2, 8)


def test_a_topic_made_anew_starts_from_its_own_epochs():
    other = UUID(int=99)
    response = metadata_response(12, NODES, {"t": {0: (2, 0)}}, ids={"t": other})
    cluster = cluster_of({TP: (1, 7)}).merged(response, ["t"])
    assert cluster.leadership(TP) == _leader(2, 0)
    assert cluster.topic_id("t") == other


def test_topics_that_were_not_asked_for_stay_and_gone_ones_go():
    known = cluster_of({TP: (1, 7), TopicPartition("u", 0): (1, 1)})
    response = metadata_response(12, NODES, {"t": {}}, codes={"t": 3})
    cluster = known.merged(response, ["t"])
    assert set(cluster.topics) == {"u"}
    assert set(known.merged(metadata_response(12, NODES, {"t": {0: (1, 7)}}), None).topics) == {"t"}


def test_an_answer_without_brokers_does_not_take_ours_away():
    assert cluster_of({TP: (1, 7)}).merged(metadata_response(12, [], {}), []).nodes.keys() == {1, 2, 3}


def test_a_newer_hint_changes_one_partition_and_adds_its_endpoint():
    known = cluster_of({TP: (1, 7), TopicPartition("t", 1): (1, 7)})
    new = Node(NodeId(9), "nine", 9)
    hinted = known.with_leader(TP, _leader(9, 8), [new])
    assert hinted.leadership(TP) == _leader(9, 8)
    assert hinted.leadership(TopicPartition("t", 1)) == _leader(1, 7)
    assert hinted.nodes[NodeId(9)] == new
    assert known.leadership(TP) == _leader(1, 7)


@pytest.mark.parametrize(
    ("partition", "leader"),
    [
        (TP, _leader(2, 7)),
        (TP, _leader(2, 6)),
        (TP, _leader(44, 8)),
        (TopicPartition("t", 5), _leader(2, 8)),
        (TopicPartition("u", 0), _leader(2, 8)),
    ],
    ids=["same epoch", "older epoch", "unknown broker", "unknown partition", "unknown topic"],
)
def test_a_hint_that_tells_nothing_changes_nothing(partition, leader):
    known = cluster_of({TP: (1, 7)})
    assert known.with_leader(partition, leader) is known


def test_a_topic_is_found_by_its_id():
    known = cluster_of({TP: (1, 7), TopicPartition("u", 0): (1, 1)}, ids={"t": UUID(int=5), "u": UUID(int=6)})
    found = known.topic_named(UUID(int=6))
    assert found is not None
    assert found.name == "u"
    assert known.topic_named(UUID(int=7)) is None
    assert known.without("u").topic_named(UUID(int=6)) is None
    assert known.with_leader(TP, _leader(2, 8)).topic_named(UUID(int=5)).partitions[0] == _leader(2, 8)


def test_an_answer_about_an_id_takes_the_topic_away_or_renews_it():
    known = cluster_of({TP: (1, 7), TopicPartition("u", 0): (1, 1)}, ids={"t": UUID(int=5), "u": UUID(int=6)})
    assert set(known.merged(metadata_response(12, NODES, {}), (), [UUID(int=5)]).topics) == {"u"}
    renewed = known.merged(metadata_response(12, NODES, {"t": {0: (2, 8)}}, ids={"t": UUID(int=5)}), (), [UUID(int=5)])
    assert set(renewed.topics) == {"t", "u"}
    assert renewed.leadership(TP) == _leader(2, 8)


def test_the_racks_of_a_topics_replicas():
    brokers = [Node(NodeId(n), "h", n, rack) for n, rack in ((1, "a"), (2, "b"), (3, None))]
    leaders = {0: _leader(1, 0), 1: _leader(2, 0), 2: _leader(3, 0)}
    replicas = {0: (NodeId(1), NodeId(2)), 1: (NodeId(2), NodeId(3)), 2: (NodeId(3), NodeId(9))}
    cluster = Cluster("c", {n.id: n for n in brokers}, {"t": Topic("t", None, leaders, replicas=replicas)})
    assert cluster.racks_of("t") == (frozenset("ab"), frozenset("b"), frozenset())
    assert cluster.racks_of("u") == ()
    nowhere = Cluster("c", {NodeId(3): brokers[2]}, cluster.topics)
    assert nowhere.racks_of("t") == ()
