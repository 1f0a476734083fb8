"""Which brokers to dial, and which are in back-off."""

from __future__ import annotations

import pytest

from multilane.client.net.directory import Directory
from multilane.client.net.request_state import RequestBackoff
from multilane.errors import NetworkError, SaslError
from multilane.types import Node, NodeId

LOST = NetworkError("lost")
ONE, TWO = Node(NodeId(1), "one", 9092), Node(NodeId(2), "two", 9092)


def _directory(*, rebootstrap: bool = True) -> Directory:
    return Directory(
        [("a", 1), ("b", 2)],
        RequestBackoff(0.1, 1.0, jitter=0.0),
        rebootstrap=rebootstrap,
        choose=lambda nodes: nodes[0],
    )


def test_bootstrap_addresses_stand_for_brokers_until_the_cluster_is_known():
    directory = _directory()
    assert not directory.knows_cluster
    assert directory.any_node(0.0) == -1
    assert directory.get(NodeId(-2)) == Node(NodeId(-2), "b", 2)
    assert directory.is_bootstrap(NodeId(-1))
    directory.adopt({ONE.id: ONE})
    assert directory.knows_cluster
    assert directory.any_node(0.0) == 1
    assert not directory.is_bootstrap(NodeId(1))


def test_each_failure_waits_longer_and_success_forgets():
    directory = _directory()
    waits = []
    for _ in range(3):
        directory.failed(NodeId(-1), LOST, 5.0)
        waits.append(directory.wait(NodeId(-1), 5.0))
    assert waits == pytest.approx([0.1, 0.2, 0.4])
    assert directory.wait(NodeId(-1), 6.0) == 0
    directory.succeeded(NodeId(-1))
    assert directory.wait(NodeId(-1), 5.0) == 0


def test_a_refused_identity_waits_much_longer():
    directory = _directory()
    directory.failed(NodeId(-1), SaslError("no"), 0.0)
    assert directory.wait(NodeId(-1), 0.0) >= 2.0
    for _ in range(20):
        directory.failed(NodeId(-1), SaslError("no"), 0.0)
    assert directory.wait(NodeId(-1), 0.0) == 60.0


def test_another_broker_is_dialled_while_one_rests():
    directory = _directory()
    directory.failed(NodeId(-1), LOST, 0.0)
    assert directory.any_node(0.0) == -2
    directory.failed(NodeId(-2), LOST, 0.0)
    assert directory.any_node(0.0) is None
    assert directory.shortest_wait(0.0) == pytest.approx(0.1)
    assert directory.any_node(0.2) == -1


def test_when_every_broker_fails_the_bootstrap_addresses_are_tried():
    directory = _directory()
    directory.adopt({ONE.id: ONE, TWO.id: TWO})
    directory.failed(ONE.id, LOST, 0.0)
    assert directory.any_node(0.0) == 2
    directory.failed(TWO.id, LOST, 0.0)
    assert directory.any_node(0.0) == -1


def test_without_rebootstrap_a_known_cluster_is_all_there_is():
    directory = _directory(rebootstrap=False)
    directory.adopt({ONE.id: ONE})
    directory.failed(ONE.id, LOST, 0.0)
    assert directory.any_node(0.0) is None
    assert directory.any_node(0.1) == 1
    directory.forget_cluster()
    assert directory.any_node(0.0) == -1


def test_adopting_tells_who_left_or_moved_and_forgives_them():
    directory = _directory()
    directory.adopt({ONE.id: ONE, TWO.id: TWO})
    directory.failed(TWO.id, LOST, 0.0)
    moved = Node(TWO.id, "elsewhere", 9092)
    assert directory.adopt({ONE.id: ONE, TWO.id: moved}) == [2]
    assert directory.get(TWO.id) == moved
    assert directory.wait(TWO.id, 0.0) == 0
    assert directory.adopt({TWO.id: moved}) == [1]
    assert directory.get(ONE.id) is None
