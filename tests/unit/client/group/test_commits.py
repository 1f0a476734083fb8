"""Commits: their order, what each answer means, and what is never sent."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from multilane.client.group.commits import CommitListeners, CommitManager, CommitPolicy
from multilane.client.group.membership import Identity
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import CONTROL, NEVER
from multilane.errors import (
    BrokerError,
    ClientClosed,
    CommitDuringRebalance,
    CommitRefused,
    FrameError,
    GroupRefused,
    InstanceFenced,
    MultilaneError,
    NetworkError,
    OperationTimeout,
    SaslError,
    TooManyCommits,
)
from multilane.metrics.observer import Counts
from multilane.types import LeaderEpoch, NodeId, Offset, OffsetAndMetadata, TopicPartition
from multilane.wire.messages import ApiKey, encode_request
from offset_builder import KnownCoordinators, commit_response
from response_builder import TOPIC_ID, cluster_of

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MEMBER = Identity("g", "member-1", 5, None, "consumer")
IDS = {"a": TOPIC_ID, "b": UUID(int=2)}


def at(offset: int, epoch: int = -1, metadata: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(Offset(offset), LeaderEpoch(epoch), metadata)


class Watch:
    """A manager among answers of the test's choice. By default: a member that owns A0, A1 and B0."""

    def __init__(self, identity: Identity | None = MEMBER, owned: Any = (A0, A1, B0)) -> None:
        self.identity = identity
        self.owned = None if owned is None else frozenset(owned)
        self.cluster = cluster_of({A0: (1, 1), A1: (1, 1), B0: (2, 1)}, ids=IDS)
        self.coordinators = KnownCoordinators()
        self.fenced: list[tuple[MultilaneError, float]] = []
        self.refreshes = 0
        self.counts = Counts()
        self.manager = CommitManager(
            "g",
            self.coordinators,
            CommitPolicy(RequestBackoff(0.1, 1.0, jitter=0.0), timeout=60.0),
            CommitListeners(
                lambda: self.cluster,
                self._refresh,
                lambda: self.identity,
                lambda: self.owned,
                lambda error, now: self.fenced.append((error, now)),
                self.counts,
            ),
        )

    def _refresh(self) -> None:
        self.refreshes += 1

    def commit(self, offsets: Any, now: float = 0.0, deadline: float | None = None) -> Future[None]:
        future: Future[None] = Future()
        self.manager.commit(offsets, future, deadline, now)
        return future

    def request(self, now: float = 0.0) -> Any:
        (request,) = self.manager.poll(now).requests
        return request

    def answer(self, now: float, codes: dict[TopicPartition, int], version: int = 9) -> Any:
        request = self.request(now)
        request.on_response(commit_response(version, codes, IDS), now)
        return request


def sent(request: Any, version: int = 9) -> dict[TopicPartition, int]:
    names = {id_: name for name, id_ in IDS.items()}
    entity = request.build(version)
    assert encode_request(entity, 1, "me")
    return {
        TopicPartition(t.name if version < 10 else names[t.topic_id], p.partition_index): p.committed_offset
        for t in entity.topics
        for p in t.partitions
    }


def failure(future: Future[None]) -> BaseException:
    assert future.done()
    error = future.exception(0)
    assert error is not None
    return error


# --- sending ---------------------------------------------------------------------------------------------------------


def test_a_commit_says_who_commits_what():
    watch = Watch(replace(MEMBER, instance_id="one"))
    future = watch.commit({A0: at(5, 3, "note"), B0: at(7)})
    request = watch.request()
    assert (request.api, request.node, request.channel) == (ApiKey.OFFSET_COMMIT, NodeId(1), CONTROL)
    assert (request.at_least, request.at_most) == (9, None)
    entity = request.build(10)
    assert (entity.group_id, entity.member_id, entity.generation_id_or_member_epoch) == ("g", "member-1", 5)
    assert entity.group_instance_id == "one"
    (first,) = entity.topics[0].partitions
    assert (first.committed_offset, first.committed_leader_epoch, first.committed_metadata) == (5, 3, "note")
    assert sent(request, 10) == {A0: 5, B0: 7}
    assert not future.done()
    request.on_response(commit_response(10, {A0: 0, B0: 0}, IDS), 0.0)
    assert future.result(0) is None
    assert watch.manager.is_idle
    assert watch.manager.poll(1.0).requests == ()
    assert watch.manager.poll(1.0).wait == NEVER


@pytest.mark.parametrize(
    ("identity", "least"),
    [
        (replace(MEMBER, protocol="classic"), 2),
        (replace(MEMBER, protocol="classic", instance_id="one"), 7),
        (MEMBER, 9),
    ],
)
def test_no_version_is_used_that_would_lose_who_commits(identity, least):
    watch = Watch(identity)
    watch.commit({A0: at(1)})
    assert watch.request().at_least == least


def test_a_topic_without_a_known_id_is_named():
    watch = Watch()
    watch.cluster = cluster_of({A0: (1, 1), B0: (1, 1)}, ids={"a": TOPIC_ID, "b": None})
    future = watch.commit({A0: at(1), B0: at(2)})
    request = watch.request()
    assert request.at_most == 9
    request.on_response(commit_response(9, {A0: 0, B0: 0}), 0.0)
    assert future.result(0) is None


def test_partitions_assigned_by_hand_are_committed_in_nobodys_name():
    watch = Watch(identity=None, owned=None)
    future = watch.commit({A0: at(5)})
    entity = watch.request().build(9)
    assert (entity.member_id, entity.generation_id_or_member_epoch, entity.group_instance_id) == ("", -1, None)
    assert not future.done()


def test_an_unknown_coordinator_is_waited_for():
    watch = Watch()
    watch.coordinators.node = None
    watch.commit({A0: at(5)}, deadline=10.0)
    poll = watch.manager.poll(4.0)
    assert (poll.requests, poll.wait) == ((), 6.0)
    assert watch.coordinators.asked == ["g"]
    watch.coordinators.node = NodeId(2)
    assert watch.request(5.0).node == 2


def test_nothing_to_commit_is_done_when_what_came_before_is():
    watch = Watch()
    first, barrier = watch.commit({A0: at(1)}), watch.commit({})
    request = watch.request()
    assert not barrier.done()
    request.on_response(commit_response(9, {A0: 0}), 0.0)
    assert (first.result(0), barrier.result(0)) == (None, None)
    alone = watch.commit({})
    watch.manager.poll(0.0)
    assert alone.result(0) is None


# --- order and coalescing --------------------------------------------------------------------------------------------


def test_only_one_is_under_way_and_what_waits_goes_together_with_the_last_wish():
    watch = Watch()
    done: list[int] = []
    futures = []
    for n, offsets in enumerate([{A0: at(1)}, {A0: at(2), A1: at(20)}, {A0: at(3)}, {B0: at(30)}]):
        future = watch.commit(offsets)
        future.add_done_callback(lambda _, n=n: done.append(n))
        futures.append(future)
        if n == 0:
            first = watch.request()
    assert watch.manager.poll(0.0).requests == ()
    assert sent(first) == {A0: 1}
    first.on_response(commit_response(9, {A0: 0}), 0.0)
    assert done == [0]
    second = watch.request()
    assert sent(second) == {A0: 3, A1: 20, B0: 30}
    second.on_response(commit_response(9, {B0: 0, A1: 0, A0: 0}), 0.0)
    assert done == [0, 1, 2, 3]
    assert [f.result(0) for f in futures] == [None] * 4


def test_going_back_is_possible_for_who_asks_for_it():
    watch = Watch()
    watch.commit({A0: at(100)})
    watch.answer(0.0, {A0: 0})
    watch.commit({A0: at(7)})
    assert sent(watch.request()) == {A0: 7}


def test_a_repeated_commit_does_not_bring_an_older_offset_back():
    watch = Watch()
    first = watch.commit({A0: at(1)})
    request = watch.request()
    second = watch.commit({A0: at(2)})
    request.on_failure(NetworkError("the answer was lost"), 0.0)
    watch.coordinators.node = NodeId(1)
    again = watch.request(0.1)
    assert sent(again) == {A0: 2}
    again.on_response(commit_response(9, {A0: 0}), 0.1)
    assert (first.result(0), second.result(0)) == (None, None)


def test_an_older_call_with_more_time_does_not_outlive_the_newer_offset():
    """The newer one may have been accepted although its answer was lost: the older offset must not follow it."""
    watch = Watch()
    patient = watch.commit({A0: at(1)}, deadline=60.0)
    hasty = watch.commit({A0: at(2)}, deadline=1.0)
    request = watch.request()
    assert sent(request) == {A0: 2}
    request.on_failure(NetworkError("the answer was lost"), 0.5)
    watch.manager.poll(1.0)
    assert isinstance(failure(hasty), OperationTimeout)
    watch.coordinators.node = NodeId(1)
    assert sent(watch.request(2.0)) == {A0: 2}
    assert not patient.done()


def test_a_commit_whose_time_is_over_does_not_wait_for_its_turn():
    watch = Watch()
    first = watch.commit({A0: at(1)}, deadline=60.0)
    request = watch.request()
    second = watch.commit({A1: at(2)}, deadline=5.0)
    assert watch.manager.poll(2.0).wait == 3.0
    watch.manager.poll(5.0)
    assert "a-1" in str(failure(second))
    assert not first.done()
    assert watch.manager.poll(6.0).requests == ()  # what is under way is awaited before anything else is sent
    request.on_response(commit_response(9, {A0: 0}), 6.0)
    assert first.result(0) is None


def test_a_late_answer_to_an_expired_commit_harms_nobody():
    watch = Watch()
    future = watch.commit({A0: at(1)}, deadline=1.0)
    request = watch.request()
    watch.manager.poll(1.0)
    assert isinstance(failure(future), OperationTimeout)
    assert not watch.manager.is_idle
    newer = watch.commit({A0: at(2)}, now=1.0)
    assert watch.manager.poll(1.0).requests == ()
    request.on_response(commit_response(9, {A0: 0}), 2.0)
    assert not newer.done()
    assert sent(watch.request(2.0)) == {A0: 2}


def test_a_commit_that_nobody_waits_for_has_a_deadline_too():
    watch = Watch()
    future = watch.commit({A0: at(1)}, now=10.0)
    watch.request(10.0).on_failure(NetworkError("refused"), 10.0)
    watch.manager.poll(69.9)
    assert not future.done()
    watch.manager.poll(70.0)
    error = failure(future)
    assert isinstance(error, OperationTimeout)
    assert error.retriable
    assert "refused" in str(error)


def test_a_sync_commit_sees_the_async_ones_before_it_failed_first():
    watch = Watch()
    order: list[str] = []
    for name, offsets in (("async", {A0: at(1, metadata="x" * 5000)}), ("sync", {A1: at(2)})):
        watch.commit(offsets).add_done_callback(lambda _, name=name: order.append(name))
    watch.answer(0.0, {A0: 12, A1: 0})
    assert order == ["async", "sync"]


def test_what_is_answered_waits_for_an_earlier_one_that_is_not():
    watch = Watch()
    first, second = watch.commit({A0: at(1)}), watch.commit({A1: at(2)}, deadline=30.0)
    watch.answer(0.0, {A0: 3, A1: 0})
    assert not second.done()
    assert sent(watch.request(0.1)) == {A0: 1}
    watch.manager.poll(30.0)
    assert second.result(0) is None  # its time is over, but it is committed
    assert not first.done()


def test_too_many_are_refused_at_once():
    watch = Watch()
    watch.coordinators.node = None
    waiting = [watch.commit({A0: at(n)}) for n in range(10_000)]
    assert isinstance(failure(watch.commit({A0: at(1)})), TooManyCommits)
    assert not any(f.done() for f in waiting)
    watch.coordinators.node = NodeId(1)
    watch.answer(0.0, {A0: 0})
    assert all(f.result(0) is None for f in waiting)


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "moved"), [(14, False), (15, True), (16, True), (7, True), (13, False), (88, False)])
def test_what_passes_is_tried_again_with_back_off(code, moved):
    watch = Watch()
    future = watch.commit({A0: at(1)})
    now = 0.0
    for wait in (0.1, 0.2, 0.4):
        watch.answer(now, {A0: code})
        assert watch.coordinators.forgotten == ([("g", 1)] if moved else [])
        watch.coordinators.forgotten.clear()
        watch.coordinators.node = NodeId(1)
        assert watch.manager.poll(now).wait == pytest.approx(wait)
        now += wait
    watch.answer(now, {A0: 0})
    assert future.result(0) is None
    assert watch.fenced == []
    watch.commit({A0: at(2)}, now=now)
    assert watch.manager.poll(now).requests != ()  # the trouble is over


@pytest.mark.parametrize("error", [NetworkError("gone"), OperationTimeout("late"), FrameError("odd")])
def test_a_lost_connection_makes_the_coordinator_be_looked_for_anew(error):
    watch = Watch()
    future = watch.commit({A0: at(1)})
    watch.request().on_failure(error, 0.0)
    assert watch.coordinators.forgotten == [("g", 1)]
    assert watch.refreshes == int(error.refresh_metadata)
    watch.coordinators.node = NodeId(2)
    assert watch.manager.poll(0.05).requests == ()
    again = watch.request(0.1)
    assert again.node == 2
    again.on_response(commit_response(9, {A0: 0}), 0.1)
    assert future.result(0) is None


def test_a_partition_left_out_of_the_answer_is_sent_again():
    watch = Watch()
    future = watch.commit({A0: at(1), A1: at(2)})
    watch.answer(0.0, {A0: 0, B0: 0})
    assert not future.done()
    assert sent(watch.request(0.1)) == {A1: 2}


@pytest.mark.parametrize(
    ("code", "hint"), [(12, "offset.metadata.max.bytes"), (29, "grant READ"), (28, "shorten"), (42, "")]
)
def test_the_refusal_of_one_partition_names_it_and_keeps_none_of_the_others_back(code, hint):
    watch = Watch()
    future, other = watch.commit({A0: at(1), A1: at(2)}), watch.commit({B0: at(3)})
    watch.answer(0.0, {A0: 0, A1: code, B0: 0})
    error = failure(future)
    assert isinstance(error, BrokerError)
    assert (error.code, "a-1" in str(error), hint in str(error)) == (code, True, True)
    assert other.result(0) is None
    assert watch.manager.is_idle
    assert watch.fenced == []


def test_several_refusals_are_reported_in_one_error():
    watch = Watch()
    future = watch.commit({A0: at(1), A1: at(2), B0: at(3)})
    watch.answer(0.0, {A0: 29, A1: 0, B0: 29})
    error = failure(future)
    assert "a-0" in str(error)
    assert error.__notes__ == ["not committed either: b-0"]


@pytest.mark.parametrize("code", [3, 100, 103])
def test_a_missing_topic_is_waited_for_some_seconds(code):
    watch = Watch()
    future = watch.commit({A0: at(1)})
    now = 0.0
    while not future.done():
        watch.answer(now, {A0: code})
        assert watch.refreshes > 0
        now += 1.0
        assert now < 10.0
    assert now == 6.0
    assert "a-0" in str(failure(future))
    assert watch.manager.is_idle


def test_a_topic_that_appears_in_time_is_committed():
    watch = Watch()
    future = watch.commit({A0: at(1)})
    watch.answer(0.0, {A0: 3})
    watch.answer(1.0, {A0: 0})
    assert future.result(0) is None


def test_a_rebalance_is_reported_as_one():
    watch = Watch()
    future = watch.commit({A0: at(1)})
    watch.answer(0.0, {A0: 27})
    error = failure(future)
    assert isinstance(error, CommitDuringRebalance)
    assert error.retriable
    assert watch.fenced == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [(25, CommitRefused), (69, CommitRefused), (110, CommitRefused), (82, InstanceFenced)],
)
def test_a_fenced_member_is_reported_and_so_is_its_membership(code, kind):
    watch = Watch()
    future = watch.commit({A0: at(1), A1: at(1)})
    watch.answer(3.0, {A0: code, A1: code})
    error = failure(future)
    assert type(error) is kind
    assert "a-0" in str(error)
    assert watch.fenced == [(error, 3.0)]
    assert watch.manager.is_idle


def test_an_old_generation_is_doubted_and_its_commit_waits_for_the_new_one():
    """The answer of a cooperative member's JoinGroup may be on its way on another connection."""
    watch = Watch()
    future = watch.commit({A0: at(1)}, deadline=20.0)
    watch.answer(3.0, {A0: 22})
    assert [now for _, now in watch.fenced] == [3.0]
    assert not future.done()
    assert watch.manager.poll(4.0).requests == ()
    watch.identity = replace(MEMBER, epoch=6)
    again = watch.request(5.0)
    assert again.build(9).generation_id_or_member_epoch == 6
    again.on_response(commit_response(9, {A0: 0}), 5.0)
    assert future.result(0) is None


def test_an_old_generation_of_a_membership_that_has_ended_is_dropped():
    watch = Watch()
    future = watch.commit({A0: at(1)}, deadline=20.0)
    watch.answer(3.0, {A0: 22})
    watch.identity = None
    assert watch.manager.poll(4.0).requests == ()
    assert isinstance(failure(future), CommitRefused)


@pytest.mark.parametrize("code", [22, 25, 110])
def test_a_fencing_that_meant_an_older_epoch_does_not_end_the_new_one(code):
    watch = Watch()
    future = watch.commit({A0: at(1)})
    request = watch.request()
    watch.identity = replace(MEMBER, epoch=6)
    request.on_response(commit_response(9, {A0: code}), 0.0)
    assert watch.fenced == []
    again = watch.request()
    assert again.build(9).generation_id_or_member_epoch == 6
    again.on_response(commit_response(9, {A0: 0}), 0.0)
    assert future.result(0) is None


def test_a_fencing_of_who_left_already_is_not_reported_again():
    watch = Watch()
    future = watch.commit({A0: at(1)})
    request = watch.request()
    watch.identity = None
    request.on_response(commit_response(9, {A0: 25}), 0.0)
    assert isinstance(failure(future), CommitRefused)
    assert watch.fenced == []


def test_who_commits_by_hand_into_a_group_with_members_learns_why_not():
    watch = Watch(identity=None, owned=None)
    future = watch.commit({A0: at(1)})
    watch.answer(0.0, {A0: 25})
    assert isinstance(failure(future), CommitRefused)
    assert "group.id of their own" in str(failure(future))
    assert watch.fenced == []


def test_a_stale_epoch_waits_for_the_newer_one():
    watch = Watch()
    future = watch.commit({A0: at(1)}, deadline=20.0)
    watch.answer(0.0, {A0: 113})
    poll = watch.manager.poll(5.0)
    assert (poll.requests, poll.wait) == ((), 15.0)
    watch.identity = replace(MEMBER, epoch=6)
    again = watch.request(6.0)
    assert again.build(9).generation_id_or_member_epoch == 6
    again.on_response(commit_response(9, {A0: 0}), 6.0)
    assert future.result(0) is None
    assert watch.fenced == []


def test_a_stale_epoch_is_sent_at_once_with_the_newer_one_that_is_there():
    watch = Watch()
    watch.commit({A0: at(1)})
    request = watch.request()
    watch.identity = replace(MEMBER, epoch=6)
    request.on_response(commit_response(9, {A0: 113}), 0.0)
    assert watch.request().build(9).generation_id_or_member_epoch == 6


def test_a_stale_epoch_without_a_newer_one_ends_with_the_deadline():
    watch = Watch()
    future = watch.commit({A0: at(1)}, deadline=20.0)
    watch.answer(0.0, {A0: 113})
    watch.manager.poll(20.0)
    assert "STALE_MEMBER_EPOCH" in str(failure(future))


@pytest.mark.parametrize("code", [30, 24])
def test_a_refused_group(code):
    watch = Watch()
    future = watch.commit({A0: at(1)})
    watch.answer(0.0, {A0: code})
    error = failure(future)
    assert isinstance(error, GroupRefused)
    assert error.fatal


def test_a_refused_login_ends_the_commit_with_its_reason():
    watch = Watch()
    error = SaslError("wrong password")
    future, waiting = watch.commit({A0: at(1)}), None
    request = watch.request()
    waiting = watch.commit({A1: at(1)})
    request.on_failure(error, 0.0)
    assert failure(future) is error
    assert not waiting.done()


# --- what is never sent ----------------------------------------------------------------------------------------------


def test_what_is_not_owned_is_refused_at_once_and_whole():
    watch = Watch(owned={A0})
    future = watch.commit({A0: at(1), B0: at(2)})
    assert isinstance(failure(future), CommitRefused)
    assert "b-0" in str(failure(future))
    assert "a-0" not in str(failure(future))
    assert watch.manager.is_idle


def test_who_is_no_member_commits_nothing():
    watch = Watch(identity=None)
    assert "not a member" in str(failure(watch.commit({A0: at(1)})))
    assert watch.manager.is_idle


def test_what_is_lost_while_it_waits_is_dropped_and_the_rest_is_sent(caplog):
    watch = Watch()
    watch.coordinators.node = None
    both, kept = watch.commit({A0: at(1), B0: at(2)}), watch.commit({A0: at(3)})
    watch.manager.poll(0.0)
    watch.owned = frozenset({A0})
    watch.manager.poll(0.1)
    watch.coordinators.node = NodeId(1)
    request = watch.request(0.2)
    assert sent(request) == {A0: 3}
    request.on_response(commit_response(9, {A0: 0}), 0.2)
    assert isinstance(failure(both), CommitRefused)
    assert "b-0" in str(failure(both))
    assert kept.result(0) is None
    assert "b-0 was lost" in caplog.text
    assert watch.counts.total("commit.dropped") == 1


def test_what_was_lost_and_came_back_is_not_sent():
    watch = Watch()
    watch.coordinators.node = None
    future = watch.commit({A0: at(1)})
    watch.owned = frozenset()
    watch.manager.poll(0.0)
    assert isinstance(failure(future), CommitRefused)
    watch.owned = frozenset({A0})
    watch.coordinators.node = NodeId(1)
    assert watch.manager.poll(0.0).requests == ()


def test_what_was_owned_only_when_the_commit_was_made_is_not_sent():
    watch = Watch(owned={A0})
    watch.coordinators.node = None
    kept = watch.commit({A0: at(1)})
    watch.manager.poll(0.0)
    watch.owned = frozenset({A0, B0})
    lost = watch.commit({B0: at(1)})
    watch.owned = frozenset({A0})
    watch.manager.poll(0.0)
    watch.coordinators.node = NodeId(1)
    request = watch.request(0.0)
    assert sent(request) == {A0: 1}
    request.on_response(commit_response(9, {A0: 0}), 0.0)
    assert kept.result(0) is None
    assert isinstance(failure(lost), CommitRefused)


def test_what_was_lost_and_came_back_while_under_way_is_not_sent_again():
    watch = Watch()
    old = watch.commit({A0: at(1)})
    request = watch.request()
    watch.owned = frozenset()
    watch.manager.poll(0.0)
    assert not old.done()  # it may have been in time
    watch.owned = frozenset({A0})
    watch.manager.poll(0.0)
    new = watch.commit({A0: at(50)})
    request.on_response(commit_response(9, {A0: 14}), 0.0)
    assert isinstance(failure(old), CommitRefused)
    assert sent(watch.request(0.1)) == {A0: 50}
    assert not new.done()


def test_what_was_in_time_is_reported_as_in_time_even_after_the_partition_went():
    watch = Watch()
    future = watch.commit({A0: at(1)})
    request = watch.request()
    watch.owned = frozenset()
    watch.manager.poll(0.0)
    request.on_response(commit_response(9, {A0: 0}), 0.0)
    assert future.result(0) is None


def test_losing_can_be_reported_before_ownership_says_so():
    watch = Watch()
    watch.coordinators.node = None
    lost, kept = watch.commit({A0: at(1)}), watch.commit({A1: at(1)})
    watch.manager.lose({A0})
    assert isinstance(failure(lost), CommitRefused)
    assert not kept.done()


@pytest.mark.parametrize("later", [None, replace(MEMBER, member_id="member-2")])
def test_a_zombies_commits_are_dropped(later):
    watch = Watch()
    future = watch.commit({A0: at(1)})
    watch.request().on_failure(NetworkError("stopped for a while"), 0.0)
    watch.coordinators.node = NodeId(1)
    watch.identity = later
    assert watch.manager.poll(30.0).requests == ()
    assert "membership that has ended" in str(failure(future))


def test_a_members_commit_is_not_sent_in_nobodys_name_after_it_left():
    watch = Watch()
    watch.coordinators.node = None
    future = watch.commit({A0: at(1)})
    watch.identity, watch.owned = None, None
    watch.coordinators.node = NodeId(1)
    assert watch.manager.poll(0.0).requests == ()
    assert isinstance(failure(future), CommitRefused)


def test_offsets_of_a_deleted_topic_are_not_committed_for_the_one_made_anew():
    watch = Watch()
    watch.coordinators.node = None
    nameless = watch.cluster
    watch.cluster = cluster_of({B0: (1, 1)}, ids=IDS)
    before = watch.commit({A0: at(90)})  # its topic's id was not known
    watch.cluster = nameless
    old = watch.commit({A0: at(100), B0: at(1)})
    watch.manager.poll(0.0)
    watch.cluster = cluster_of({A0: (1, 1), B0: (1, 1)}, ids={**IDS, "a": UUID(int=77)})
    watch.coordinators.node = NodeId(1)
    request = watch.request(0.1)
    assert sent(request) == {B0: 1}
    request.on_response(commit_response(9, {B0: 0}), 0.1)
    assert "recreated" in str(failure(old))
    assert "recreated" in str(failure(before))
    fresh = watch.commit({A0: at(0)}, now=0.2)
    assert watch.request(0.2).build(10).topics[0].topic_id == UUID(int=77)
    assert not fresh.done()


def test_offsets_that_name_their_topic_are_never_committed_for_another():
    """Who commits may not know yet that it was made again, and the picture of the cluster may know already."""
    watch = Watch()
    old, new = IDS["a"], UUID(int=77)
    watch.cluster = cluster_of({A0: (1, 1), A1: (1, 1), B0: (1, 1)}, ids={**IDS, "a": new})
    kept = watch.commit({A1: replace(at(3), topic_id=new)})
    late = watch.commit({A0: replace(at(90), topic_id=old), A1: replace(at(80), topic_id=old), B0: at(1)})
    request = watch.request()
    assert sent(request, 9) == {A1: 3, B0: 1}
    assert {t.topic_id for t in request.build(10).topics} == {new, IDS["b"]}
    request.on_response(commit_response(9, {A1: 0, B0: 0}), 0.0)
    assert kept.result(0) is None
    assert "recreated" in str(failure(late))
    assert watch.refreshes == 1


def test_offsets_that_name_their_topic_wait_for_it_by_its_id():
    """While it is deleted its name is nobody's: whoever makes it again has it next."""
    watch = Watch()
    watch.cluster = cluster_of({B0: (1, 1)}, ids=IDS)
    watch.commit({A0: replace(at(90), topic_id=IDS["a"])})
    assert watch.request().build(10).topics[0].topic_id == IDS["a"]


# --- the end ---------------------------------------------------------------------------------------------------------


def test_abandoning_completes_every_future_once():
    watch = Watch()
    first = watch.commit({A0: at(1)})
    request = watch.request()
    second = watch.commit({A1: at(1)})
    error = ClientClosed("closed")
    watch.manager.abandon(error)
    assert (failure(first), failure(second)) == (error, error)
    assert not watch.manager.is_idle
    request.on_response(commit_response(9, {A0: 0}), 0.0)
    assert watch.manager.is_idle
    assert watch.manager.poll(0.0).requests == ()


def test_a_caller_who_gave_up_harms_nobody():
    watch = Watch()
    given_up, other = watch.commit({A0: at(1)}), watch.commit({A1: at(2)})
    given_up.cancel()
    watch.answer(0.0, {A0: 0, A1: 0})
    assert other.result(0) is None


@pytest.mark.parametrize("version", range(2, 11))
def test_every_version_of_the_answer_is_understood(version):
    watch = Watch()
    good, bad = watch.commit({A0: at(1)}), watch.commit({B0: at(2)})
    watch.answer(0.0, {A0: 0, B0: 29}, version)
    assert good.result(0) is None
    assert "b-0" in str(failure(bad))
