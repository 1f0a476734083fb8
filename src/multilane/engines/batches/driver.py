"""Supervises the query of a run in batches: starts it, handles messages of its coordinator, restarts it, and drains.

Thread: the caller of `run`, which owns all state; the channel, the query and `stop` only put events into its queue.
"""

from __future__ import annotations

import queue
import shutil
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from multilane.client.group.membership import Identity
from multilane.clock import Clock, SystemClock
from multilane.engines.batches.lease_coordinator import CoordinatorSpec, members_from
from multilane.engines.batches.messages import FromDriver, ToDriver
from multilane.engines.batches.states import QUERY_TRANSITIONS, QueryState
from multilane.engines.channel.channel import ChannelMessage, MessageChannel
from multilane.engines.channel.server import ChannelServer
from multilane.engines.job_names import job_name
from multilane.engines.moves import moved
from multilane.errors import ChannelLost, MemberFailed, MultilaneError, SparkStartError
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.lanes.progress import Progress
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.spark.executor_news import unwatch_executors, with_cause
from multilane.spark.reasons import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logger(__name__)

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_STEADY_AFTER: Final = 60.0  # seconds after which earlier failures no longer count
_ATTEMPTS: Final = 8  # in a row
_ENDS_BY_ITSELF: Final = 3.0  # seconds for a query whose process has died: its tasks end, then Spark notices
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a temporary checkpoint, where writes cost nothing


# Between batches, Spark would write two files of a checkpoint that is never read, which takes 0.2 s. The first batch is
# written all the same, and none after it: with a second one Spark would call the source's `commit` when the query has
# ended, find its process gone, and not end the query.
_NO_PROGRESS: Final = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": str(10**15),
}


class QuerySupervisor:
    """For one run. `stop` may be called before `run`."""

    def __init__(self, clock: Clock | None = None, observer: Observer = NO_OBSERVER) -> None:
        self._clock = clock or SystemClock()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._channel: MessageChannel | None = None
        self._query: StreamingQuery | None = None
        self._channel_query: StreamingQuery | None = None  # the query whose coordinator the channel connects
        self._failure: MultilaneError | None = None
        self._state = QueryState.WAITING
        self._failures = 0  # in a row
        self._last_error = ""
        self._started_at = 0.0
        self._start_at: float | None = 0.0
        self._stop_at: float | None = None  # for a query whose process has died
        self._deadline: float | None = None  # for the drain
        self._overrides: dict[str, ConsumerOverrides] = {}
        self._members: tuple[tuple[str, Identity], ...] = ()  # of groups, as the coordinator reported last
        self._observer = observer
        self.progress = Progress(observer, self._clock)

    # --- life --------------------------------------------------------------------------------------------------------

    def run(self, spark: SparkSession, spec: CoordinatorSpec, drain_seconds: float) -> None:
        """Until `stop` and the end of the query, or until a permanent failure."""
        from multilane.spark.query_listener import listening

        self._spark, self._drain_seconds = spark, drain_seconds
        with listening(spark, self._observer, log_every=None):  # the log has the members' counts
            self._run(spec)
        if self._failure is not None:
            raise self._failure

    def _run(self, spec: CoordinatorSpec) -> None:
        server = ChannelServer(spec.bind, spec.host, spec.token, self._receive)
        self._spec = replace(spec, driver=server.address)
        directory = tempfile.mkdtemp(prefix="multilane-", dir=_MEMORY if _MEMORY.is_dir() else None)
        self.progress.begin(self._clock.monotonic())
        try:
            self._checkpoints = Path(directory)
            while self._state is not QueryState.OVER:
                self._next_event()
                self._check_timers()
        finally:
            server.close()
            self._stop_query()
            shutil.rmtree(directory, ignore_errors=True)
            self.progress.close(self._clock.monotonic())

    def stop(self) -> None:
        """From any thread, also from a signal handler."""
        self._events.put(self._drain)

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        """From any thread. A coordinator that starts later gets them too."""
        self._events.put(partial(self._apply_overrides, consumer, overrides))

    def _apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        self._overrides[consumer] = overrides
        if self._channel is not None:
            with suppress(ChannelLost):  # the thread that receives on it reports the loss
                self._channel.send(FromDriver.APPLY_OVERRIDES, consumer=consumer, steering=overrides.to_json())

    def _next_event(self) -> None:
        due = [at for at in (self._start_at, self._stop_at, self._deadline, self.progress.due) if at is not None]
        try:
            handle = self._events.get(timeout=max(0.0, min(due) - self._clock.monotonic()))
        except queue.Empty:
            return
        handle()

    def _check_timers(self) -> None:
        now = self._clock.monotonic()
        if self._state is QueryState.OVER:
            return
        if self._start_at is not None and now >= self._start_at:
            self._start_at = None
            self._start(now)
        if self._stop_at is not None and now >= self._stop_at:
            self._stop_at = None
            self._stop_query()
        if self._deadline is not None and now >= self._deadline:
            self._failure = self._failure or MemberFailed(
                f"the run did not stop within {self._drain_seconds:g} s and was killed; records in flight will be "
                "redelivered"
            )
            self._move(QueryState.OVER)
        if now >= self.progress.due:
            self.progress.log_progress(now)

    # --- the query ---------------------------------------------------------------------------------------------------

    def _start(self, now: float) -> None:
        from multilane.engines.batches.source import FORMAT, lanes_source

        self._started_at = now
        checkpoint = self._checkpoints / str(self._failures)
        shutil.rmtree(checkpoint, ignore_errors=True)
        title = job_name(self._spec.target, self._spec.consumers)  # shown for each batch and job
        try:
            self._spark.dataSource.register(lanes_source(self._spec))
            rows = self._spark.readStream.format(FORMAT).load()
            writing = rows.writeStream.format("noop").queryName(title).options(**_NO_PROGRESS)
            self._query = query = writing.option("checkpointLocation", checkpoint.as_uri()).start()
        except Exception as error:
            raise SparkStartError(with_cause(f"Spark failed to start the query: {reason(error)}")) from error
        self._move(QueryState.RUNNING)
        threading.Thread(target=self._wait_for, args=(query,), name="multilane-query", daemon=True).start()

    def _wait_for(self, query: StreamingQuery) -> None:
        failure: Exception | None = None
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is reported
            failure = error
        self._events.put(partial(self._on_ended, query, failure))

    def _on_ended(self, query: StreamingQuery, error: Exception | None) -> None:
        if query is not self._query:
            return
        self._query = self._stop_at = None
        if self._state is QueryState.DRAINING or self._failure is not None:
            self._move(QueryState.OVER)
            return
        now = self._clock.monotonic()
        if now - self._started_at >= _STEADY_AFTER:
            self._failures = 0
        self._failures += 1
        why = self._last_error or (reason(error) if error is not None else "it ended unexpectedly")
        self._last_error = ""
        if self._failures >= _ATTEMPTS:
            self._fail(SparkStartError(with_cause(f"the query failed {self._failures} times in a row: {why}")))
            return
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (self._failures - 1))
        log.error("the query failed, restarting it in %g s: %s", wait, why)
        self._start_at = now + wait
        self._move(QueryState.WAITING)

    def _stop_query(self) -> None:
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # noqa: BLE001 - Spark may be gone
                log.debug("the query could not be stopped: %s", error)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        if self._state not in (QueryState.DRAINING, QueryState.OVER):
            self._move(QueryState.DRAINING)
            self._request_stop()

    def _request_stop(self) -> None:
        self._start_at = None
        self._deadline = self._clock.monotonic() + self._drain_seconds
        if self._channel is None:  # no coordinator, so nothing is leased
            if self._query is None:
                self._move(QueryState.OVER)
        else:
            try:
                self._channel.send(FromDriver.STOP)
            except ChannelLost:
                self._move(QueryState.OVER)

    def _fail(self, failure: MultilaneError) -> None:
        self._failure = self._failure or failure
        if self._query is None:
            self._move(QueryState.OVER)
        else:
            self._drain()

    def _move(self, state: QueryState) -> None:
        self._state = moved(QUERY_TRANSITIONS, self._state, state)

    # --- messages of the coordinator ---------------------------------------------------------------------------------

    def _receive(self, channel: MessageChannel) -> None:
        """On the channel's own thread, until the channel closes."""
        self._events.put(partial(self._on_connect, channel))
        while (message := channel.receive()) is not None:
            self._events.put(partial(self._on_message, channel, message))
        self._events.put(partial(self._on_disconnect, channel))

    def _on_connect(self, channel: MessageChannel) -> None:
        self._channel, self._channel_query = channel, self._query
        for consumer, overrides in self._overrides.items():
            self._apply_overrides(consumer, overrides)
        if self._state is QueryState.DRAINING:
            self._request_stop()

    def _on_disconnect(self, channel: MessageChannel) -> None:
        if channel is not self._channel:
            return
        self._channel = None
        self.progress.forget()
        if self._state is QueryState.DRAINING:
            self._move(QueryState.OVER)
        if self._state is QueryState.OVER or self._last_error:
            return
        self._spec = replace(self._spec, former=self._members)
        if self._query is not None and self._query is self._channel_query:  # else it has ended, and another may run
            self._note_ending()
            self._last_error = "the query process died"
            self._stop_at = self._clock.monotonic() + _ENDS_BY_ITSELF

    def _note_ending(self) -> None:
        """A message of the last query's coordinator may arrive when that query has ended: then nothing is ending."""
        if self._state is QueryState.RUNNING:
            self._move(QueryState.ENDING)

    def _on_message(self, channel: MessageChannel, message: ChannelMessage) -> None:
        kind = message["kind"]
        if kind == ToDriver.REPORT:
            self.progress.add(message)
            self._members = members_from(message.get("members") or [])
        elif channel is not self._channel:
            log.debug("ignoring message %r from the coordinator of a failed query", kind)
        elif kind == ToDriver.FAILED:
            error = str(message.get("error"))
            log.error("the application failed: %s", error)
            if message.get("is_refused"):
                self._failure = self._failure or MemberFailed(with_cause(f"the application cannot run: {error}"))
                self._move(QueryState.OVER)
            else:
                self._note_ending()
                self._last_error = error
                self._stop_query()  # it is restarted
        elif kind == ToDriver.ASSEMBLED:  # a restarted query makes do with the slots that are left
            unwatch_executors()
            self._spec = replace(self._spec, start_seconds=None)
        elif kind == ToDriver.ENDED and self._state is QueryState.DRAINING:
            self._move(QueryState.OVER)
