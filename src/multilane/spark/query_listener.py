"""Hears what Spark's streaming queries tell of themselves, and passes it on to an observer and to the log.

Thread: Spark's, which call it; `queries` and `hear_out` from any. A condition guards what is known.

An observer adds up, so it is told what can be added: batches, rows, seconds. The rates of the last batch are in
`queries`. Whatever goes wrong in here is logged and never reaches the query.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyspark.sql.streaming.listener import StreamingQueryListener

from multilane.clock import Clock, SystemClock
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.spark.reasons import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logger(__name__)

STARTED, RUNNING, IDLE, ENDED, FAILED = "started", "running", "idle", "ended", "failed"
TELL_EVERY: Final = 10.0  # seconds
_LAST_WORDS: Final = 2.0  # seconds: Spark tells of an end after it
_MOST_KNOWN: Final = 1_000  # queries that have ended are forgotten beyond that

Event = TypeVar("Event")


@dataclass(frozen=True, slots=True)
class QueryState:
    """Where a query is, and its last batch; rates are rows a second."""

    name: str
    state: str = STARTED
    batch: int | None = None
    rows: int = 0
    seconds: float = 0.0
    input_rate: float = 0.0
    processed_rate: float = 0.0
    reason: str = ""  # of a failure


def _harmless(hear: Callable[[QueryListener, Event], None]) -> Callable[[QueryListener, Event], None]:
    @wraps(hear)
    def heard(self: QueryListener, event: Event) -> None:
        try:
            hear(self, event)
        except Exception:
            log.exception("an event of a query could not be passed on")

    return heard


class QueryListener(StreamingQueryListener):
    """
    >>> spark.streams.addListener(QueryListener(observer))
    """

    def __init__(
        self, observer: Observer = NO_OBSERVER, *, tell_every: float | None = TELL_EVERY, clock: Clock | None = None
    ) -> None:
        """The log is told of a batch every so many seconds; None: never."""
        self._observer = observer
        self._tell_every = tell_every
        self._clock = clock or SystemClock()
        self._condition = threading.Condition()
        self._queries: dict[str, QueryState] = {}  # by the id of a run
        self._told_at: dict[str, float] = {}

    @property
    def queries(self) -> dict[str, QueryState]:
        """All that it has heard of, by the id of their run."""
        with self._condition:
            return dict(self._queries)

    def hear_out(self, active: Collection[str], timeout: float) -> bool:
        """Waits for the end of every query but the active ones, which are named by the ids of their runs."""
        with self._condition:
            return self._condition.wait_for(lambda: self._open() <= set(active), timeout)

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    @_harmless
    def onQueryStarted(self, event: Any) -> None:
        known = self._know(event, STARTED, event.name)
        log.info("query %s has started", known.name)
        self._count("started", known)

    @_harmless
    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        known = self._know(
            progress,
            RUNNING,
            progress.name,
            batch=progress.batchId,
            rows=progress.numInputRows or 0,
            seconds=progress.batchDuration / 1_000,
            input_rate=_finite(progress.inputRowsPerSecond),
            processed_rate=_finite(progress.processedRowsPerSecond),
        )
        log.log(logging.INFO if self._is_due(str(progress.runId)) else logging.DEBUG, "%s", _told(known))
        self._count("batches", known)
        self._count("rows", known, known.rows)
        self._count("batch.seconds", known, known.seconds)

    @_harmless
    def onQueryIdle(self, event: Any) -> None:
        known = self._know(event, IDLE)
        log.debug("query %s is idle", known.name)
        self._count("idle", known)

    @_harmless
    def onQueryTerminated(self, event: Any) -> None:
        if event.exception is None:
            known = self._know(event, ENDED)
            log.info("query %s has ended", known.name)
            self._count("ended", known)
            return
        known = self._know(event, FAILED, reason=reason(RuntimeError(event.exception)))
        log.warning("query %s has failed: %s", known.name, known.reason)
        self._count("failed", known, error=event.errorClassOnException or "unknown")

    # --- what is known -----------------------------------------------------------------------------------------------

    def _know(self, event: Any, state: str, name: str | None = None, **more: Any) -> QueryState:
        """One that was started before this listened has a name when it has told it; without any it is its id."""
        run = str(event.runId)
        with self._condition:
            before = self._queries.pop(run, None) or QueryState(name or str(event.id))
            known = self._queries[run] = replace(before, name=name or before.name, state=state, **more)
            if len(self._queries) > _MOST_KNOWN:
                self._forget()
            self._condition.notify_all()
        return known

    def _forget(self) -> None:
        """The one that ended first."""
        gone = next((run for run, query in self._queries.items() if query.state in (ENDED, FAILED)), None)
        if gone is not None:
            del self._queries[gone]
            self._told_at.pop(gone, None)

    def _open(self) -> set[str]:
        return {run for run, query in self._queries.items() if query.state not in (ENDED, FAILED)}

    def _is_due(self, run: str) -> bool:
        if self._tell_every is None:
            return False
        now = self._clock.monotonic()
        if now - self._told_at.get(run, -math.inf) < self._tell_every:
            return False
        self._told_at[run] = now
        return True

    def _count(self, name: str, query: QueryState, value: float = 1, **labels: str) -> None:
        self._observer.count(f"spark.query.{name}", value, query=query.name, **labels)


@contextmanager
def listening(
    spark: SparkSession, observer: Observer = NO_OBSERVER, *, tell_every: float | None = TELL_EVERY
) -> Iterator[QueryListener]:
    """A listener for all queries of a session; it is removed at the end, when it has heard of those that ended.

    >>> with listening(spark, observer):
    ...     orders.writeStream.format("console").queryName("orders").start().awaitTermination()
    """
    listener = QueryListener(observer, tell_every=tell_every)
    is_added = _is_done("added", lambda: spark.streams.addListener(listener), logging.WARNING)
    try:
        yield listener
    finally:
        if is_added:
            _is_done("heard out", lambda: _hear_out(spark, listener))
            _is_done("removed", lambda: spark.streams.removeListener(listener))


def _hear_out(spark: SparkSession, listener: QueryListener) -> None:
    listener.hear_out({str(query.runId) for query in spark.streams.active}, _LAST_WORDS)


def _is_done(what: str, do: Callable[[], object], level: int = logging.DEBUG) -> bool:
    """Spark may be gone: then there is nobody to listen to, and whoever runs the query tells it."""
    try:
        do()
    except Exception as error:  # noqa: BLE001 - whatever Spark raises, the query goes on
        log.log(level, "the listener of queries could not be %s: %s", what, reason(error))
        return False
    return True


def _told(query: QueryState) -> str:
    rates = f"{query.input_rate:,.0f}/s came, {query.processed_rate:,.0f}/s were processed"
    return f"query {query.name}: batch {query.batch} had {query.rows:,} rows and took {query.seconds:.1f} s; {rates}"


def _finite(rate: float | None) -> float:
    """Spark divides by times that may be nothing."""
    return rate if rate is not None and math.isfinite(rate) else 0.0
