"""Looking for offsets: for the application and for cursors that lost theirs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from multilane.client.fetch.buffer import Failed, FetchBuffer, Moved
from multilane.client.fetch.cursor import At, Cursor, CursorTable, Lookup, Phase
from multilane.client.fetch.offsets import OffsetQuery, OffsetsManager, PartlyFound
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER, Poll, UnsentRequest
from multilane.errors import (
    BrokerError,
    ClientClosed,
    NetworkError,
    OperationTimeout,
    SaslError,
    UnsupportedVersion,
)
from multilane.types import LeaderEpoch, Offset, OffsetAndTimestamp, TopicPartition
from multilane.wire.compose import EARLIEST, LATEST, MAX_TIMESTAMP
from response_builder import cluster_of, epoch_response, list_offsets_response

P, Q, R = (TopicPartition("t", n) for n in range(3))
VERSION = 10
BACKOFF = RequestBackoff(0.1, 1.0, jitter=0.0)


class Harness:
    def __init__(self, leaders: Mapping[TopicPartition, tuple[int | None, int]] | None = None) -> None:
        self.metadata = MetadataManager(MetadataPolicy(300.0, BACKOFF, 300.0), MetadataListeners())
        self.lead(leaders or {P: (1, 5), Q: (1, 6), R: (2, 7)})
        self.metadata._update_wanted = False
        self.metadata._progress.refreshed_at = 0.0
        self.cursors = CursorTable()
        self.buffer = FetchBuffer(1 << 20, on_ready=lambda: None, on_room=lambda: None)
        self.manager = OffsetsManager(self.metadata, self.cursors, self.buffer, backoff=BACKOFF, read_committed=False)
        self.answers: list[Any] = []

    def lead(self, leaders: Mapping[TopicPartition, tuple[int | None, int]]) -> None:
        self.metadata.cluster = cluster_of(leaders)

    def query(self, wanted: Mapping[TopicPartition, int], deadline: float = 10.0) -> None:
        self.manager.add_query(OffsetQuery(wanted, deadline, lambda found, error: self.answers.append(found or error)))

    def lose(self, *partitions: TopicPartition, timestamp: int = EARLIEST) -> None:
        for partition in partitions:
            self.cursors.put(Cursor(partition, 1, Lookup(timestamp, "test")))
        self.buffer.expect({c.partition: 1 for c in self.cursors})

    def ask(self, now: float = 0.0) -> list[UnsentRequest]:
        return sorted(self.manager.poll(now).requests, key=lambda r: r.node or 0)

    @property
    def wants_metadata(self) -> bool:
        return bool(self.metadata.poll(1.0).requests)


def _wanted(request: UnsentRequest) -> dict[TopicPartition, tuple[int, int]]:
    return {
        TopicPartition(t.name, p.partition_index): (p.timestamp, p.current_leader_epoch)
        for t in request.build(VERSION).topics
        for p in t.partitions
    }


def _answer(request: UnsentRequest, answers: Mapping[TopicPartition, tuple[int, int, int]], now: float = 0.0) -> None:
    request.on_response(list_offsets_response(VERSION, answers), now)


def _found(offset: int, timestamp: int = 1_000) -> OffsetAndTimestamp:
    return OffsetAndTimestamp(Offset(offset), timestamp, LeaderEpoch(4))


# --- for the application ---------------------------------------------------------------------------------------------


def test_a_look_up_is_split_by_leader_and_put_together_again():
    harness = Harness()
    harness.query({P: 1_000, Q: EARLIEST, R: LATEST})
    one, two = harness.ask()
    assert (one.node, _wanted(one)) == (1, {P: (1_000, 5), Q: (EARLIEST, 6)})
    assert (two.node, _wanted(two)) == (2, {R: (LATEST, 7)})
    assert harness.ask() == []
    _answer(two, {R: (0, 1_000, 70)})
    assert harness.answers == []
    _answer(one, {P: (0, 1_000, 10), Q: (0, -1, -1)})
    assert harness.answers == [{P: _found(10), Q: None, R: _found(70)}]
    assert harness.manager.poll(0.0) == Poll((), NEVER)


def test_only_what_failed_is_asked_again():
    harness = Harness()
    harness.query({P: EARLIEST, Q: EARLIEST})
    (request,) = harness.ask()
    _answer(request, {P: (0, 1_000, 10), Q: (6, -1, -1)})
    assert harness.wants_metadata
    assert harness.ask() == []
    harness.lead({P: (1, 5), Q: (2, 8)})
    (request,) = harness.ask(0.1)
    assert (request.node, _wanted(request)) == (2, {Q: (EARLIEST, 8)})
    _answer(request, {Q: (0, 1_000, 20)})
    assert harness.answers == [{P: _found(10), Q: _found(20)}]


def test_ends_of_epochs_are_asked_of_the_leaders():
    harness = Harness()
    done = harness.answers.append
    harness.manager.add_query(OffsetQuery({P: 3, R: 4}, 10.0, lambda found, error: done(found or error), by_epoch=True))
    one, two = harness.ask()
    [topic] = one.build(4).topics
    [asked] = topic.partitions
    assert (one.node, asked.current_leader_epoch, asked.leader_epoch) == (1, 5, 3)
    two.on_response(epoch_response(4, {R: (75, -1, -1)}), 0.0)
    one.on_response(epoch_response(4, {P: (0, 2, 60)}), 0.0)
    assert harness.wants_metadata, "the leader is of another epoch"
    assert not harness.answers
    (two,) = harness.ask(0.2)
    two.on_response(epoch_response(4, {R: (0, -1, -1)}), 0.0)
    assert harness.answers == [{P: OffsetAndTimestamp(Offset(60), -1, LeaderEpoch(2)), R: None}]


def test_what_the_broker_left_out_is_asked_again_later():
    harness = Harness()
    harness.query({P: EARLIEST, Q: EARLIEST})
    (request,) = harness.ask()
    _answer(request, {P: (0, 1_000, 10), R: (0, 1_000, 99)})
    assert harness.ask() == []
    assert harness.manager.poll(0.0).wait == pytest.approx(0.1)
    (request,) = harness.ask(0.1)
    assert set(_wanted(request)) == {Q}
    _answer(request, {Q: (0, 1_000, 20)})
    assert harness.answers == [{P: _found(10), Q: _found(20)}]


def test_what_fails_for_good_fails_the_look_up_once():
    harness = Harness()
    harness.query({P: EARLIEST, Q: EARLIEST, R: EARLIEST})
    one, two = harness.ask()
    _answer(one, {P: (29, -1, -1), Q: (29, -1, -1)})
    _answer(two, {R: (0, 1_000, 1)})
    (error,) = harness.answers
    assert isinstance(error, BrokerError)
    assert error.code == 29
    assert harness.manager.poll(0.0) == Poll((), NEVER)


def test_a_leader_that_is_not_known_is_waited_for():
    harness = Harness({P: (None, 5)})
    harness.query({P: EARLIEST, Q: EARLIEST})
    assert harness.ask() == []
    assert harness.wants_metadata
    assert harness.manager.poll(0.0).wait == pytest.approx(0.1)
    harness.lead({P: (1, 6), Q: (1, 6)})
    (request,) = harness.ask(0.1)
    assert set(_wanted(request)) == {P, Q}


def test_a_lost_connection_is_survived_with_back_off():
    harness = Harness()
    harness.query({P: EARLIEST})
    now = 0.0
    for wait in (0.1, 0.2, 0.4):
        (request,) = harness.ask(now)
        request.on_failure(NetworkError("lost"), now)
        assert harness.ask(now) == []
        now += wait + 1e-9
    (request,) = harness.ask(now)
    _answer(request, {P: (0, 1_000, 10)})
    assert harness.answers == [{P: _found(10)}]


def test_the_deadline_ends_it_with_the_last_reason():
    harness = Harness()
    harness.query({P: EARLIEST, R: EARLIEST}, deadline=3.0)
    one, two = harness.ask()
    assert harness.manager.poll(0.0).wait == pytest.approx(3.0)
    _answer(two, {R: (0, 1_000, 1)})
    one.on_failure(NetworkError("broker 1 is gone"), 2.9)
    harness.manager.poll(3.0)
    (error,) = harness.answers
    assert isinstance(error, OperationTimeout)
    assert isinstance(error, PartlyFound)
    assert set(error.found) == {R}
    assert "t-0" in str(error)
    assert "t-2" not in str(error)
    assert "broker 1 is gone" in str(error)
    _answer(one, {P: (0, 1_000, 10)}, 3.1)
    assert len(harness.answers) == 1


def test_closing_tells_those_who_wait():
    harness = Harness()
    harness.query({P: EARLIEST})
    harness.ask()
    harness.manager.abandon(ClientClosed("bye"))
    assert isinstance(harness.answers[0], ClientClosed)


@pytest.mark.parametrize(("timestamp", "least"), [(MAX_TIMESTAMP, 7), (EARLIEST, 5), (123, 5)])
def test_the_newest_record_needs_a_newer_broker(timestamp, least):
    harness = Harness()
    harness.query({P: timestamp})
    assert harness.ask()[0].at_least == least


# --- for cursors -----------------------------------------------------------------------------------------------------


def test_a_lost_cursor_is_placed_and_the_application_informed():
    harness = Harness()
    harness.lose(P, R)
    one, two = harness.ask()
    assert _wanted(one) == {P: (EARLIEST, 5)}
    assert harness.ask() == []
    _answer(one, {P: (0, -1, 42)})
    cursor = harness.cursors.get(P)
    assert (cursor.phase, cursor.offset, cursor.in_flight) == (Phase.FETCHING, 42, False)
    assert harness.buffer.take(None, ()) == [Moved(P, Offset(42), LeaderEpoch(-1))]
    two.on_failure(NetworkError("lost"), 0.0)
    assert harness.cursors.get(R).phase is Phase.AWAIT_RESET
    assert [r.node for r in harness.ask(0.1)] == [2]


def test_the_end_of_a_log_has_the_epoch_of_its_leader():
    """So that somebody who waits there notices when the log is cut."""
    harness = Harness()
    harness.lose(P, timestamp=LATEST)
    (request,) = harness.ask()
    _answer(request, {P: (0, -1, 42)})
    assert harness.cursors.get(P).epoch == 4
    assert harness.buffer.take(None, ()) == [Moved(P, Offset(42), LeaderEpoch(4))]


def test_no_record_that_late_means_the_end():
    harness = Harness()
    harness.lose(P, timestamp=9_999)
    (request,) = harness.ask()
    _answer(request, {P: (0, -1, -1)})
    (request,) = harness.ask()
    assert _wanted(request) == {P: (LATEST, 5)}
    _answer(request, {P: (0, -1, 50)})
    assert harness.cursors.get(P).offset == 50


def test_a_log_without_an_end_is_not_asked_for_in_a_circle():
    harness = Harness()
    harness.lose(P, timestamp=LATEST)
    _answer(harness.ask()[0], {P: (0, -1, -1)})
    assert harness.ask() == []
    assert harness.ask(0.1)


@pytest.mark.parametrize("code", [3, 5, 6, 74, 75, 78])
def test_errors_that_pass(code):
    harness = Harness()
    harness.lose(P)
    (request,) = harness.ask()
    _answer(request, {P: (code, -1, -1)})
    assert harness.wants_metadata
    assert harness.manager.poll(0.0).wait == pytest.approx(0.1)
    assert harness.ask(0.1)


@pytest.mark.parametrize("error", [29, 43, UnsupportedVersion("old")])
def test_errors_that_do_not_pass_stop_the_partition(error):
    harness = Harness()
    harness.lose(P)
    (request,) = harness.ask()
    if isinstance(error, int):
        _answer(request, {P: (error, -1, -1)})
    else:
        request.on_failure(error, 0.0)
    assert harness.cursors.get(P).phase is Phase.STOPPED
    (failed,) = harness.buffer.take(None, ())
    assert isinstance(failed, Failed)
    assert harness.manager.poll(9.0) == Poll((), NEVER)


def test_a_refused_login_is_tried_again_later():
    harness = Harness()
    harness.lose(P)
    harness.ask()[0].on_failure(SaslError("no"), 0.0)
    assert harness.cursors.get(P).phase is Phase.AWAIT_RESET
    assert harness.ask(0.1)


def test_a_cursor_that_was_left_out_is_asked_again_later():
    harness = Harness()
    harness.lose(P)
    _answer(harness.ask()[0], {})
    assert harness.ask() == []
    assert harness.ask(0.1)


def test_leaderless_cursors_wait_for_a_leader_and_not_a_moment_longer():
    harness = Harness({P: (None, 1)})
    harness.lose(P)
    assert harness.ask() == []
    assert harness.wants_metadata
    assert harness.manager.poll(0.05).wait == NEVER
    harness.metadata.cluster = cluster_of({P: (1, 2)})
    assert harness.ask(0.05)


def test_an_answer_for_a_cursor_that_was_replaced_is_dropped():
    harness = Harness()
    harness.lose(P)
    (request,) = harness.ask()
    harness.cursors.put(Cursor(P, 2, At(Offset(7))))
    _answer(request, {P: (0, -1, 42)})
    assert harness.cursors.get(P).offset == 7
    assert harness.buffer.take(None, ()) == []
