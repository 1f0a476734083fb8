"""Reading committed offsets: whatever goes wrong is never taken for "nothing committed"."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from multilane.client.group.committed import CommittedListeners, CommittedManager
from multilane.client.group.membership import Identity
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import CONTROL, NEVER
from multilane.errors import (
    BrokerError,
    ClientClosed,
    FrameError,
    GroupRefused,
    MultilaneError,
    NetworkError,
    OperationTimeout,
    SaslError,
    UnsupportedVersion,
)
from multilane.types import LeaderEpoch, NodeId, Offset, OffsetAndMetadata, TopicPartition
from multilane.wire.messages import ApiKey
from offset_builder import KnownCoordinators, committed_response
from response_builder import TOPIC_ID, cluster_of

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MEMBER = Identity("g", "member-1", 5, None, "consumer")
IDS = {"a": TOPIC_ID, "b": UUID(int=2)}


def at(offset: int, epoch: int = 3, metadata: str = "note") -> OffsetAndMetadata:
    return OffsetAndMetadata(Offset(offset), LeaderEpoch(epoch), metadata)


class Watch:
    def __init__(self, identity: Identity | None = MEMBER) -> None:
        self.identity = identity
        self.cluster = cluster_of({A0: (1, 1), A1: (1, 1), B0: (2, 1)}, ids=IDS)
        self.coordinators = KnownCoordinators()
        self.refreshes = 0
        self.logins: list[MultilaneError] = []
        self.began: dict[TopicPartition, OffsetAndMetadata | None] = {}
        self.refused: list[tuple[TopicPartition, MultilaneError]] = []
        self.manager = CommittedManager(
            "g",
            self.coordinators,
            RequestBackoff(0.1, 1.0, jitter=0.0),
            CommittedListeners(lambda: self.cluster, self._refresh, lambda: self.identity, self.logins.append),
        )

    def _refresh(self) -> None:
        self.refreshes += 1

    def question(self, *partitions: TopicPartition, deadline: float = 60.0) -> Future[Any]:
        future: Future[Any] = Future()
        self.manager.committed(partitions, deadline, future)
        return future

    def want(self, *partitions: TopicPartition) -> None:
        self.manager.want(partitions, self._found, lambda tp, error: self.refused.append((tp, error)))

    def _found(self, found: Any) -> None:
        assert found
        assert not self.began.keys() & found.keys(), "found twice"
        self.began.update(found)

    def request(self, now: float = 0.0) -> Any:
        (request,) = self.manager.poll(now).requests
        return request

    def answer(self, now: float, answers: Any, version: int = 9, code: int = 0) -> Any:
        request = self.request(now)
        request.on_response(committed_response(version, answers, code=code, ids=IDS), now)
        return request


def asked(request: Any, version: int = 9) -> list[TopicPartition]:
    names = {id_: name for name, id_ in IDS.items()}
    entity = request.build(version)
    topics = entity.groups[0].topics if version >= 8 else entity.topics
    return [
        TopicPartition(t.name if version < 10 else names[t.topic_id], number)
        for t in topics
        for number in t.partition_indexes
    ]


def failure(future: Future[Any]) -> BaseException:
    assert future.done()
    error = future.exception(0)
    assert error is not None
    return error


# --- asking ----------------------------------------------------------------------------------------------------------


def test_a_question_is_asked_of_the_coordinator_and_answered():
    watch = Watch()
    future = watch.question(A0, B0, A1)
    request = watch.request()
    assert (request.api, request.node, request.channel) == (ApiKey.OFFSET_FETCH, NodeId(1), CONTROL)
    assert (request.at_least, request.at_most) == (6, None)
    assert asked(request, 10) == [A0, A1, B0]
    request.on_response(committed_response(10, {A0: at(5), A1: None, B0: at(0, -1, "")}, ids=IDS), 0.0)
    assert future.result(0) == {A0: at(5), A1: None, B0: at(0, -1, "")}
    assert watch.manager.is_idle
    assert watch.manager.poll(1.0).wait == NEVER


@pytest.mark.parametrize(
    ("identity", "expected"),
    [(MEMBER, ("member-1", 5)), (replace(MEMBER, protocol="classic"), (None, -1)), (None, (None, -1))],
)
def test_only_members_of_the_new_protocol_say_who_they_are(identity, expected):
    watch = Watch(identity)
    watch.question(A0)
    entity = watch.request().build(9)
    assert (entity.groups[0].member_id, entity.groups[0].member_epoch) == expected
    assert entity.require_stable


def test_a_topic_without_a_known_id_is_named():
    watch = Watch()
    watch.cluster = cluster_of({A0: (1, 1)}, ids=IDS)
    watch.question(A0, B0)
    assert watch.request().at_most == 9


@pytest.mark.parametrize("version", range(6, 11))
def test_every_version_of_the_answer_is_understood(version):
    watch = Watch()
    future = watch.question(A0, A1)
    request = watch.answer(0.0, {A0: at(5), A1: None}, version)
    assert asked(request, version) == [A0, A1]
    assert future.result(0) == {A0: at(5), A1: None}


def test_nothing_asked_is_answered_at_once():
    watch = Watch()
    assert watch.question().result(0) == {}
    watch.want()
    assert watch.manager.poll(0.0).requests == ()


def test_wishes_that_wait_share_one_request():
    watch = Watch()
    watch.want(A0, A1)
    futures = [watch.question(A0, B0), watch.question(A0)]
    request = watch.request()
    assert asked(request) == [A0, A1, B0]
    assert watch.manager.poll(0.0).requests == ()
    request.on_response(committed_response(9, {A0: at(1), A1: at(2), B0: None}), 0.0)
    assert futures[0].result(0) == {A0: at(1), B0: None}
    assert futures[1].result(0) == {A0: at(1)}
    assert watch.began == {A0: at(1), A1: at(2)}


def test_a_wish_does_not_share_an_answer_that_may_be_older_than_itself():
    watch = Watch()
    early = watch.question(A0)
    request = watch.request()
    late = watch.question(A0)
    request.on_response(committed_response(9, {A0: at(1)}), 0.0)
    assert early.result(0) == {A0: at(1)}
    assert not late.done()
    watch.answer(0.0, {A0: at(2)})
    assert late.result(0) == {A0: at(2)}


# --- what passes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["group", "partition"])
@pytest.mark.parametrize(
    ("code", "moved"), [(14, False), (15, True), (16, True), (88, False), (113, False), (25, False)]
)
def test_a_beginning_waits_through_everything_that_passes(level, code, moved):
    """Twenty seconds of errors: no offset is returned, then the right one without help from outside."""
    watch = Watch()
    watch.want(A0)
    now, asked_times = 0.0, 0
    while now < 20.0:
        watch.coordinators.node = NodeId(1)
        poll = watch.manager.poll(now)
        for request in poll.requests:
            asked_times += 1
            answers = {A0: code} if level == "partition" else {}
            request.on_response(committed_response(9, answers, code=0 if level == "partition" else code), now)
            assert watch.coordinators.forgotten == ([("g", 1)] if moved else [])
            watch.coordinators.forgotten.clear()
        now += 0.05
    assert 20 <= asked_times <= 30
    assert (watch.began, watch.refused) == ({}, [])
    watch.coordinators.node = NodeId(1)
    watch.answer(now + 1.0, {A0: at(7)})
    assert watch.began == {A0: at(7)}


@pytest.mark.parametrize("version", [6, 7])
def test_an_error_of_the_whole_group_in_the_old_form_is_not_nothing_committed(version):
    watch = Watch()
    watch.want(A0)
    watch.answer(0.0, {A0: None}, version, code=14)
    assert watch.began == {}
    watch.answer(0.1, {A0: None}, version)
    assert watch.began == {A0: None}


@pytest.mark.parametrize("error", [NetworkError("gone"), OperationTimeout("late"), FrameError("odd")])
def test_a_lost_connection_makes_the_coordinator_be_looked_for_anew(error):
    watch = Watch()
    watch.want(A0)
    watch.request().on_failure(error, 0.0)
    assert watch.coordinators.forgotten == [("g", 1)]
    assert watch.manager.poll(0.1).requests == ()
    watch.coordinators.node = NodeId(2)
    assert watch.request(0.1).node == 2


def test_a_question_ends_with_its_deadline_and_says_why():
    watch = Watch()
    future = watch.question(A0, deadline=5.0)
    watch.answer(0.0, {A0: 88})
    assert watch.manager.poll(0.0).wait == pytest.approx(0.1)
    watch.manager.poll(5.0)
    error = failure(future)
    assert isinstance(error, OperationTimeout)
    assert "a-0" in str(error)
    assert "UNSTABLE_OFFSET_COMMIT" in str(error)
    assert watch.manager.is_idle


def test_a_question_without_a_coordinator_ends_with_its_deadline():
    watch = Watch()
    watch.coordinators.node = None
    future = watch.question(A0, deadline=5.0)
    assert watch.manager.poll(1.0).wait == 4.0
    watch.manager.poll(5.0)
    assert isinstance(failure(future), OperationTimeout)


def test_a_late_answer_to_an_expired_question_harms_nobody():
    watch = Watch()
    future = watch.question(A0, deadline=1.0)
    request = watch.request()
    watch.manager.poll(1.0)
    assert isinstance(failure(future), OperationTimeout)
    request.on_response(committed_response(9, {A0: at(1)}), 2.0)
    assert watch.manager.is_idle


@pytest.mark.parametrize("code", [3, 100])
def test_an_unknown_topic_refreshes_the_picture_and_is_asked_again(code):
    watch = Watch()
    watch.want(A0, B0)
    watch.answer(0.0, {A0: code, B0: at(4)})
    assert watch.refreshes == 1
    assert watch.began == {B0: at(4)}
    watch.cluster = cluster_of({A0: (1, 1)}, ids={"a": UUID(int=9)})
    request = watch.request(0.1)
    assert request.build(10).groups[0].topics[0].topic_id == UUID(int=9)


def test_partitions_left_out_are_asked_again_and_not_taken_for_nothing():
    watch = Watch()
    watch.want(A0, A1)
    future = watch.question(A0, A1)
    watch.answer(0.0, {A0: None})
    assert watch.began == {A0: None}
    assert not future.done()
    request = watch.request(0.1)
    assert asked(request) == [A1]
    request.on_response(committed_response(9, {A1: at(2)}), 0.1)
    assert watch.began == {A0: None, A1: at(2)}
    assert future.result(0) == {A0: None, A1: at(2)}


@pytest.mark.parametrize("version", [8, 10])
def test_an_answer_about_another_group_is_no_answer(version):
    watch = Watch()
    watch.want(A0)
    watch.request().on_response(committed_response(version, {A0: None}, group="h"), 0.0)
    assert watch.began == {}
    watch.coordinators.node = NodeId(1)
    watch.answer(0.1, {A0: at(3)}, version)
    assert watch.began == {A0: at(3)}


def test_an_offset_that_is_none_is_no_answer():
    watch = Watch()
    watch.want(A0)
    watch.answer(0.0, {A0: at(-5)})
    assert watch.began == {}
    watch.answer(0.1, {A0: at(5)})
    assert watch.began == {A0: at(5)}


# --- what is refused -------------------------------------------------------------------------------------------------


def test_a_topic_without_permission_is_reported_and_the_others_begin():
    watch = Watch()
    watch.want(A0, B0)
    future, fine = watch.question(B0), watch.question(A0)
    watch.answer(0.0, {A0: at(1), B0: 29})
    ((partition, error),) = watch.refused
    assert partition == B0
    assert isinstance(error, BrokerError)
    assert "b-0" in str(error)
    assert "grant READ" in str(error)
    assert failure(future) is error
    assert fine.result(0) == {A0: at(1)}
    assert watch.began == {A0: at(1)}
    assert watch.manager.is_idle


@pytest.mark.parametrize("code", [30, 24])
def test_a_refused_group_is_reported_to_all(code):
    watch = Watch()
    watch.want(A0, A1)
    future = watch.question(A0)
    watch.answer(0.0, {}, code=code)
    assert [tp for tp, _ in watch.refused] == [A0, A1]
    assert all(isinstance(e, GroupRefused) for _, e in watch.refused)
    assert isinstance(failure(future), GroupRefused)


def test_a_refused_login_ends_questions_and_is_reported_once_for_the_beginnings_which_go_on():
    watch = Watch()
    watch.want(A0, A1)
    future = watch.question(A0)
    error = SaslError("wrong password")
    watch.request().on_failure(error, 0.0)
    assert failure(future) is error
    assert (watch.logins, watch.refused) == ([error], [])
    watch.answer(0.1, {A0: at(1), A1: None})
    assert watch.began == {A0: at(1), A1: None}


def test_a_broker_that_is_too_old_refuses_all():
    watch = Watch()
    watch.want(A0)
    error = UnsupportedVersion("too old")
    watch.request().on_failure(error, 0.0)
    assert watch.refused == [(A0, error)]
    assert watch.manager.is_idle


# --- the end ---------------------------------------------------------------------------------------------------------


def test_what_is_not_wanted_any_more_is_neither_reported_nor_asked():
    watch = Watch()
    watch.want(A0, A1)
    request = watch.request()
    watch.manager.unwant([A0])
    request.on_response(committed_response(9, {A0: at(1), A1: 88}), 0.0)
    assert watch.began == {}
    watch.manager.unwant([A1])
    assert watch.manager.poll(1.0).requests == ()
    assert watch.manager.is_idle


def test_what_is_wanted_again_gets_an_answer_of_its_own():
    """While it was someone else's, more may have been committed than the answer under way knows of."""
    watch = Watch()
    watch.want(A0)
    request = watch.request()
    watch.manager.unwant([A0])
    watch.want(A0)
    request.on_response(committed_response(9, {A0: at(1)}), 0.0)
    assert watch.began == {}
    watch.answer(0.0, {A0: at(50)})
    assert watch.began == {A0: at(50)}


def test_abandoning_refuses_questions_and_forgets_beginnings():
    watch = Watch()
    watch.want(A0)
    future = watch.question(A1)
    request = watch.request()
    error = ClientClosed("closed")
    watch.manager.abandon(error)
    assert failure(future) is error
    request.on_response(committed_response(9, {A0: at(1), A1: at(1)}), 0.0)
    assert (watch.began, watch.refused) == ({}, [])
    assert watch.manager.is_idle


def test_the_end_of_the_client_is_no_partitions_fault():
    watch = Watch()
    watch.want(A0)
    future = watch.question(A1)
    error = ClientClosed("closed")
    watch.request().on_failure(error, 0.0)
    assert failure(future) is error
    assert watch.refused == []


def test_a_group_that_is_refused_elsewhere_ends_questions_and_beginnings_go_on():
    watch = Watch()
    watch.coordinators.node = None
    watch.want(A0)
    future = watch.question(A0)
    error = GroupRefused("not for you")
    watch.manager.refuse_calls(error)
    assert failure(future) is error
    watch.coordinators.node = NodeId(1)
    watch.answer(0.0, {A0: at(4)})
    assert watch.began == {A0: at(4)}
