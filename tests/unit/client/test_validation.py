"""Asking a new leader whether it has what we have read."""

from __future__ import annotations

from typing import Any

import pytest

from multilane.client.fetch.cursor import At, Cursor, CursorTable, Lookup, Phase
from multilane.client.fetch.validation import Truncation, ValidationManager
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER, Poll, UnsentRequest
from multilane.errors import BrokerError, MultilaneError, NetworkError, UnsupportedVersion
from multilane.types import LeaderEpoch, Offset, TopicPartition
from multilane.wire.compose import EARLIEST
from response_builder import cluster_of, epoch_response

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
VERSION = 4
BACKOFF = RequestBackoff(0.1, 1.0, jitter=0.0)


class Harness:
    def __init__(self, epoch: int = 3, known: int = 5, leader: tuple[int | None, int] = (2, 6)) -> None:
        self.metadata = MetadataManager(MetadataPolicy(300.0, BACKOFF, 300.0), MetadataListeners())
        self.metadata.cluster = cluster_of({P: leader, Q: (1, 5)})
        self.metadata._update_wanted = False
        self.metadata._progress.refreshed_at = 0.0
        self.cursors = CursorTable()
        self.cursor = Cursor(P, 1, At(Offset(50), LeaderEpoch(epoch)))
        self.cursor.leader_epoch = LeaderEpoch(known)
        self.cursors.put(self.cursor)
        self.truncations: list[Truncation] = []
        self.refused: list[MultilaneError] = []
        self.manager = ValidationManager(
            self.metadata,
            self.cursors,
            backoff=BACKOFF,
            on_truncation=self.truncations.append,
            on_refused=lambda _cursor, error: self.refused.append(error),
        )

    def ask(self, now: float = 0.0) -> UnsentRequest:
        (request,) = self.manager.poll(now).requests
        return request

    def answer(self, request: UnsentRequest, code: int = 0, epoch: int = 3, end: int = 50) -> None:
        request.on_response(epoch_response(VERSION, {P: (code, epoch, end)}), 0.0)


def _asked(request: UnsentRequest) -> list[tuple[Any, ...]]:
    return [
        (t.topic, p.partition, p.current_leader_epoch, p.leader_epoch)
        for t in request.build(VERSION).topics
        for p in t.partitions
    ]


def test_a_new_leader_is_asked_before_it_is_read():
    harness = Harness()
    request = harness.ask()
    assert (request.node, request.at_least, _asked(request)) == (2, 3, [("t", 0, 6, 3)])
    assert harness.cursor.phase is Phase.AWAIT_VALIDATION
    assert harness.manager.poll(0.0) == Poll((), NEVER)
    harness.answer(request)
    assert (harness.cursor.phase, harness.cursor.leader_epoch, harness.cursor.offset) == (Phase.FETCHING, 6, 50)
    assert harness.manager.poll(0.0) == Poll((), NEVER)


def test_a_leader_whose_epoch_goes_further_than_we_read_is_fine():
    harness = Harness()
    harness.answer(harness.ask(), end=90)
    assert harness.cursor.phase is Phase.FETCHING
    assert harness.truncations == []


@pytest.mark.parametrize(
    ("epoch", "known", "leader", "expected"),
    [(3, 6, (2, 6), 6), (-1, 5, (2, 6), 6), (6, 5, (2, 6), 6), (3, 7, (2, 6), 7)],
    ids=["same leader", "nothing read yet", "read under this leader", "older than known"],
)
def test_when_there_is_nothing_to_ask(epoch, known, leader, expected):
    harness = Harness(epoch, known, leader)
    assert harness.manager.poll(0.0) == Poll((), NEVER)
    assert (harness.cursor.phase, harness.cursor.leader_epoch) == (Phase.FETCHING, expected)


def test_a_fetch_under_way_is_awaited_first():
    harness = Harness()
    harness.cursor.in_flight = True
    assert harness.manager.poll(0.0).requests == ()
    assert harness.cursor.phase is Phase.FETCHING
    harness.cursor.in_flight = False
    harness.ask()


def test_a_log_that_was_cut_is_reported_with_the_point_of_divergence():
    harness = Harness()
    harness.answer(harness.ask(), epoch=2, end=30)
    assert harness.truncations == [Truncation(harness.cursor, At(Offset(30), LeaderEpoch(2)))]


@pytest.mark.parametrize(("epoch", "end"), [(-1, -1), (-1, 60), (3, -1)])
def test_a_leader_that_does_not_know_our_epoch(epoch, end):
    harness = Harness()
    harness.answer(harness.ask(), epoch=epoch, end=end)
    assert harness.truncations == [Truncation(harness.cursor, None)]


@pytest.mark.parametrize("code", [3, 6, 74, 75, 78])
def test_errors_that_pass_are_asked_again_later(code):
    harness = Harness()
    harness.answer(harness.ask(), code=code)
    assert harness.metadata.poll(0.0).requests
    assert harness.manager.poll(0.0).wait == pytest.approx(0.1)
    harness.ask(0.1)


def test_a_lost_connection_and_an_answer_without_the_partition_are_asked_again():
    harness = Harness()
    harness.ask().on_failure(NetworkError("lost"), 0.0)
    request = harness.ask(0.1)
    request.on_response(epoch_response(VERSION, {}), 0.1)
    assert harness.manager.poll(0.1).requests == ()
    harness.ask(0.4)


def test_errors_that_do_not_pass_are_reported():
    harness = Harness()
    harness.answer(harness.ask(), code=29)
    (error,) = harness.refused
    assert isinstance(error, BrokerError)


def test_a_broker_that_cannot_be_asked_is_trusted():
    harness = Harness()
    harness.ask().on_failure(UnsupportedVersion("old"), 0.0)
    assert (harness.cursor.phase, harness.cursor.leader_epoch) == (Phase.FETCHING, 6)


def test_a_leader_that_is_gone_again_is_waited_for():
    harness = Harness()
    harness.cursor.to(Phase.AWAIT_VALIDATION)
    harness.metadata.cluster = cluster_of({P: (None, 6)})
    assert harness.manager.poll(0.0) == Poll((), pytest.approx(0.1))
    assert harness.metadata.poll(0.0).requests


def test_an_answer_that_comes_too_late_changes_nothing():
    harness = Harness()
    request = harness.ask()
    harness.cursor.lost(Lookup(EARLIEST, "test"))
    harness.answer(request, epoch=2, end=30)
    assert harness.truncations == []
    assert harness.cursor.phase is Phase.AWAIT_RESET
    assert not harness.cursor.in_flight
