"""Whom a conductor listens to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from multilane.client.group.membership import Identity
from multilane.spark.batches.board import LoanTerms
from multilane.spark.batches.conductor import Conductor
from multilane.spark.batches.keeper import KeeperPlan

PLAN = KeeperPlan("r1", "", "", "shop:app", "/", "/", 2, LoanTerms(), "127.0.0.1", "127.0.0.1", "INFO", "token")


class Line:
    def send(self, kind, **fields):
        pass


def test_the_keeper_of_a_query_that_has_failed_does_not_speak_for_the_next_one():
    """It takes seconds to leave its groups, and by then there is another."""
    conductor, former, current = Conductor(), Line(), Line()
    conductor._drain_seconds = 60.0
    conductor._on_line(former)
    conductor._on_line(current)
    conductor._on_message(former, {"kind": "failed", "error": "gone", "is_refused": True})
    assert conductor._failure is None
    conductor._drain()
    conductor._on_message(former, {"kind": "ended"})
    assert not conductor._is_over
    conductor._on_message(current, {"kind": "ended"})
    assert conductor._is_over


@pytest.fixture
def running():
    """A conductor with a query that runs."""
    conductor = Conductor()
    conductor._drain_seconds, conductor._plan = 60.0, PLAN
    conductor._query = SimpleNamespace(stops=0)
    conductor._query.stop = lambda query=conductor._query: setattr(query, "stops", query.stops + 1)
    conductor._start_at = None
    return conductor


def test_the_members_of_a_keeper_that_died_are_told_to_the_next_one(running, caplog):
    line, query = Line(), running._query
    running._on_line(line)
    running._on_message(line, {"kind": "beat", "members": [["Orders", "shop", "m-1", 3, None, "consumer"]]})
    running._on_unheard(line)
    assert running._plan.former == (("Orders", Identity("shop", "m-1", 3, None, "consumer")),)
    running._on_ended(query, RuntimeError("java.io.EOFException"))
    assert "started again in 1 s: its process has died" in caplog.text


def test_a_query_whose_process_died_is_stopped_if_it_does_not_end(running):
    line, query = Line(), running._query
    running._on_line(line)
    running._on_unheard(line)
    running._look_at_the_clock()
    assert query.stops == 0, "its tasks end by themselves first: their processes are used again"
    running._stop_at = 0.0
    running._look_at_the_clock()
    assert query.stops == 1


@pytest.mark.parametrize("is_next_running", [False, True])
def test_the_process_of_a_query_that_has_failed_does_not_end_the_next_one(running, is_next_running, caplog):
    """When tasks fail the query ends first, and its process takes its time to leave the groups."""
    line, query = Line(), running._query
    running._on_line(line)
    running._on_ended(query, RuntimeError("Job aborted: Task 0 failed 4 times"))
    later = SimpleNamespace(stop=lambda: pytest.fail("the next query is stopped"))
    running._query = later if is_next_running else None
    running._on_unheard(line)
    running._query, running._start_at = later, None
    assert running._stop_at is None
    running._look_at_the_clock()
    running._on_ended(later, RuntimeError("something else"))
    assert "its process has died" not in caplog.text


def test_a_stop_in_order_is_no_death(running):
    line = Line()
    running._on_line(line)
    running._drain()
    running._on_unheard(line)
    assert running._is_over
    assert running._plan.former == ()
