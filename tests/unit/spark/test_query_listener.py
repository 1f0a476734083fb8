"""What queries tell of themselves, without Spark: events as it would give them."""

from __future__ import annotations

import logging
import threading
import uuid
from types import SimpleNamespace

import pytest
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryProgress,
)

from multilane.clock import ManualClock
from multilane.metrics.observer import Counts
from multilane.spark import query_listener
from multilane.spark.query_listener import ENDED, FAILED, IDLE, RUNNING, STARTED, QueryListener, QueryStatus, listening

ID, RUN = uuid.UUID(int=1), uuid.UUID(int=2)
WHEN = "2026-01-01T00:00:00.000Z"
PYTHON_FAILED = """org.apache.spark.SparkException: Job aborted due to stage failure
Traceback (most recent call last):
  File "shop.py", line 3, in index
ValueError: no such order
\tat org.apache.spark.api.python.BasePythonRunner"""


def started(name: str | None = "orders", run: uuid.UUID = RUN) -> QueryStartedEvent:
    return QueryStartedEvent(ID, run, name, WHEN, set())


def progress(batch: int = 0, rows: int = 100, run: uuid.UUID = RUN, **more) -> QueryProgressEvent:
    told = {
        "id": str(ID),
        "runId": str(run),
        "name": "orders",
        "timestamp": WHEN,
        "batchId": batch,
        "batchDuration": 2_500,
        "stateOperators": [],
        "sources": [],
        "sink": {"description": "noop", "numOutputRows": -1},
        "numInputRows": rows,
        "inputRowsPerSecond": 50.0,
        "processedRowsPerSecond": 40.0,
    }
    return QueryProgressEvent(StreamingQueryProgress.fromJson(told | more))


def ended(exception: str | None = None, kind: str | None = None, run: uuid.UUID = RUN) -> QueryTerminatedEvent:
    return QueryTerminatedEvent(ID, run, exception, kind)


def test_a_query_from_its_start_to_its_end(caplog):
    caplog.set_level(logging.INFO)
    counts, clock = Counts(), ManualClock()
    listener = QueryListener(counts, clock=clock)
    listener.onQueryStarted(started())
    assert listener.queries == {str(RUN): QueryStatus("orders", STARTED)}
    for batch in range(3):
        listener.onQueryProgress(progress(batch))
        clock.advance(6.0)
    assert listener.queries[str(RUN)] == QueryStatus("orders", RUNNING, 2, 100, 2.5, 50.0, 40.0)
    listener.onQueryIdle(QueryIdleEvent(ID, RUN, WHEN))
    assert listener.queries[str(RUN)].state == IDLE
    listener.onQueryTerminated(ended())
    assert listener.queries[str(RUN)].state == ENDED
    assert counts.snapshot() == {
        "spark.query.started": 1,
        "spark.query.batches": 3,
        "spark.query.rows": 300,
        "spark.query.batch.seconds": 7.5,
        "spark.query.idle": 1,
        "spark.query.ended": 1,
    }
    assert counts.by("query", "spark.query.rows") == {"orders": 300}
    batch = "query orders: batch %d had 100 rows and took 2.5 s; 50/s arrived, 40/s processed"
    assert caplog.messages == [
        "query orders started",
        batch % 0,
        batch % 2,  # every ten seconds
        "query orders ended",
    ]


def test_batches_are_reported_to_the_log_only_where_they_are_wanted(caplog):
    caplog.set_level(logging.INFO)
    listener = QueryListener(log_every=None)
    listener.onQueryProgress(progress())
    assert caplog.messages == []


def test_a_failure_is_reported_by_its_own_line(caplog):
    counts = Counts()
    listener = QueryListener(counts)
    listener.onQueryStarted(started())
    listener.onQueryTerminated(ended(PYTHON_FAILED, "STREAM_FAILED"))
    assert listener.queries[str(RUN)] == QueryStatus("orders", FAILED, reason="ValueError: no such order")
    assert counts.by("error", "spark.query.failed") == {"STREAM_FAILED": 1}
    assert [(r.levelname, r.message) for r in caplog.records if r.levelno >= logging.WARNING] == [
        ("WARNING", "query orders failed: ValueError: no such order")
    ]
    listener.onQueryTerminated(ended("gone", run=uuid.UUID(int=9)))
    assert counts.by("error", "spark.query.failed") == {"STREAM_FAILED": 1, "unknown": 1}


def test_a_query_without_a_name_is_its_id_until_it_has_reported_one():
    listener = QueryListener()
    listener.onQueryStarted(started(None))
    assert listener.queries[str(RUN)].name == str(ID)
    listener.onQueryProgress(progress())
    listener.onQueryIdle(QueryIdleEvent(ID, RUN, WHEN))
    assert listener.queries[str(RUN)].name == "orders"


def test_rates_that_are_no_numbers_are_none():
    listener = QueryListener()
    listener.onQueryProgress(progress(inputRowsPerSecond=float("nan"), processedRowsPerSecond=float("inf")))
    known = listener.queries[str(RUN)]
    assert (known.input_rate, known.processed_rate) == (0.0, 0.0)


def test_an_observer_that_fails_harms_nobody(caplog):
    class Broken:
        def count(self, name, value=1, **labels):
            raise RuntimeError("no disk")

    listener = QueryListener(Broken())
    for hear, event in (
        (listener.onQueryStarted, started()),
        (listener.onQueryProgress, progress()),
        (listener.onQueryIdle, QueryIdleEvent(ID, RUN, WHEN)),
        (listener.onQueryTerminated, ended()),
        (listener.onQueryProgress, object()),
    ):
        hear(event)
    assert caplog.text.count("cannot pass on an event of a query") == 5
    assert listener.queries[str(RUN)].state == ENDED, "what is known does not rest on it"


def test_queries_that_ended_are_forgotten_in_the_end(monkeypatch):
    monkeypatch.setattr(query_listener, "_MOST_QUERIES", 3)
    listener = QueryListener()
    runs = [uuid.UUID(int=n) for n in range(10, 16)]
    for run in runs:
        listener.onQueryStarted(started(run=run))
    assert len(listener.queries) == 6, "none of those that run"
    for run in runs:
        listener.onQueryTerminated(ended(run=run))
    listener.onQueryStarted(started())
    assert str(RUN) in listener.queries
    assert str(runs[0]) not in listener.queries


# --- for a while -----------------------------------------------------------------------------------------------------


class Streams:
    """Spark's manager of queries, as far as it is used."""

    def __init__(self) -> None:
        self.active, self.listeners = [], []

    def addListener(self, listener):
        self.listeners.append(listener)

    def removeListener(self, listener):
        self.listeners.remove(listener)


def test_it_is_removed_when_it_has_heard_of_the_end():
    streams, counts = Streams(), Counts()
    with listening(SimpleNamespace(streams=streams), counts) as listener:
        assert streams.listeners == [listener]
        listener.onQueryStarted(started())
        other = uuid.UUID(int=7)
        listener.onQueryStarted(started("goes on", other))
        streams.active = [SimpleNamespace(runId=str(other))]
        threading.Thread(target=listener.onQueryTerminated, args=(ended(),)).start()
    assert streams.listeners == []
    assert counts.total("spark.query.ended") == 1


def test_who_cannot_listen_lets_the_query_go_on(caplog):
    class Gone:
        @property
        def streams(self):
            raise ConnectionRefusedError("Spark is gone")

    ran = []
    with listening(Gone()):
        ran.append(1)
    assert ran == [1]
    assert caplog.messages == ["cannot add the query listener: Spark is gone"]
    with pytest.raises(ValueError, match="of the query"), listening(Gone()):
        raise ValueError("of the query")
