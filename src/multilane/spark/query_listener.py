"""Receives the events of Spark's streaming queries and passes them on to an observer and to the log.

Thread: Spark's listener threads; `queries` and `wait_for_ends` from any. A condition guards the query states.

An observer adds up, so it gets counts that can be added: batches, rows, seconds. The rates of the last batch are in
`queries`. An error in the listener is logged and never reaches the query.
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
DEFAULT_LOG_EVERY: Final = 10.0  # seconds
_END_TIMEOUT: Final = 2.0  # seconds: Spark reports the end of a query after the query has ended
_MOST_QUERIES: Final = 1_000  # beyond that, queries that have ended are removed

QueryEvent = TypeVar("QueryEvent")


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """The state of a query and its last batch; rates are rows per second."""

    name: str
    state: str = STARTED
    batch: int | None = None
    rows: int = 0
    seconds: float = 0.0
    input_rate: float = 0.0
    processed_rate: float = 0.0
    reason: str = ""  # why it failed


def _harmless(
    handle: Callable[[QueryListener, QueryEvent], None],
) -> Callable[[QueryListener, QueryEvent], None]:
    @wraps(handle)
    def handled(self: QueryListener, event: QueryEvent) -> None:
        try:
            handle(self, event)
        except Exception:
            log.exception("cannot pass on an event of a query")

    return handled


class QueryListener(StreamingQueryListener):
    """
    >>> spark.streams.addListener(QueryListener(observer))
    """

    def __init__(
        self,
        observer: Observer = NO_OBSERVER,
        *,
        log_every: float | None = DEFAULT_LOG_EVERY,
        clock: Clock | None = None,
    ) -> None:
        """`log_every`: log a batch at most every so many seconds (default: 10s); None: never."""
        self._observer = observer
        self._log_every = log_every
        self._clock = clock or SystemClock()
        self._condition = threading.Condition()
        self._queries: dict[str, QueryStatus] = {}  # by the id of a run
        self._logged_at: dict[str, float] = {}

    @property
    def queries(self) -> dict[str, QueryStatus]:
        """The known queries, by run id."""
        with self._condition:
            return dict(self._queries)

    def wait_for_ends(self, active: Collection[str], timeout: float) -> bool:
        """Waits until every query except the active ones (run ids) has reported its end."""
        with self._condition:
            return self._condition.wait_for(lambda: self._open() <= set(active), timeout)

    # --- Spark's calls -----------------------------------------------------------------------------------------------

    @_harmless
    def onQueryStarted(self, event: Any) -> None:
        known = self._update(event, STARTED, event.name)
        log.info("query %s started", known.name)
        self._count("started", known)

    @_harmless
    def onQueryProgress(self, event: Any) -> None:
        progress = event.progress
        known = self._update(
            progress,
            RUNNING,
            progress.name,
            batch=progress.batchId,
            rows=progress.numInputRows or 0,
            seconds=progress.batchDuration / 1_000,
            input_rate=_finite(progress.inputRowsPerSecond),
            processed_rate=_finite(progress.processedRowsPerSecond),
        )
        log.log(logging.INFO if self._is_due(str(progress.runId)) else logging.DEBUG, "%s", _batch_line(known))
        self._count("batches", known)
        self._count("rows", known, known.rows)
        self._count("batch.seconds", known, known.seconds)

    @_harmless
    def onQueryIdle(self, event: Any) -> None:
        known = self._update(event, IDLE)
        log.debug("query %s is idle", known.name)
        self._count("idle", known)

    @_harmless
    def onQueryTerminated(self, event: Any) -> None:
        if event.exception is None:
            known = self._update(event, ENDED)
            log.info("query %s ended", known.name)
            self._count("ended", known)
            return
        known = self._update(event, FAILED, reason=reason(RuntimeError(event.exception)))
        log.warning("query %s failed: %s", known.name, known.reason)
        self._count("failed", known, error=event.errorClassOnException or "unknown")

    # --- query states ------------------------------------------------------------------------------------------------

    def _update(self, event: Any, state: str, name: str | None = None, **changes: Any) -> QueryStatus:
        """Updates the state of a query. A query that started before the listener gets its name with its first progress
        event, and goes by its id until then."""
        run = str(event.runId)
        with self._condition:
            before = self._queries.pop(run, None) or QueryStatus(name or str(event.id))
            known = self._queries[run] = replace(before, name=name or before.name, state=state, **changes)
            if len(self._queries) > _MOST_QUERIES:
                self._evict()
            self._condition.notify_all()
        return known

    def _evict(self) -> None:
        """Removes the query that ended first."""
        gone = next((run for run, query in self._queries.items() if query.state in (ENDED, FAILED)), None)
        if gone is not None:
            del self._queries[gone]
            self._logged_at.pop(gone, None)

    def _open(self) -> set[str]:
        return {run for run, query in self._queries.items() if query.state not in (ENDED, FAILED)}

    def _is_due(self, run: str) -> bool:
        if self._log_every is None:
            return False
        now = self._clock.monotonic()
        if now - self._logged_at.get(run, -math.inf) < self._log_every:
            return False
        self._logged_at[run] = now
        return True

    def _count(self, name: str, query: QueryStatus, value: float = 1, **labels: str) -> None:
        self._observer.count(f"spark.query.{name}", value, query=query.name, **labels)


@contextmanager
def listening(
    spark: SparkSession, observer: Observer = NO_OBSERVER, *, log_every: float | None = DEFAULT_LOG_EVERY
) -> Iterator[QueryListener]:
    """A listener for all queries of a session; removed at the end, after the queries that ended have reported it.

    >>> with listening(spark, observer):
    ...     orders.writeStream.format("console").queryName("orders").start().awaitTermination()
    """
    listener = QueryListener(observer, log_every=log_every)
    is_added = _try("add", lambda: spark.streams.addListener(listener), logging.WARNING)
    try:
        yield listener
    finally:
        if is_added:
            _try("wait for", lambda: _wait_for_ends(spark, listener))
            _try("remove", lambda: spark.streams.removeListener(listener))


def _wait_for_ends(spark: SparkSession, listener: QueryListener) -> None:
    listener.wait_for_ends({str(query.runId) for query in spark.streams.active}, _END_TIMEOUT)


def _try(what: str, do: Callable[[], object], level: int = logging.DEBUG) -> bool:
    """Whether the call succeeded. Spark may be gone: then the code that runs the query reports it."""
    try:
        do()
    except Exception as error:  # noqa: BLE001 - whatever Spark raises, the query goes on
        log.log(level, "cannot %s the query listener: %s", what, reason(error))
        return False
    return True


def _batch_line(query: QueryStatus) -> str:
    rates = f"{query.input_rate:,.0f}/s arrived, {query.processed_rate:,.0f}/s processed"
    return f"query {query.name}: batch {query.batch} had {query.rows:,} rows and took {query.seconds:.1f} s; {rates}"


def _finite(rate: float | None) -> float:
    """Spark divides by durations that may be zero."""
    return rate if rate is not None and math.isfinite(rate) else 0.0
