"""Keeping the picture of the cluster fresh, without asking too often."""

from __future__ import annotations

from typing import Any

import pytest

from multilane.client.cluster import Cluster, Leadership
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.request_state import Backoff
from multilane.client.net.requests import NEVER
from multilane.errors import BrokerError, MultilaneError, NetworkError, SaslError, UnsupportedVersion
from multilane.types import LeaderEpoch, Node, NodeId, TopicPartition
from multilane.wire.messages import ApiKey
from response_builder import metadata_response

NODES = [Node(NodeId(1), "one", 1), Node(NodeId(2), "two", 2)]
T0 = TopicPartition("t", 0)


class Watch:
    def __init__(self) -> None:
        self.clusters: list[Cluster] = []
        self.topic_errors: list[tuple[str, BrokerError]] = []
        self.failures: list[MultilaneError] = []
        self.rebootstraps = 0
        self.manager = MetadataManager(
            MetadataPolicy(max_age=300.0, backoff=Backoff(0.1, 1.0, jitter=0.0), rebootstrap_after=60.0),
            MetadataListeners(
                self.clusters.append,
                lambda topic, error: self.topic_errors.append((topic, error)),
                self.failures.append,
                self._rebootstrap,
            ),
        )

    def _rebootstrap(self) -> None:
        self.rebootstraps += 1

    def ask(self, now: float) -> Any:
        (request,) = self.manager.poll(now).requests
        return request

    def refresh(self, now: float, topics: dict[str, Any] | None = None, **more: Any) -> None:
        self.ask(now).on_response(metadata_response(12, NODES, topics or {}, **more), now)


def _asked(request: Any) -> list[str]:
    return [t.name for t in request.build(12).topics]


def test_the_first_poll_asks_any_broker_and_only_once():
    watch = Watch()
    request = watch.ask(0.0)
    assert (request.api, request.node, _asked(request)) == (ApiKey.METADATA, None, [])
    assert watch.manager.poll(0.0).requests == ()
    request.on_response(metadata_response(12, NODES, {}), 0.0)
    assert watch.clusters[-1].nodes.keys() == {1, 2}
    assert watch.manager.poll(0.0).wait == 300.0


def test_it_is_asked_again_when_it_is_old():
    watch = Watch()
    watch.refresh(0.0)
    assert watch.manager.poll(299.0).wait == pytest.approx(1.0)
    assert watch.manager.poll(300.0).requests


def test_a_new_topic_is_asked_for_at_once_and_a_known_one_not():
    watch = Watch()
    watch.refresh(0.0)
    watch.manager.add_interest(["t"])
    watch.refresh(1.0, {"t": {0: (1, 3)}})
    assert watch.manager.cluster.leadership(T0) == Leadership(NodeId(1), LeaderEpoch(3))
    watch.manager.add_interest(["t"])
    assert watch.manager.poll(2.0).requests == ()
    watch.manager.request_update()
    assert _asked(watch.ask(2.0)) == ["t"]


def test_interest_is_counted():
    watch = Watch()
    watch.manager.add_interest(["t", "u"])
    watch.manager.add_interest(["t"])
    watch.manager.drop_interest(["t", "u"])
    assert _asked(watch.ask(0.0)) == ["t"]


def test_interest_that_comes_while_a_request_is_under_way_is_not_forgotten():
    watch = Watch()
    request = watch.ask(0.0)
    watch.manager.add_interest(["t"])
    request.on_response(metadata_response(12, NODES, {}), 0.0)
    assert _asked(watch.ask(0.0)) == ["t"]


@pytest.mark.parametrize("code", [3, 5, 100])
def test_a_topic_that_is_not_there_yet_is_asked_for_with_back_off(code):
    watch = Watch()
    watch.manager.add_interest(["t"])
    now = 0.0
    for wait in (0.1, 0.2, 0.4):
        watch.refresh(now, {"t": {}}, codes={"t": code})
        assert watch.manager.poll(now).wait == pytest.approx(wait)
        now += wait + 0.001
    watch.refresh(now, {"t": {0: (1, 1)}})
    assert watch.manager.poll(now).wait == 300.0
    assert watch.topic_errors == []


def test_a_partition_without_leader_keeps_asking():
    watch = Watch()
    watch.manager.add_interest(["t"])
    watch.refresh(0.0, {"t": {0: (1, 1), 1: (-1, 1)}})
    assert watch.manager.poll(0.0).wait == pytest.approx(0.1)
    watch.manager.drop_interest(["t"])
    assert watch.manager.poll(0.0).wait == 300.0


@pytest.mark.parametrize("code", [17, 29])
def test_a_topic_that_will_not_be_there_is_told(code):
    watch = Watch()
    watch.manager.add_interest(["t"])
    watch.refresh(0.0, {"t": {}}, codes={"t": code})
    ((topic, error),) = watch.topic_errors
    assert (topic, error.code) == ("t", code)
    assert watch.manager.poll(0.0).wait == 300.0


def test_failures_wait_longer_each_time_and_are_not_told_while_they_pass():
    watch = Watch()
    now = 0.0
    for wait in (0.1, 0.2, 0.4):
        watch.ask(now).on_failure(NetworkError("lost"), now)
        poll = watch.manager.poll(now)
        assert poll.requests == ()
        assert poll.wait == pytest.approx(wait)
        now += wait
    assert watch.failures == []


@pytest.mark.parametrize("error", [SaslError("no"), UnsupportedVersion("old")])
def test_failures_that_do_not_pass_are_told(error):
    watch = Watch()
    watch.ask(0.0).on_failure(error, 0.0)
    assert watch.failures == [error]
    assert watch.manager.poll(0.1).requests


def test_failing_for_long_leads_back_to_the_bootstrap_servers():
    watch = Watch()
    for now in (0.0, 30.0, 59.0):
        watch.ask(now).on_failure(NetworkError("lost"), now)
    assert watch.rebootstraps == 0
    watch.ask(61.0).on_failure(NetworkError("lost"), 61.0)
    assert watch.rebootstraps == 1
    watch.ask(90.0).on_failure(NetworkError("lost"), 90.0)
    assert watch.rebootstraps == 1, "not again at once"
    watch.refresh(95.0)
    watch.manager.request_update()
    watch.ask(130.0).on_failure(NetworkError("lost"), 130.0)
    assert watch.rebootstraps == 1, "a success in between counts"


def test_a_broker_may_send_us_back_to_the_bootstrap_servers():
    watch = Watch()
    watch.ask(0.0).on_response(metadata_response(13, NODES, {}, code=129), 0.0)
    assert watch.rebootstraps == 1
    assert watch.clusters == []
    assert watch.manager.poll(0.1).requests


def test_a_leader_hint_is_told_to_everyone_and_an_old_one_to_nobody():
    watch = Watch()
    watch.manager.add_interest(["t"])
    watch.refresh(0.0, {"t": {0: (1, 3)}})
    assert watch.manager.learn_leader(T0, Leadership(NodeId(2), LeaderEpoch(4)), [])
    assert not watch.manager.learn_leader(T0, Leadership(NodeId(1), LeaderEpoch(3)), [])
    assert len(watch.clusters) == 2
    assert watch.clusters[-1].leadership(T0) == Leadership(NodeId(2), LeaderEpoch(4))


def test_nothing_to_do_is_never():
    watch = Watch()
    watch.ask(0.0)
    assert watch.manager.poll(0.0).wait == NEVER
