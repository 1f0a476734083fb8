"""Which coordinator a query supervisor listens to."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from multilane.client.group.membership import Identity
from multilane.engines.batches.driver import QuerySupervisor
from multilane.engines.batches.lease_coordinator import CoordinatorSpec
from multilane.engines.batches.lease_table import LeaseTerms
from multilane.engines.batches.states import QueryState

PLAN = CoordinatorSpec("r1", "", "", "shop:app", "/", "/", 2, LeaseTerms(), "127.0.0.1", "127.0.0.1", "INFO", "token")


class Channel:
    def send(self, kind, **fields):
        pass


def test_messages_of_a_failed_querys_coordinator_are_ignored():
    """It takes seconds to leave its groups, and by then the next one has connected."""
    query_supervisor, former, current = QuerySupervisor(), Channel(), Channel()
    query_supervisor._drain_seconds = 60.0
    query_supervisor._on_connect(former)
    query_supervisor._on_connect(current)
    query_supervisor._on_message(former, {"kind": "failed", "error": "gone", "is_refused": True})
    assert query_supervisor._failure is None
    query_supervisor._drain()
    query_supervisor._on_message(former, {"kind": "ended"})
    assert query_supervisor._state is not QueryState.OVER
    query_supervisor._on_message(current, {"kind": "ended"})
    assert query_supervisor._state is QueryState.OVER


@pytest.fixture
def running():
    """A query supervisor whose query runs."""
    query_supervisor = QuerySupervisor()
    query_supervisor._drain_seconds, query_supervisor._spec = 60.0, PLAN
    query_supervisor._query = SimpleNamespace(stops=0)
    query_supervisor._query.stop = lambda query=query_supervisor._query: setattr(query, "stops", query.stops + 1)
    query_supervisor._start_at, query_supervisor._state = None, QueryState.RUNNING
    return query_supervisor


def test_the_members_of_a_coordinator_that_died_are_passed_to_the_next_one(running, caplog):
    channel, query = Channel(), running._query
    running._on_connect(channel)
    running._on_message(channel, {"kind": "beat", "members": [["Orders", "shop", "m-1", 3, None, "consumer"]]})
    running._on_disconnect(channel)
    assert running._spec.former == (("Orders", Identity("shop", "m-1", 3, None, "consumer")),)
    running._on_ended(query, RuntimeError("java.io.EOFException"))
    assert "restarting it in 1 s: the query process died" in caplog.text


def test_a_query_whose_process_died_is_stopped_if_it_does_not_end(running):
    channel, query = Channel(), running._query
    running._on_connect(channel)
    running._on_disconnect(channel)
    running._check_timers()
    assert query.stops == 0, "its tasks end by themselves first: their processes are used again"
    running._stop_at = 0.0
    running._check_timers()
    assert query.stops == 1


@pytest.mark.parametrize("is_next_running", [False, True])
def test_the_process_of_a_query_that_has_failed_does_not_end_the_next_one(running, is_next_running, caplog):
    """When tasks fail the query ends first, and its process takes its time to leave the groups."""
    channel, query = Channel(), running._query
    running._on_connect(channel)
    running._on_ended(query, RuntimeError("Job aborted: Task 0 failed 4 times"))
    later = SimpleNamespace(stop=lambda: pytest.fail("the next query is stopped"))
    if is_next_running:
        running._query, running._state = later, QueryState.RUNNING
    running._on_disconnect(channel)
    running._query, running._start_at, running._state = later, None, QueryState.RUNNING
    assert running._stop_at is None
    running._check_timers()
    running._on_ended(later, RuntimeError("something else"))
    assert "the query process died" not in caplog.text


def test_a_stop_in_order_is_no_death(running):
    channel = Channel()
    running._on_connect(channel)
    running._drain()
    running._on_disconnect(channel)
    assert running._state is QueryState.OVER
    assert running._spec.former == ()
