"""The lease coordinator of a run in batches: lives in the query's own process beside the driver, as long as the query.

Thread: an event loop on a thread of its own owns the lease table and the application. Spark calls on another thread,
and each channel has one; they only post to the loop.

The query reads from it: it runs the application as a member of its groups, and a server that tasks connect to for their
leases. The driver stops it over a channel; when that channel closes, it stops too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import astuple, dataclass, field, replace
from functools import partial
from typing import Any, Final, Protocol

from multilane.client.group.membership import Identity
from multilane.clock import SystemClock
from multilane.engines.batches.lease_table import LeaseTable, LeaseTerms
from multilane.engines.batches.messages import (
    FromDriver,
    FromWorker,
    ToDriver,
    ToWorker,
    held_from,
    lease_from,
    retries_from,
)
from multilane.engines.batches.start_barrier import StartBarrier
from multilane.engines.channel.channel import ChannelMessage, MessageChannel, connect
from multilane.engines.channel.server import ChannelServer
from multilane.engines.worker_environment import in_worker_environment
from multilane.errors import ChannelLost, ConfigError
from multilane.lanes.interpreter import despite_exits
from multilane.logs import logger
from multilane.metrics.observer import Count, Duration, Gauge
from multilane.spark.first_slot import LONGER
from multilane.spark.reasons import in_short

log = logger(__name__)

_REPORT_SECONDS: Final = 1.0
_PLAN_TIMEOUT: Final = 60.0  # seconds for the loop to answer Spark
_FINISH_SECONDS: Final = 35.0  # for workers to flush their producers
_POLL: Final = 0.02
_MAX_FAILURES: Final = 200  # kinds of them, in one message


Members = tuple[tuple[str, Identity], ...]


class LeasesPartitions(Protocol):
    """What a factory makes: the application as a member of its groups."""

    async def run(self, lease_table: LeaseTable, former: Members = ()) -> None:
        """`former`: members of its groups that died with the last coordinator."""
        ...

    def stop(self) -> None: ...

    def counts(self) -> list[Count | Duration]: ...

    def gauges(self) -> list[Gauge]: ...

    def members(self) -> Members:
        """Its identity in each group, by consumer."""
        ...

    def lease_seconds(self) -> dict[str, float]:
        """By consumer: the seconds from now for which the group assigns leased partitions to no other member, whatever
        happens to the worker."""
        ...


def members_from(data: list[list[Any]]) -> Members:
    return tuple((consumer, Identity(*identity)) for consumer, *identity in data)


@dataclass(frozen=True, slots=True)
class CoordinatorSpec:
    """Everything that the query's process and the workers need."""

    run: str
    factory: str  # MODULE:NAME of the function that makes the application's side here, given the target
    worker_factory: str  # the same for workers
    target: str
    home: str  # of the application, in the query's process
    worker_home: str  # the same in workers
    tasks: int  # of a batch
    terms: LeaseTerms
    bind: str
    host: str  # as executors reach the coordinator
    log_level: str
    token: str = field(repr=False)
    driver: tuple[str, int] = ("", 0)
    start_seconds: float | None = None  # for all tasks to find a slot at the start; None: do not wait for them
    consumers: tuple[str, ...] = ()  # their names, for Spark's user interface
    former: Members = ()  # of a coordinator that died


class LeaseCoordinator:
    def __init__(self, spec: CoordinatorSpec, make: Callable[[str], LeasesPartitions]) -> None:
        self._spec = spec
        self._make = make
        self._has_work = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._lease_table = LeaseTable(SystemClock(), spec.terms, self._has_work.set)
        self._server = ChannelServer(spec.bind, spec.host, spec.token, self._receive_from_worker)
        self._start_barrier = None if spec.start_seconds is None else StartBarrier(spec.tasks)
        self._made: Future[None] = Future()
        self._app: LeasesPartitions | None = None
        self._counts: list[Any] = []
        self._gauges: dict[MessageChannel, list[Any]] = {}  # of each worker
        self._failures: list[Any] = []  # as workers reported them
        self._is_stopping = False
        self._is_over = False
        self._has_served = False
        self._workers: set[MessageChannel] = set()
        self._overrides: dict[str, dict[str, Any]] = {}  # by consumer, in their JSON form
        self._driver: MessageChannel | None = None
        self._thread = threading.Thread(target=self._run, name="multilane-coordinator", daemon=True)
        self._thread.start()
        self._made.result()

    @property
    def address(self) -> tuple[str, int]:
        return self._server.address

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def end(self, timeout: float) -> None:
        """Shut down cleanly, as far as the timeout allows; from any thread."""
        self._is_stopping = True
        if self._app is not None:
            self._app.stop()
        self._thread.join(timeout)

    # --- calls from Spark --------------------------------------------------------------------------------------------

    def wait_for_work(self, timeout: float) -> bool:
        """Whether there is work for a batch. Spark calls this when the last batch has ended."""
        self._post(self._lease_table.end_batch)
        return self._has_work.wait(timeout) and not self._is_stopping

    def plan(self) -> list[int]:
        """The numbers of the next batch's tasks."""
        self._has_work.clear()
        return asyncio.run_coroutine_threadsafe(self._planned(), self._loop).result(_PLAN_TIMEOUT)

    async def _planned(self) -> list[int]:
        return self._lease_table.plan(self._spec.tasks) if self._start_barrier is None else self._start_barrier.numbers

    # --- the application ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            channel = connect(self._spec.driver, self._spec.token)
        except ChannelLost as error:
            self._server.close()
            self._loop.close()
            self._made.set_exception(error)
            return
        try:
            with in_worker_environment(self._spec.home, 0):
                serving = self._loop.create_task(self._serve(channel))
                despite_exits(lambda: self._loop.run_until_complete(serving), serving.done)
        except Exception as error:
            if self._made.done():
                raise
            log.exception("cannot enter the application's directory")
            channel.try_send(ToDriver.FAILED, error=in_short(error), is_refused=True)
            self._made.set_exception(ConfigError(in_short(error)))
        finally:
            self._is_stopping = self._is_over = True
            self._server.close()
            for worker in list(self._workers):  # they would get no answer any more
                worker.close()
            channel.close()
            self._loop.close()

    async def _serve(self, channel: MessageChannel) -> None:
        self._driver = channel
        try:
            app = self._make(self._spec.target)
        except (Exception, SystemExit) as error:
            log.exception("cannot load the application in the query's process")
            channel.try_send(ToDriver.FAILED, error=in_short(error), is_refused=True)
            self._made.set_exception(ConfigError(in_short(error)))
            return
        self._app = app
        self._made.set_result(None)
        arguments = channel, app
        threading.Thread(target=self._receive_from_driver, args=arguments, name="multilane-driver", daemon=True).start()
        reporting = asyncio.create_task(self._report(channel, app))
        try:
            await self._await_tasks(channel)
            await app.run(self._lease_table, self._spec.former)
        except Exception as error:
            log.exception("the application failed")
            channel.try_send(ToDriver.FAILED, error=in_short(error), is_refused=isinstance(error, ConfigError))
        finally:
            self._is_stopping = True
            await self._finish_workers()
            reporting.cancel()
            self._send_counts(channel, app)
            channel.try_send(ToDriver.ENDED)

    async def _await_tasks(self, channel: MessageChannel) -> None:
        """Wait until all tasks have found a slot, if the spec says so."""
        start_barrier, seconds = self._start_barrier, self._spec.start_seconds
        if start_barrier is None or seconds is None:
            return
        self._has_work.set()
        deadline = self._loop.time() + seconds
        while not start_barrier.is_complete and not self._is_stopping:
            if self._loop.time() >= deadline:
                advice = f"ask for fewer with --members, or for more slots. {LONGER}"
                raise ConfigError(f"{start_barrier.progress} within {seconds:g} s: {advice}")
            await asyncio.wait([self._loop.create_future()], timeout=_POLL)
        self._start_barrier = None
        self._has_served = start_barrier.is_complete
        start_barrier.release()
        channel.try_send(ToDriver.ASSEMBLED)

    async def _finish_workers(self) -> None:
        """Workers flush their producers, which the end of Spark would cut short. Their tasks end first."""
        deadline = self._loop.time() + _FINISH_SECONDS
        while self._lease_table.is_leased and self._workers and self._loop.time() < deadline:
            await asyncio.wait([self._loop.create_future()], timeout=_POLL)
        finishing = list(self._workers)
        for worker in finishing:
            worker.try_send(ToWorker.FINISH)
        deadline = self._loop.time() + _FINISH_SECONDS
        while any(worker in self._workers for worker in finishing) and self._loop.time() < deadline:
            await asyncio.wait([self._loop.create_future()], timeout=_POLL)

    def _receive_from_driver(self, channel: MessageChannel, app: LeasesPartitions) -> None:
        """Any message but `APPLY_OVERRIDES`, and the end of the channel, stops the run."""
        while (message := channel.receive()) is not None and message["kind"] == FromDriver.APPLY_OVERRIDES:
            self._loop.call_soon_threadsafe(self._apply_overrides, message["consumer"], message["steering"])
        if message is None:
            log.warning("lost the driver: shutting down cleanly")
        self._is_stopping = True
        app.stop()

    def _apply_overrides(self, consumer: str, overrides: dict[str, Any]) -> None:
        """Workers that connect later get the overrides before their first lease."""
        self._overrides[consumer] = overrides
        for worker in list(self._workers):
            worker.try_send(ToWorker.APPLY_OVERRIDES, consumer=consumer, steering=overrides)

    async def _report(self, channel: MessageChannel, app: LeasesPartitions) -> None:
        while True:
            await asyncio.wait([self._loop.create_future()], timeout=_REPORT_SECONDS)
            self._send_counts(channel, app)

    def _send_counts(self, channel: MessageChannel, app: LeasesPartitions) -> None:
        counts, self._counts = [*self._counts, *app.counts()], []
        failures, self._failures = self._failures[:_MAX_FAILURES], self._failures[_MAX_FAILURES:]
        members = [[consumer, *astuple(identity)] for consumer, identity in app.members()]
        gauges = [*app.gauges(), *(gauge for known in self._gauges.values() for gauge in known)]
        channel.try_send(ToDriver.REPORT, counts=counts, failures=failures, gauges=gauges, members=members)

    # --- workers -----------------------------------------------------------------------------------------------------

    def _receive_from_worker(self, channel: MessageChannel) -> None:
        """On the channel's own thread, until the channel closes."""
        self._workers.add(channel)
        if self._is_over:
            return
        while (message := channel.receive()) is not None:
            self._post(partial(self._on_message, channel, message))
        self._workers.discard(channel)
        self._post(partial(self._on_lost, channel))

    def _post(self, event: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the run is over
            self._loop.call_soon_threadsafe(event)

    def _on_message(self, channel: MessageChannel, message: ChannelMessage) -> None:
        handle = {
            FromWorker.HELLO: self._on_hello,
            FromWorker.PROGRESS: self._on_progress,
            FromWorker.RETURN: self._on_returned,
            FromWorker.RELEASED: self._on_released,
            FromWorker.OVER: self._on_over,
            FromWorker.COUNTS: self._on_counts,
            FromWorker.CANNOT_START: self._on_cannot_start,
        }.get(message["kind"])
        if handle is None:
            log.warning("unknown message type %r from worker", message["kind"])
            return
        try:
            handle(channel, message)
        except (KeyError, TypeError, ValueError):
            log.exception("malformed message of type %r from worker: closing its connection", message["kind"])
            channel.close()

    def _on_lost(self, channel: MessageChannel) -> None:
        self._gauges.pop(channel, None)
        self._lease_table.lose(channel)

    def _on_hello(self, channel: MessageChannel, message: ChannelMessage) -> None:
        number = message["number"]
        for consumer, overrides in self._overrides.items():
            channel.try_send(ToWorker.APPLY_OVERRIDES, consumer=consumer, steering=overrides)
        self._renew(channel, message)  # before the leases: the worker's process may be suspended right after it
        log.debug("task %s begins in process %s", number, message.get("pid"))
        if self._start_barrier is not None and not self._is_stopping:
            self._start_barrier.arrive(number, channel)
            return
        self._has_served = True
        if self._is_stopping:
            self._lease_table.drop(number)  # the end of the run does not wait for it
        lease = self._lease_table.grant(number, channel)
        if lease is not None and self._app is not None:
            members = {consumer: identity.member_id for consumer, identity in self._app.members()}
            lease = replace(lease, members=members)
        channel.try_send(ToWorker.GRANT, number=number, loan=None if lease is None else lease.to_json())

    def _on_progress(self, channel: MessageChannel, message: ChannelMessage) -> None:
        self._lease_table.note_progress(map(lease_from, message["units"]), channel)

    def _on_returned(self, channel: MessageChannel, message: ChannelMessage) -> None:
        self._lease_table.take_back(map(lease_from, message["units"]), channel)

    def _on_over(self, channel: MessageChannel, message: ChannelMessage) -> None:
        self._on_returned(channel, message)
        self._lease_table.close(message["number"], channel)
        channel.try_send(
            ToWorker.CLOSED, number=message["number"]
        )  # before its task ends, and the next batch is planned

    def _on_released(self, channel: MessageChannel, message: ChannelMessage) -> None:
        number = message["unit"]
        self._lease_table.note_retries(number, retries_from(message["tried"]))
        self._lease_table.release(number, held_from(message["settled"]), channel, is_settled=True)
        self._lease_table.release(number, held_from(message["undone"]), channel, is_settled=False)

    def _on_cannot_start(self, channel: MessageChannel, message: ChannelMessage) -> None:
        """A worker cannot load the application. If other workers could, that may pass: Spark retries the task."""
        del channel
        if self._driver is not None and not self._has_served:
            self._driver.try_send(ToDriver.FAILED, error=message["error"], is_refused=True)

    def _on_counts(self, channel: MessageChannel, message: ChannelMessage) -> None:
        self._renew(channel, message)
        self._counts += message["counts"]
        self._failures += message.get("failures") or []
        self._gauges[channel] = message.get("gauges") or []

    def _renew(self, channel: MessageChannel, message: ChannelMessage) -> None:
        if self._app is not None and message.get("sent") is not None:
            channel.try_send(ToWorker.RENEW, sent=message["sent"], seconds=self._app.lease_seconds())
