"""Finding coordinators: all at once, again after failures, and only while somebody asks."""

from __future__ import annotations

from typing import Any

import pytest

from multilane.client.group.coordinators import CoordinatorListeners, CoordinatorManager
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import CONTROL, NEVER
from multilane.errors import (
    ClientClosed,
    GroupRefused,
    MultilaneError,
    NetworkError,
    OperationTimeout,
    SaslError,
    UnknownBrokerCode,
    UnsendableRequest,
    UnsupportedVersion,
)
from multilane.types import NodeId, TopicPartition
from multilane.wire.messages import ApiKey
from offset_builder import coordinator_response
from response_builder import cluster_of

T0 = TopicPartition("t", 0)


class Watch:
    def __init__(self, nodes=(1, 2, 3)) -> None:
        self.cluster = cluster_of({T0: (1, 1)}, nodes=nodes)
        self.refreshes = 0
        self.refused: list[tuple[str, MultilaneError]] = []
        self.manager = CoordinatorManager(
            RequestBackoff(0.1, 1.0, jitter=0.0),
            CoordinatorListeners(lambda: self.cluster, self._refresh, lambda g, e: self.refused.append((g, e))),
        )

    def _refresh(self) -> None:
        self.refreshes += 1

    def requests(self, now: float, *groups: str) -> tuple[Any, ...]:
        for group in groups:
            self.manager.of(group)
        return self.manager.poll(now).requests

    def ask(self, now: float, *groups: str) -> Any:
        (request,) = self.requests(now, *groups)
        return request

    def answer(self, now: float, answers: dict[str, tuple[int, int]], version: int = 6) -> None:
        request = self.ask(now, *answers)
        request.build(version)
        request.on_response(coordinator_response(version, answers), now)


def test_nobody_is_looked_for_unless_somebody_asks():
    watch = Watch()
    assert watch.manager.poll(0.0).requests == ()
    assert watch.manager.poll(0.0).wait == NEVER
    request = watch.ask(0.0, "g")
    assert (request.api, request.node, request.channel) == (ApiKey.FIND_COORDINATOR, None, CONTROL)
    assert watch.requests(0.0, "g") == ()
    request.on_response(coordinator_response(6, {"g": (0, 2)}), 0.0)
    assert watch.manager.of("g") == NodeId(2)
    assert watch.requests(100.0, "g") == ()


def test_all_groups_go_into_one_request():
    watch = Watch()
    request = watch.ask(0.0, "g", "h", "i")
    assert request.build(4).coordinator_keys == ("g", "h", "i")
    request.on_response(coordinator_response(4, {"i": (0, 3), "g": (0, 1), "h": (15, -1), "x": (0, 1)}), 0.0)
    assert [watch.manager.of(g) for g in "ghi"] == [1, None, 3]
    assert watch.manager.poll(0.05).wait == pytest.approx(0.05)
    assert watch.ask(0.1, "h").build(4).coordinator_keys == ("h",)


def test_an_old_broker_is_asked_for_each_group_alone():
    watch = Watch()
    first = watch.ask(0.0, "g", "h", "i")
    assert first.build(3).key == "g"
    first.on_response(coordinator_response(3, {"g": (0, 1)}), 0.0)
    assert watch.manager.of("g") == 1
    second, third = watch.requests(0.0, "h", "i")
    assert [second.build(2).key, third.build(2).key] == ["h", "i"]
    third.on_response(coordinator_response(2, {"i": (0, 3)}), 0.0)
    second.on_response(coordinator_response(2, {"h": (0, 2)}), 0.0)
    assert [watch.manager.of(g) for g in "hi"] == [2, 3]


def test_after_an_upgrade_groups_are_asked_for_together_again():
    watch = Watch()
    watch.answer(0.0, {"g": (0, 1)}, version=3)
    watch.answer(0.0, {"h": (0, 1)}, version=4)
    assert watch.ask(0.0, "i", "j").build(4).coordinator_keys == ("i", "j")


@pytest.mark.parametrize("code", [14, 15, 16, 7])
@pytest.mark.parametrize("version", [2, 6])
def test_errors_that_pass_are_waited_through_with_back_off(code, version):
    watch = Watch()
    now = 0.0
    for wait in (0.1, 0.2, 0.4, 0.8, 1.0, 1.0):
        watch.answer(now, {"g": (code, -1)}, version)
        assert watch.manager.of("g") is None
        assert watch.manager.poll(now).wait == pytest.approx(wait)
        now += wait + 0.001
    watch.answer(now, {"g": (0, 3)}, version)
    assert watch.manager.of("g") == 3
    assert watch.refused == []


@pytest.mark.parametrize("error", [NetworkError("gone"), OperationTimeout("late")])
def test_failures_are_waited_through_with_back_off(error):
    watch = Watch()
    watch.ask(0.0, "g", "h").on_failure(error, 0.0)
    assert watch.requests(0.05, "g", "h") == ()
    assert watch.manager.last_error("g") is error
    assert watch.ask(0.1, "g", "h").build(6).coordinator_keys == ("g", "h")
    assert watch.refused == []


def test_a_group_that_is_left_out_of_the_answer_is_asked_for_again():
    watch = Watch()
    watch.ask(0.0, "g", "h").on_response(coordinator_response(6, {"h": (0, 1)}), 0.0)
    assert watch.manager.of("g") is None
    assert watch.ask(0.1, "g").build(6).coordinator_keys == ("g",)


@pytest.mark.parametrize("code", [24, 30, 42, -1])
def test_a_refusal_is_reported_each_time_and_waited_after_for_long(code):
    watch = Watch()
    now = 0.0
    for n, wait in enumerate((2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0), 1):
        watch.answer(now, {"g": (code, -1)})
        assert [g for g, _ in watch.refused] == ["g"] * n
        assert watch.requests(now + wait - 0.01, "g") == ()
        now += wait
    error = watch.refused[0][1]
    assert isinstance(error, GroupRefused)
    assert "group g" in str(error)
    watch.answer(now, {"g": (0, 1)})
    assert watch.manager.of("g") == 1
    assert watch.manager.last_error("g") is None


def test_a_refusal_of_one_group_changes_nothing_for_the_others():
    watch = Watch()
    watch.answer(0.0, {"g": (30, -1), "h": (0, 2)})
    assert (watch.manager.of("g"), watch.manager.of("h")) == (None, 2)


@pytest.mark.parametrize("error", [SaslError("wrong password"), UnsupportedVersion("too old")])
def test_what_refuses_the_client_is_reported_to_every_group_that_waits(error):
    watch = Watch()
    watch.ask(0.0, "g", "h").on_failure(error, 0.0)
    assert watch.refused == [("g", error), ("h", error)]
    assert watch.requests(1.9, "g", "h") == ()
    assert watch.requests(2.0, "g", "h") != ()


@pytest.mark.parametrize("error", [UnsendableRequest("a bad name"), UnknownBrokerCode(999)])
def test_one_group_that_cannot_be_asked_about_is_found_out(error):
    watch = Watch()
    watch.ask(0.0, "g", "bad").on_failure(error, 0.0)
    assert watch.refused == []
    good, bad = watch.requests(0.0)
    assert [r.build(6).coordinator_keys for r in (good, bad)] == [("g",), ("bad",)]
    good.on_response(coordinator_response(6, {"g": (0, 1)}), 0.0)
    bad.on_failure(error, 0.0)
    assert watch.manager.of("g") == 1
    assert watch.refused == [("bad", error)]


def test_an_old_brokers_failure_is_blamed_on_the_group_that_was_asked_about():
    watch = Watch()
    request = watch.ask(0.0, "g", "h")
    request.build(3)
    request.on_failure(UnsendableRequest("a bad name"), 0.0)
    assert [g for g, _ in watch.refused] == ["g"]
    assert watch.ask(0.0).build(3).key == "h"


def test_the_end_of_the_client_is_not_a_refusal():
    watch = Watch()
    watch.ask(0.0, "g").on_failure(ClientClosed("closed"), 0.0)
    assert watch.refused == []


def test_a_coordinator_that_the_cluster_does_not_know_yet_is_held_back():
    watch = Watch(nodes=(1,))
    watch.answer(0.0, {"g": (0, 9)})
    assert watch.refreshes == 1
    assert watch.manager.of("g") is None
    assert watch.requests(0.05, "g") == ()
    assert "broker 9" in str(watch.manager.last_error("g"))
    watch.cluster = cluster_of({T0: (1, 1)}, nodes=(1, 9))
    assert watch.manager.of("g") == 9
    assert watch.manager.last_error("g") is None
    assert watch.requests(10.0, "g") == ()


def test_a_coordinator_that_stays_unknown_is_looked_for_again():
    watch = Watch(nodes=(1,))
    for now in (0.0, 0.11, 0.32):
        watch.answer(now, {"g": (0, 9)})
    assert watch.refreshes == 3
    watch.answer(1.0, {"g": (0, 1)})
    assert watch.manager.of("g") == 1


def test_a_coordinator_that_left_the_cluster_is_looked_for_again():
    watch = Watch()
    watch.answer(0.0, {"g": (0, 3)})
    watch.cluster = cluster_of({T0: (1, 1)}, nodes=(1, 2))
    assert watch.manager.of("g") is None
    watch.answer(0.0, {"g": (0, 2)})
    assert watch.manager.of("g") == 2


def test_forgetting_makes_it_looked_for_at_once():
    watch = Watch()
    watch.answer(0.0, {"g": (0, 3)})
    watch.manager.forget("g", NodeId(3))
    assert watch.manager.poll(0.0).requests == ()  # nobody needs it now
    watch.answer(0.0, {"g": (0, 1)})
    assert watch.manager.of("g") == 1


def test_who_forgets_an_old_coordinator_late_does_not_harm_the_new_one():
    watch = Watch()
    watch.answer(0.0, {"g": (0, 3)})
    watch.manager.forget("g", NodeId(3))
    watch.answer(0.0, {"g": (0, 1)})
    watch.manager.forget("g", NodeId(3))
    watch.manager.forget("unheard-of", NodeId(3))
    assert watch.manager.of("g") == 1


def test_a_group_that_nobody_asks_for_any_more_is_not_looked_for():
    watch = Watch()
    watch.answer(0.0, {"g": (15, -1)})
    assert watch.manager.poll(60.0).requests == ()
    assert watch.manager.poll(60.0).wait == NEVER
    assert watch.requests(60.0, "g") != ()


def test_a_released_group_is_known_no_more_and_its_late_answer_harms_nobody():
    watch = Watch()
    request = watch.ask(0.0, "g")
    watch.manager.release("g")
    request.on_response(coordinator_response(6, {"g": (30, -1)}), 0.0)
    assert watch.refused == []
    watch.manager.release("g")
    watch.answer(0.0, {"g": (0, 2)})
    assert watch.manager.of("g") == 2


def test_a_group_is_known_until_the_last_of_its_consumers_has_gone():
    watch = Watch()
    watch.manager.hold("g")
    watch.manager.hold("g")
    watch.answer(0.0, {"g": (0, 2)})
    watch.manager.release("g")
    assert watch.manager.of("g") == 2
    watch.manager.release("g")
    assert watch.manager.of("g") is None


def test_a_released_group_is_not_looked_for_because_it_went_with_others():
    watch = Watch()
    request = watch.ask(0.0, "g", "h", "i")
    request.build(3)
    watch.manager.release("h")
    request.on_response(coordinator_response(3, {"g": (0, 1)}), 0.0)
    assert watch.ask(0.0).build(3).key == "i"


def test_a_coordinator_that_the_cluster_has_made_known_by_now_is_not_looked_for():
    watch = Watch(nodes=(1,))
    watch.answer(0.0, {"g": (0, 3)})
    assert watch.manager.of("g") is None
    watch.cluster = cluster_of({T0: (1, 1)}, nodes=(1, 3))
    assert watch.manager.poll(0.1).requests == ()
    assert watch.manager.of("g") == 3


def test_who_asks_while_an_answer_is_awaited_does_not_make_it_be_asked_twice():
    watch = Watch()
    request = watch.ask(0.0, "g")
    assert watch.requests(0.0, "g") == ()
    request.on_response(coordinator_response(6, {"g": (0, 2)}), 0.0)
    assert watch.manager.poll(0.0).requests == ()
