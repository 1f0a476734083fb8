"""An application in a Spark worker that works off stretches of a topic's history: the composition root there.

Thread: `run` on the worker's own, with an event loop; `stop` and `give_up` from any.

The lanes are those of every other engine. What is different: the consumer is a member of no group and nothing is
committed; each partition has an end; and failed records are tried again in their place, because the live group's retry
topic is for the live group.
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
from multilane.engines.backfill.worker import BackfillTask, Tell
from multilane.engines.lease_runner import LeaseRunner
from multilane.errors import DataLoss, LineLost, OffsetOutOfRange
from multilane.lanes.assignment import Start, Starts
from multilane.lanes.failure_log import FailureNews
from multilane.lanes.interpreter import run_to_end, tuned_interpreter
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.listeners.context import Context
from multilane.logs import logger
from multilane.metrics import Both, News
from multilane.outcome.in_place import InPlace
from multilane.runtime.lane_factory import LaneFactory, flow_of
from multilane.runtime.registration import Registration
from multilane.types import NO_EPOCH, TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

_LATENCY: Final = 0.05  # seconds: all of history is there, so a window that is not full waits for nothing


class BackfillWorkerApp:
    """Made from `module:name`; the driver names this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._clock = SystemClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[ProgressReport] | None = None
        self._lease_runner: LeaseRunner | None = None
        self._news = News()
        self._failed = FailureNews()
        self._is_stopped = False
        self._is_given_up = False

    def run(self, errand: BackfillTask, tell: Tell) -> ProgressReport:
        with tuned_interpreter():
            return run_to_end(self._serve(errand, tell))

    def stop(self) -> None:
        self._is_stopped = True
        self._on_loop(self._end)

    def news(self) -> dict[str, Any]:
        return {"counts": self._news.take(), "failures": self._failed.take()}

    def give_up(self) -> None:
        self._is_given_up = True
        self._on_loop(self._abandon)

    def _on_loop(self, what: Callable[[], object]) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(what)

    def _end(self) -> None:
        if self._lease_runner is not None:
            self._lease_runner.end()

    def _abandon(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def _serve(self, errand: BackfillTask, tell: Tell) -> ProgressReport:
        self._loop = asyncio.get_running_loop()
        self._work = asyncio.create_task(self._work_off(errand, tell))
        if self._is_given_up:
            self._abandon()
        try:
            return await self._work
        except asyncio.CancelledError:
            if self._is_given_up:
                raise LineLost("the driver of this backfill is gone: whatever was in work is given up") from None
            raise
        except OffsetOutOfRange as error:
            raise DataLoss(f"{error}. With --skip-deleted the backfill goes on where the log begins now") from error
        finally:
            await self._app.close_producers()

    async def _work_off(self, errand: BackfillTask, tell: Tell) -> ProgressReport:
        registration = self._app.full_registration(errand.consumer)
        cluster = self._app.config.cluster(registration.config.cluster)
        in_place = in_place_for(registration.config, cluster, self._clock, to_error_topic=errand.to_error_topic)
        lane_factory = LaneFactory(
            _for_history(registration),
            cluster,
            replace(registration.interceptors, last_step=registration.interceptors.last_step or _is_listed),
            self._clock,
            Both(self._app.observer, self._news),
            in_place,
        )
        lane_factory.failures = self._failed
        reset = {"auto.offset.reset": "earliest" if errand.skips_deleted else "none"}
        consumer = AsyncConsumer(
            lane_factory.source.reader_properties | reset, clock=self._clock, observer=self._app.observer
        )
        try:
            await lane_factory.open()
            return await self._pass_through(
                errand, lane_factory, consumer, ProgressReporter(in_place, errand.ends, tell)
            )
        finally:
            await consumer.close(0)
            await lane_factory.close()

    async def _pass_through(
        self, errand: BackfillTask, lane_factory: LaneFactory, consumer: AsyncConsumer, account: ProgressReporter
    ) -> ProgressReport:
        async def build(some: Starts) -> PartitionProcessor:
            return account.with_processor(await lane_factory.build(some))

        starts = {TopicPartition(errand.topic, partition): _start(errand, partition) for partition in errand.starts}
        ends = {TopicPartition(errand.topic, partition): end for partition, end in errand.ends.items()}
        patience = lane_factory.config.rebalance_timeout / 2
        self._lease_runner = LeaseRunner(
            consumer, lane_factory.source.topics, build, account.tell, patience, self._clock
        )
        if self._is_stopped:
            self._lease_runner.end()
        processors = await self._lease_runner.run(starts, inf, patience, ends)
        for processor in processors:
            await processor.drain(self._clock.monotonic())
        return account.report(processors)


class ProgressReporter:
    """What was done since it was last told."""

    def __init__(self, in_place: InPlace, ends: Mapping[int, int], tell: Tell) -> None:
        self._in_place = in_place
        self._ends = ends
        self._tell = tell
        self._processors: list[PartitionProcessor] = []
        self._told = 0  # settled records

    def with_processor(self, processor: PartitionProcessor) -> PartitionProcessor:
        self._processors.append(processor)
        return processor

    async def tell(self, processors: Collection[PartitionProcessor]) -> None:
        self._tell(self.report(processors))

    def report(self, processors: Collection[PartitionProcessor]) -> ProgressReport:
        places = {p.partition: processor.full_commit_point(p) for processor in processors for p in processor.partitions}
        settled = sum(processor.settled for processor in self._processors)
        more, self._told = settled - self._told, settled
        starts = {partition: (place.offset, place.runs) for partition, place in places.items()}
        epochs = {partition: place.end_epoch for partition, place in places.items() if place.end_epoch != NO_EPOCH}
        return ProgressReport(starts, more, self._in_place.take_exhausted(), epochs)


def _start(errand: BackfillTask, partition: int) -> Start:
    """With what is known of the log, so that one that was cut or made anew since is noticed."""
    offset, runs = errand.starts[partition]
    epoch = errand.epochs.get(partition, NO_EPOCH)
    return Start(offset, runs, epoch, epoch, None if errand.topic_id is None else UUID(errand.topic_id))


def in_place_for(config: ConsumerGroupConfig, cluster: ClusterConfig, clock: Clock, *, to_error_topic: bool) -> InPlace:
    """As often as the retry topic would have it. Where records are acknowledged by hand their keys go on before that:
    such a record has no place any more, and one attempt."""
    flow = flow_of(config, cluster)
    again = 0 if config.ack == "manual" else config.retry_count
    return InPlace(flow if to_error_topic else replace(flow, error=None), again, config.retry_backoff, clock.monotonic)


def _for_history(registration: Registration) -> Registration:
    """The topic alone is read, and no topic of the group's is written to but as `in_place_for` says; nor are the
    accounts of what the group does."""
    changes = {"retry": None, "error": None, "retry_order": "none", "batch_latency": _LATENCY, "audit": None}
    return replace(registration, config=registration.config.model_copy(update=changes))


async def _is_listed(context: Context, record: Record, error: BaseException) -> None:
    """The last step where the application has none: what is given up is listed in any case."""
