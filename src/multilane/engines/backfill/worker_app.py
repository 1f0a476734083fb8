"""An application in a Spark worker that processes ranges of a topic's history: the composition root there.

Thread: `run` on the worker's own, with an event loop; `stop` and `abort` from any.

Uses the lanes of every other engine, with three differences: the consumer joins no group and never commits; each
partition has an end; and failed records are retried in place, because the retry topic belongs to the live group. Owns
the consumer and the lane factory of its task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Any, Final
from uuid import UUID

from multilane.app.targets import find_app
from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock, SystemClock
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.engines.backfill.progress import ProgressReport
from multilane.engines.backfill.worker import BackfillTask, SendReport
from multilane.engines.lease_runner import LeaseRunner
from multilane.errors import ChannelLost, DataLoss, OffsetOutOfRange
from multilane.lanes.assignment import Start, Starts
from multilane.lanes.failure_log import FailureCollector
from multilane.lanes.interpreter import run_to_end, tuned_interpreter
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.listeners.context import Context
from multilane.logs import logger
from multilane.metrics.observer import Gauge, ObserverPair, ReportBuffer
from multilane.outcome.in_place import InPlace
from multilane.runtime.failure_routes import retry_policy_of
from multilane.runtime.gauges import lane_gauges
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.registration import Registration
from multilane.types import NO_EPOCH, TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

_LATENCY: Final = 0.05  # seconds: history is complete, so a window that is not full need not wait for more


class BackfillWorkerApp:
    """Made from `module:name`; the driver names this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._clock = SystemClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[ProgressReport] | None = None
        self._lease_runner: LeaseRunner[PartitionProcessor] | None = None
        self._news = ReportBuffer()
        self._failed = FailureCollector()
        self._gauges: list[Gauge] = []  # as of the last report
        self._is_stopped = False
        self._is_aborted = False

    def run(self, task: BackfillTask, send_report: SendReport) -> ProgressReport:
        with tuned_interpreter():
            return run_to_end(self._serve(task, send_report))

    def stop(self) -> None:
        self._is_stopped = True
        self._call_on_loop(self._end)

    def news(self) -> dict[str, Any]:
        return {"counts": self._news.take(), "failures": self._failed.take(), "gauges": self._gauges}

    def abort(self) -> None:
        self._is_aborted = True
        self._call_on_loop(self._abandon)

    def _call_on_loop(self, function: Callable[[], object]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: the run has ended
                self._loop.call_soon_threadsafe(function)

    def _end(self) -> None:
        if self._lease_runner is not None:
            self._lease_runner.end()

    def _abandon(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def _serve(self, task: BackfillTask, send_report: SendReport) -> ProgressReport:
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.create_task(self._process(task, send_report))
        if self._is_aborted:
            self._abandon()
        try:
            return await self._work
        except asyncio.CancelledError:
            if self._is_aborted:
                raise ChannelLost("the driver of this backfill is gone: abandoning the records in flight") from None
            raise
        except OffsetOutOfRange as error:
            raise DataLoss(f"{error}. With --skip-deleted the backfill continues where the log begins now") from error
        finally:
            await self._app.close_producers()

    async def _process(self, task: BackfillTask, send_report: SendReport) -> ProgressReport:
        registration = self._app.full_registration(task.consumer)
        cluster = self._app.config.cluster(registration.config.cluster)
        in_place = in_place_for(registration.config, cluster, self._clock, to_error_topic=task.to_error_topic)
        observer = ObserverPair(self._app.observer, self._news)
        lane_factory = LaneFactory(
            _for_history(registration),
            cluster,
            replace(registration.interceptors, last_step=registration.interceptors.last_step or _is_listed),
            self._clock,
            observer,
            in_place,
        )
        lane_factory.failures = self._failed
        reset = {"auto.offset.reset": "earliest" if task.skips_deleted else "none"}
        consumer = AsyncConsumer(lane_factory.source.reader_properties | reset, clock=self._clock, observer=observer)
        try:
            await lane_factory.open()

            def send(report: ProgressReport) -> None:
                self._gauges = lane_gauges(task.consumer, lane_factory.processors)
                send_report(report)

            reporter = ProgressReporter(in_place, task.ends, send)
            return await self._run_leases(task, lane_factory, consumer, reporter)
        finally:
            await consumer.close(0)
            await lane_factory.close()
            self._gauges = []

    async def _run_leases(
        self, task: BackfillTask, lane_factory: LaneFactory, consumer: AsyncConsumer, reporter: ProgressReporter
    ) -> ProgressReport:
        async def build(some: Starts) -> PartitionProcessor:
            return reporter.with_processor(await lane_factory.build(some))

        starts = {TopicPartition(task.topic, partition): _start(task, partition) for partition in task.starts}
        ends = {TopicPartition(task.topic, partition): end for partition, end in task.ends.items()}
        drain = lane_factory.config.rebalance_timeout / 2
        self._lease_runner = LeaseRunner(consumer, lane_factory.source.topics, build, reporter.send, drain, self._clock)
        if self._is_stopped:
            self._lease_runner.end()
        processors = await self._lease_runner.run(starts, inf, drain, ends)
        for processor in processors:
            await processor.drain(self._clock.monotonic())
        return reporter.report(processors)


class ProgressReporter:
    """Reports the progress since the last report."""

    def __init__(self, in_place: InPlace, ends: Mapping[int, int], send_report: SendReport) -> None:
        self._in_place = in_place
        self._ends = ends
        self._send_report = send_report
        self._processors: list[PartitionProcessor] = []
        self._reported = 0  # settled records

    def with_processor(self, processor: PartitionProcessor) -> PartitionProcessor:
        self._processors.append(processor)
        return processor

    async def send(self, processors: Collection[PartitionProcessor]) -> None:
        self._send_report(self.report(processors))

    def report(self, processors: Collection[PartitionProcessor]) -> ProgressReport:
        points = {p.partition: processor.full_commit_point(p) for processor in processors for p in processor.partitions}
        settled = sum(processor.settled for processor in self._processors)
        more, self._reported = settled - self._reported, settled
        starts = {partition: (point.offset, point.runs) for partition, point in points.items()}
        epochs = {partition: point.end_epoch for partition, point in points.items() if point.end_epoch != NO_EPOCH}
        return ProgressReport(starts, more, self._in_place.take_exhausted(), epochs)


def _start(task: BackfillTask, partition: int) -> Start:
    """With the known leader epoch and topic id, so that a truncated or recreated log is noticed."""
    offset, runs = task.starts[partition]
    epoch = task.epochs.get(partition, NO_EPOCH)
    return Start(offset, runs, epoch, epoch, None if task.topic_id is None else UUID(task.topic_id))


def in_place_for(config: ConsumerGroupConfig, cluster: ClusterConfig, clock: Clock, *, to_error_topic: bool) -> InPlace:
    """As many retries as the retry topic would allow. With ack: manual the next record of a key starts before the last
    one is acknowledged, so a record cannot be retried in place, and has one attempt."""
    retry_policy = retry_policy_of(config, cluster)
    retries = 0 if config.ack == "manual" else config.retry_count
    return InPlace(
        retry_policy if to_error_topic else replace(retry_policy, error=None),
        retries,
        config.retry_backoff,
        clock.monotonic,
    )


def _for_history(registration: Registration) -> Registration:
    """Read the topic alone. Write to no topic of the group, except as `in_place_for` allows, and not to its audit."""
    changes = {"retry": None, "error": None, "retry_order": "none", "batch_latency": _LATENCY, "audit": None}
    return replace(registration, config=registration.config.model_copy(update=changes))


async def _is_listed(context: Context, record: Record, error: BaseException) -> None:
    """The last step if the application has none: exhausted records are listed in any case."""
