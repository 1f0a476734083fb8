"""Keeps the query of a run in batches going: starts it, hears its keeper, starts it again when it failed, and drains.

Thread: whoever calls `run`, which owns all state; the line, the query and `stop` only put something on its queue.
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
from multilane.engines.batches.lease_coordinator import CoordinatorPlan, members_from
from multilane.engines.channel.channel import Message, MessageChannel
from multilane.engines.channel.server import ChannelServer
from multilane.engines.job_names import job_name
from multilane.errors import LineLost, MemberFailed, MultilaneError, SparkStartError
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.lanes.progress import Progress
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.spark.executor_news import hear_no_more, with_cause
from multilane.spark.reasons import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

log = logger(__name__)

_FIRST_WAIT: Final = 1.0
_LONGEST_WAIT: Final = 60.0
_STEADY_AFTER: Final = 60.0  # seconds after which earlier failures do not count any more
_TRIES: Final = 8  # in a row
_ENDS_BY_ITSELF: Final = 3.0  # seconds for a query whose process has died: its tasks end, then Spark notices
_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a checkpoint that is thrown away, where writing costs nothing


# Spark would write two files between batches, which takes 0.2 s, for a checkpoint that nobody reads. The first batch is
# written all the same, and none after it: with a second one Spark would tell the source of it when the query has ended,
# find nobody there, and not end the query.
_NO_PROGRESS: Final = {
    "asyncProgressTrackingEnabled": "true",
    "asyncProgressTrackingCheckpointIntervalMs": str(10**15),
}


class QuerySupervisor:
    """For one run. It may be told to stop before that begins."""

    def __init__(self, clock: Clock | None = None, observer: Observer = NO_OBSERVER) -> None:
        self._clock = clock or SystemClock()
        self._events: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._line: MessageChannel | None = None
        self._query: StreamingQuery | None = None
        self._heard: StreamingQuery | None = None  # whose keeper the line is
        self._failure: MultilaneError | None = None
        self._is_stopping = False
        self._is_over = False
        self._failures = 0  # in a row
        self._last_error = ""
        self._started_at = 0.0
        self._start_at: float | None = 0.0
        self._stop_at: float | None = None  # for a query whose process has died
        self._deadline: float | None = None  # for the drain
        self._steering: dict[str, ConsumerOverrides] = {}
        self._members: tuple[tuple[str, Identity], ...] = ()  # of groups, as the keeper told last
        self._observer = observer
        self.progress = Progress(observer, self._clock)

    # --- life --------------------------------------------------------------------------------------------------------

    def run(self, spark: SparkSession, plan: CoordinatorPlan, drain_seconds: float) -> None:
        """Until `stop` and everything has ended, or something is wrong that starting again does not mend."""
        from multilane.spark.query_listener import listening

        self._spark, self._drain_seconds = spark, drain_seconds
        with listening(spark, self._observer, tell_every=None):  # the log has what the members count
            self._run(plan)
        if self._failure is not None:
            raise self._failure

    def _run(self, plan: CoordinatorPlan) -> None:
        desk = ChannelServer(plan.bind, plan.host, plan.token, self._hear)
        self._plan = replace(plan, driver=desk.address)
        directory = tempfile.mkdtemp(prefix="multilane-", dir=_MEMORY if _MEMORY.is_dir() else None)
        self.progress.begin(self._clock.monotonic())
        try:
            self._checkpoints = Path(directory)
            while not self._is_over:
                self._next_event()
                self._look_at_the_clock()
        finally:
            desk.close()
            self._stop_query()
            shutil.rmtree(directory, ignore_errors=True)
            self.progress.close(self._clock.monotonic())

    def stop(self) -> None:
        """From any thread, also from a signal handler."""
        self._events.put(self._drain)

    def steer(self, consumer: str, steering: ConsumerOverrides) -> None:
        """From any thread; a keeper that is started later is told too."""
        self._events.put(partial(self._steer, consumer, steering))

    def _steer(self, consumer: str, steering: ConsumerOverrides) -> None:
        self._steering[consumer] = steering
        if self._line is not None:
            with suppress(LineLost):  # whoever reads it hears of it
                self._line.send("steer", consumer=consumer, steering=steering.to_json())

    def _next_event(self) -> None:
        due = [at for at in (self._start_at, self._stop_at, self._deadline, self.progress.due) if at is not None]
        try:
            handle = self._events.get(timeout=max(0.0, min(due) - self._clock.monotonic()))
        except queue.Empty:
            return
        handle()

    def _look_at_the_clock(self) -> None:
        now = self._clock.monotonic()
        if self._is_over:
            return
        if self._start_at is not None and now >= self._start_at:
            self._start_at = None
            self._start(now)
        if self._stop_at is not None and now >= self._stop_at:
            self._stop_at = None
            self._stop_query()
        if self._deadline is not None and now >= self._deadline:
            self._failure = self._failure or MemberFailed(
                f"the run did not end within {self._drain_seconds:g} s and was cut off: what it was at is handled again"
            )
            self._is_over = True
        if now >= self.progress.due:
            self.progress.log_progress(now)

    # --- the query ---------------------------------------------------------------------------------------------------

    def _start(self, now: float) -> None:
        from multilane.engines.batches.source import FORMAT, lanes_source

        self._started_at = now
        checkpoint = self._checkpoints / str(self._failures)
        shutil.rmtree(checkpoint, ignore_errors=True)
        title = job_name(self._plan.target, self._plan.consumers)  # Spark's interface has it at every batch and job
        try:
            self._spark.dataSource.register(lanes_source(self._plan))
            rows = self._spark.readStream.format(FORMAT).load()
            writing = rows.writeStream.format("noop").queryName(title).options(**_NO_PROGRESS)
            self._query = query = writing.option("checkpointLocation", checkpoint.as_uri()).start()
        except Exception as error:
            raise SparkStartError(with_cause(f"Spark does not start the query: {reason(error)}")) from error
        threading.Thread(target=self._wait_for, args=(query,), name="multilane-query", daemon=True).start()

    def _wait_for(self, query: StreamingQuery) -> None:
        failure: Exception | None = None
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is told
            failure = error
        self._events.put(partial(self._on_ended, query, failure))

    def _on_ended(self, query: StreamingQuery, error: Exception | None) -> None:
        if query is not self._query:
            return
        self._query = self._stop_at = None
        if self._is_stopping or self._failure is not None:
            self._is_over = True
            return
        now = self._clock.monotonic()
        if now - self._started_at >= _STEADY_AFTER:
            self._failures = 0
        self._failures += 1
        why = self._last_error or (reason(error) if error is not None else "it ended by itself")
        self._last_error = ""
        if self._failures >= _TRIES:
            self._fail(SparkStartError(with_cause(f"the query failed {self._failures} times in a row: {why}")))
            return
        wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2.0 ** (self._failures - 1))
        log.error("the query failed and is started again in %g s: %s", wait, why)
        self._start_at = now + wait

    def _stop_query(self) -> None:
        if self._query is not None:
            try:
                self._query.stop()
            except Exception as error:  # noqa: BLE001 - Spark may be gone
                log.debug("the query could not be stopped: %s", error)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        self._start_at = None
        self._deadline = self._clock.monotonic() + self._drain_seconds
        if self._line is None:  # there is nobody who has anything
            self._is_over = self._query is None
        else:
            try:
                self._line.send("stop")
            except LineLost:
                self._is_over = True

    def _fail(self, failure: MultilaneError) -> None:
        self._failure = self._failure or failure
        if self._query is None:
            self._is_over = True
        else:
            self._drain()

    # --- the keeper's words ------------------------------------------------------------------------------------------

    def _hear(self, line: MessageChannel) -> None:
        """On the line's own thread, until it ends."""
        self._events.put(partial(self._on_line, line))
        while (message := line.receive()) is not None:
            self._events.put(partial(self._on_message, line, message))
        self._events.put(partial(self._on_unheard, line))

    def _on_line(self, line: MessageChannel) -> None:
        self._line, self._heard = line, self._query
        for consumer, steering in self._steering.items():
            self._steer(consumer, steering)
        if self._is_stopping:
            self._is_stopping = False
            self._drain()

    def _on_unheard(self, line: MessageChannel) -> None:
        if line is not self._line:
            return
        self._line = None
        self._is_over = self._is_over or self._is_stopping
        if self._is_over or self._last_error:
            return
        self._plan = replace(self._plan, former=self._members)
        if self._query is not None and self._query is self._heard:  # else it has ended before, and another may run
            self._last_error = "its process has died"
            self._stop_at = self._clock.monotonic() + _ENDS_BY_ITSELF

    def _on_message(self, line: MessageChannel, message: Message) -> None:
        kind = message["kind"]
        if kind == "beat":
            self.progress.add(message.get("counts") or [], message.get("failures") or [])
            self._members = members_from(message.get("members") or [])
        elif line is not self._line:
            log.debug("the keeper of a query that has failed says %r", kind)
        elif kind == "failed":
            told = str(message.get("error"))
            log.error("the application failed: %s", told)
            if message.get("is_refused"):
                self._failure = self._failure or MemberFailed(with_cause(f"the application cannot run: {told}"))
                self._is_over = True
            else:
                self._last_error = told
                self._stop_query()  # it is started again
        elif kind == "assembled":  # a query that is started again makes do with the slots that are left
            hear_no_more()
            self._plan = replace(self._plan, start_seconds=None)
        elif kind == "ended" and self._is_stopping:
            self._is_over = True
