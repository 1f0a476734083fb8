"""Keeping the cluster snapshot up to date, without too many requests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from multilane.client.cluster import Cluster, Leadership
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.request_state import RequestBackoff
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
            MetadataPolicy(max_age=300.0, backoff=RequestBackoff(0.1, 1.0, jitter=0.0), rebootstrap_after=60.0),
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
def test_a_topic_that_will_not_be_there_is_reported(code):
    watch = Watch()
    watch.manager.add_interest(["t"])
    watch.refresh(0.0, {"t": {}}, codes={"t": code})
    ((topic, error),) = watch.topic_errors
    assert (topic, error.code) == ("t", code)
    assert watch.manager.poll(0.0).wait == 300.0


def test_failures_wait_longer_each_time_and_are_not_reported_while_they_pass():
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
def test_failures_that_do_not_pass_are_reported(error):
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


def test_a_leader_hint_is_reported_to_everyone_and_an_old_one_to_nobody():
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


# --- topics by id ----------------------------------------------------------------------------------------------------

A, B = UUID(int=0xA), UUID(int=0xB)


def _by_id(manager: MetadataManager, now: float) -> Any:
    (request,) = (r for r in manager.poll(now).requests if r.at_least == 12)
    return request


def _ids(request: Any) -> list[UUID]:
    topics = request.build(12).topics
    assert all(t.name is None for t in topics)
    return [t.topic_id for t in topics]


def test_a_topic_may_be_asked_for_by_id_in_a_request_of_its_own():
    watch = Watch()
    watch.refresh(0.0)
    watch.manager.add_interest(["t"])
    watch.manager.add_ids([A])
    named, by_id = watch.manager.poll(1.0).requests
    assert _asked(named) == ["t"]
    assert _ids(by_id) == [A]
    by_id.on_response(metadata_response(12, NODES, {"a": {0: (1, 1)}}, ids={"a": A}), 1.0)
    found = watch.clusters[-1].topic_named(A)
    assert found is not None
    assert found.name == "a"
    named.on_response(metadata_response(12, NODES, {"t": {0: (1, 1)}}, ids={"t": B}), 1.0)
    assert set(watch.manager.cluster.topics) == {"a", "t"}
    assert watch.manager.poll(1.5).requests == ()
    assert _asked(watch.ask(301.0)) == ["t", "a"], "what is known is kept fresh by name"


def test_an_id_that_nobody_knows_is_asked_for_with_back_off_while_it_is_wanted():
    watch = Watch()
    watch.refresh(0.0)
    watch.manager.add_ids([A, B])
    now = 1.0
    for wait in (0.1, 0.2, 0.4):
        _by_id(watch.manager, now).on_response(_unknown_id(A, found=B), now)
        poll = watch.manager.poll(now)
        assert poll.requests == ()
        assert poll.wait == pytest.approx(wait)
        now += wait + 0.001
    assert _ids(_by_id(watch.manager, now)) == [A]
    watch.manager.drop_ids([A])
    assert watch.manager.poll(now).wait > 200


def _unknown_id(unknown: UUID, *, found: UUID) -> Any:
    response = metadata_response(12, NODES, {"gone": {}, "b": {0: (1, 1)}}, codes={"gone": 100}, ids={"b": found})
    lost = replace(response.topics[0], name=None, topic_id=unknown)
    return replace(response, topics=(lost, response.topics[1]))


def test_ids_are_counted_and_their_topic_goes_with_the_last_who_wants_it():
    watch = Watch()
    watch.refresh(0.0)
    watch.manager.add_ids([A])
    watch.manager.add_ids([A])
    _by_id(watch.manager, 1.0).on_response(metadata_response(12, NODES, {"a": {0: (1, 1)}}, ids={"a": A}), 1.0)
    watch.manager.drop_ids([A])
    assert watch.manager.cluster.topic_named(A) is not None
    watch.manager.add_interest(["a"])
    watch.manager.drop_ids([A])
    assert watch.manager.cluster.topic_named(A) is not None, "somebody wants it by name"
    assert watch.manager.poll(1.0).requests == (), "and need not ask for it"
    watch.manager.drop_interest(["a"])
    assert watch.manager.cluster.topic_named(A) is None


def test_an_id_that_was_dropped_while_we_asked_leaves_nothing_behind():
    watch = Watch()
    watch.refresh(0.0)
    watch.manager.add_ids([A])
    request = _by_id(watch.manager, 1.0)
    watch.manager.drop_ids([A])
    request.on_response(metadata_response(12, NODES, {"a": {0: (1, 1)}}, ids={"a": A}), 1.0)
    assert watch.manager.cluster.topics == {}


def test_asking_by_id_may_fail_and_is_tried_again():
    watch = Watch()
    watch.refresh(0.0)
    watch.manager.add_ids([A])
    _by_id(watch.manager, 1.0).on_failure(NetworkError("lost"), 1.0)
    assert watch.manager.poll(1.0).wait == pytest.approx(0.1)
    assert _by_id(watch.manager, 1.2)


def test_a_topic_made_anew_is_looked_for_under_its_old_id():
    watch = Watch()
    watch.refresh(0.0)
    watch.manager.add_ids([A])
    _by_id(watch.manager, 1.0).on_response(metadata_response(12, NODES, {"a": {0: (1, 1)}}, ids={"a": A}), 1.0)
    watch.manager.request_update()
    watch.refresh(2.0, {"a": {0: (1, 1)}}, ids={"a": B})
    assert _ids(_by_id(watch.manager, 3.0)) == [A]


# --- all topics ------------------------------------------------------------------------------------------------------


def test_all_topics_are_asked_for_while_somebody_watches_them():
    watch = Watch()
    watch.manager.add_interest(["t"])
    watch.refresh(0.0, {"t": {0: (1, 1)}})
    watch.manager.watch_all()
    assert not watch.manager.has_all
    request = watch.ask(0.0)
    assert request.build(12).topics is None
    request.on_response(metadata_response(12, NODES, {"t": {0: (1, 1)}, "u": {0: (-1, 1)}}, codes={"u": 5}), 0.0)
    assert watch.manager.has_all
    assert set(watch.clusters[-1].topics) == {"t", "u"}
    assert watch.topic_errors == []
    assert watch.manager.poll(0.0).wait == 300.0, "a leaderless topic that nobody reads is nobody's trouble"
    watch.manager.watch_all()
    assert watch.manager.poll(0.0).requests == (), "one question after the other"
    assert watch.ask(0.1).build(12).topics is None, "a later watcher gets a response too"
    watch.manager.unwatch_all()
    assert set(watch.manager.cluster.topics) == {"t", "u"}
    watch.manager.unwatch_all()
    assert set(watch.manager.cluster.topics) == {"t"}
    assert not watch.manager.has_all


def test_a_name_that_is_not_among_all_topics_is_asked_for_by_name():
    watch = Watch()
    watch.manager.watch_all()
    watch.manager.add_interest(["t"])
    watch.refresh(0.0, {"u": {0: (1, 1)}})
    assert watch.manager.poll(0.0).wait == pytest.approx(0.1)
    request = watch.ask(0.2)
    assert _asked(request) == ["t"]
    request.on_response(metadata_response(12, NODES, {"t": {}}, codes={"t": 3}), 0.2)
    assert set(watch.manager.cluster.topics) == {"u"}
    request = watch.ask(0.5)
    watch.manager.drop_interest(["t"])
    request.on_response(metadata_response(12, NODES, {"t": {}}, codes={"t": 3}), 0.5)
    assert watch.manager.poll(0.5).wait == pytest.approx(299.5), "since all were asked for"
    watch.manager.request_update()
    assert watch.ask(0.7).build(12).topics is None


def test_what_is_dropped_stays_in_the_picture_while_all_are_watched():
    watch = Watch()
    watch.manager.watch_all()
    watch.manager.add_interest(["t"])
    watch.refresh(0.0, {"t": {0: (1, 1)}})
    watch.manager.drop_interest(["t"])
    assert set(watch.manager.cluster.topics) == {"t"}


def test_an_answer_about_all_that_nobody_watches_any_more_is_cut_down():
    watch = Watch()
    watch.manager.watch_all()
    watch.manager.add_interest(["t"])
    request = watch.ask(0.0)
    watch.manager.unwatch_all()
    request.on_response(metadata_response(12, NODES, {"t": {0: (1, 1)}, "u": {0: (1, 1)}}), 0.0)
    assert set(watch.manager.cluster.topics) == {"t"}
    assert not watch.manager.has_all


# --- topics that may be created --------------------------------------------------------------------------------------


def _may_create(request: Any) -> bool:
    return bool(request.build(12).allow_auto_topic_creation)


def _absent(watch: Watch, now: float, *topics: str, **there: Any) -> Any:
    """The request of this moment, answered: these topics are not there."""
    request = watch.ask(now)
    described = {**there, **{topic: {} for topic in topics}}
    request.on_response(metadata_response(12, NODES, described, codes=dict.fromkeys(topics, 3)), now)
    return request


def test_only_what_is_absent_and_may_be_created_is_named_where_brokers_create():
    watch = Watch()
    watch.manager.add_interest(["old", "mine"], create=True)
    watch.manager.add_interest(["theirs"])
    assert not _may_create(_absent(watch, 0.0, "mine", "theirs", old={0: (1, 1)}))
    creating = _absent(watch, 1.0, "mine")
    assert (_asked(creating), _may_create(creating)) == (["mine"], True)
    watch.manager.request_update()
    whole = _absent(watch, 3.0, "theirs", old={0: (1, 1)}, mine={0: (1, 1)})
    assert (sorted(_asked(whole)), _may_create(whole)) == (["mine", "old", "theirs"], False)
    assert not _may_create(watch.ask(5.0)), "it is there now"


def test_a_broker_that_creates_nothing_does_not_keep_others_from_being_asked_about(caplog):
    watch = Watch()
    watch.manager.add_interest(["mine"], create=True)
    watch.manager.add_interest(["leaderless"])
    for round_ in range(3):
        now = 10.0 * round_
        whole = _absent(watch, now, "mine", leaderless={0: (-1, 1)})
        assert (_asked(whole), _may_create(whole)) == (["mine", "leaderless"], False)
        assert ("mine does not exist" in caplog.text) is (round_ > 0), "first it is to be created"
        watch.manager.request_update()  # as whoever lacks a leader does all the time
        assert _may_create(_absent(watch, now + 5.0, "mine"))


def test_that_it_may_be_created_is_counted_like_interest():
    watch = Watch()
    watch.manager.add_interest(["t"], create=True)
    watch.manager.add_interest(["t"])
    watch.manager.drop_interest(["t"], create=True)
    _absent(watch, 0.0, "t")
    assert not _may_create(_absent(watch, 1.0, "t"))
    watch.manager.add_interest(["t"], create=True)
    _absent(watch, 3.0, "t")
    watch.manager.drop_interest(["t"], create=True)
    assert not _may_create(_absent(watch, 5.0, "t")), "whoever allowed it is gone"


def test_a_question_that_creates_says_nothing_about_the_age_of_the_rest():
    watch = Watch()
    watch.manager.add_interest(["t"], create=True)
    watch.manager.add_interest(["u"])
    _absent(watch, 0.0, "t", u={0: (1, 1)})
    watch.ask(100.0).on_response(metadata_response(12, NODES, {"t": {0: (1, 1)}}), 100.0)
    assert set(watch.manager.cluster.topics) == {"t", "u"}
    assert watch.manager.poll(100.0).wait == pytest.approx(200.0)


def test_while_all_are_watched_what_is_not_among_them_may_be_created():
    watch = Watch()
    watch.manager.watch_all()
    watch.manager.add_interest(["t"], create=True)
    request = watch.ask(0.0)
    assert not _may_create(request)
    request.on_response(metadata_response(12, NODES, {"u": {0: (1, 1)}}), 0.0)
    creating = _absent(watch, 1.0, "t")
    assert (_asked(creating), _may_create(creating)) == (["t"], True)
