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

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock, SystemClock
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.errors import DataLoss, LineLost, OffsetOutOfRange
from multilane.hooks import Both, News
from multilane.lanes.failure_log import FailureNews
from multilane.lanes.holding import Start, Starts
from multilane.lanes.interpreter import run_to_end, tuned_interpreter
from multilane.lanes.stint import Stint
from multilane.lanes.team import Team
from multilane.listeners.context import Context
from multilane.logs import logger
from multilane.outcome.in_place import InPlace
from multilane.runtime.outfit import Outfit, flow_of
from multilane.runtime.registration import Registration
from multilane.runtime.targets import find_app
from multilane.spark.backfill.book import Report
from multilane.spark.backfill.task import Errand, Tell
from multilane.types import NO_EPOCH, TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

_LATENCY: Final = 0.05  # seconds: all of history is there, so a window that is not full waits for nothing


class BackfilledApp:
    """Made from `module:name`; the driver names this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._clock = SystemClock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[Report] | None = None
        self._stint: Stint | None = None
        self._news = News()
        self._failed = FailureNews()
        self._is_stopped = False
        self._is_given_up = False

    def run(self, errand: Errand, tell: Tell) -> Report:
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
        if self._stint is not None:
            self._stint.end()

    def _abandon(self) -> None:
        if self._work is not None:
            self._work.cancel()

    async def _serve(self, errand: Errand, tell: Tell) -> Report:
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

    async def _work_off(self, errand: Errand, tell: Tell) -> Report:
        registration = self._app.registered(errand.consumer)
        cluster = self._app.config.cluster(registration.config.cluster)
        in_place = in_place_for(registration.config, cluster, self._clock, to_error_topic=errand.to_error_topic)
        outfit = Outfit(
            _for_history(registration),
            cluster,
            replace(registration.around, last_step=registration.around.last_step or _is_listed),
            self._clock,
            Both(self._app.observer, self._news),
            in_place,
        )
        outfit.failures = self._failed
        reset = {"auto.offset.reset": "earliest" if errand.skips_deleted else "none"}
        consumer = AsyncConsumer(outfit.reading | reset, clock=self._clock, observer=self._app.observer)
        try:
            await outfit.open()
            return await self._pass_through(errand, outfit, consumer, Account(in_place, errand.ends, tell))
        finally:
            await consumer.close(0)
            await outfit.close()

    async def _pass_through(self, errand: Errand, outfit: Outfit, consumer: AsyncConsumer, account: Account) -> Report:
        async def build(some: Starts) -> Team:
            return account.with_team(await outfit.build(some))

        starts = {TopicPartition(errand.topic, partition): _start(errand, partition) for partition in errand.starts}
        ends = {TopicPartition(errand.topic, partition): end for partition, end in errand.ends.items()}
        patience = outfit.config.rebalance_timeout / 2
        self._stint = Stint(consumer, outfit.topics, build, account.tell, patience, self._clock)
        if self._is_stopped:
            self._stint.end()
        teams = await self._stint.run(starts, inf, patience, ends)
        for team in teams:
            await team.drain(self._clock.monotonic())
        return account.report(teams)


class Account:
    """What was done since it was last told."""

    def __init__(self, in_place: InPlace, ends: Mapping[int, int], tell: Tell) -> None:
        self._in_place = in_place
        self._ends = ends
        self._tell = tell
        self._teams: list[Team] = []
        self._told = 0  # settled records

    def with_team(self, team: Team) -> Team:
        self._teams.append(team)
        return team

    async def tell(self, teams: Collection[Team]) -> None:
        self._tell(self.report(teams))

    def report(self, teams: Collection[Team]) -> Report:
        places = {p.partition: team.whole_place(p) for team in teams for p in team.partitions}
        settled = sum(team.settled for team in self._teams)
        more, self._told = settled - self._told, settled
        starts = {partition: (place.offset, place.runs) for partition, place in places.items()}
        epochs = {partition: place.end_epoch for partition, place in places.items() if place.end_epoch != NO_EPOCH}
        return Report(starts, more, self._in_place.take_given_up(), epochs)


def _start(errand: Errand, partition: int) -> Start:
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
