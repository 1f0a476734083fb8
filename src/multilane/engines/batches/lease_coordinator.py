"""The keeper of a run in batches: lives in the query's own process beside the driver, as long as the query does.

Thread: an event loop on a thread of its own owns the board and the application; Spark's calls come on another, lines
have one each, and both only hand something over to the loop.

It is what the query reads from: the application as a member of its groups, and a desk at which tasks ask for their
loans. The driver stops it over a line of its own; when that line ends it stops too.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import astuple, dataclass, field
from functools import partial
from typing import Any, Final, Protocol

from multilane.client.group.membership import Identity
from multilane.clock import SystemClock
from multilane.engines.batches.lease_table import LeaseTable, LeaseTerms
from multilane.engines.batches.messages import held_from, lease_from, tried_from
from multilane.engines.batches.start_barrier import StartBarrier
from multilane.engines.channel.channel import Message, MessageChannel, call
from multilane.engines.channel.server import ChannelServer
from multilane.engines.worker_environment import in_worker_environment
from multilane.errors import ConfigError, LineLost
from multilane.lanes.interpreter import despite_exits
from multilane.logs import logger
from multilane.spark.first_slot import LONGER
from multilane.spark.reasons import in_short

log = logger(__name__)

_BEAT_SECONDS: Final = 1.0
_PATIENCE: Final = 60.0  # seconds for the loop to answer Spark
_FINISH_SECONDS: Final = 35.0  # for workers to send what their producers were given
_LOOK: Final = 0.02
_MOST_FAILURES: Final = 200  # kinds of them, in one message


Members = tuple[tuple[str, Identity], ...]


class LeasesPartitions(Protocol):
    """What a factory makes."""

    async def keep(self, lease_table: LeaseTable, former: Members = ()) -> None:
        """`former`: members of its groups that died with the keeper before."""
        ...

    def stop(self) -> None: ...

    def counts(self) -> list[tuple[str, dict[str, str], float]]: ...

    def members(self) -> Members:
        """Who it is in its groups, by consumer."""
        ...

    def leases(self) -> dict[str, float]:
        """By consumer, for how many seconds from now nobody else gets what is lent, whatever happens to its
        borrower."""
        ...


def members_from(told: list[list[Any]]) -> Members:
    return tuple((consumer, Identity(*identity)) for consumer, *identity in told)


@dataclass(frozen=True, slots=True)
class CoordinatorPlan:
    """All that the query's process and the workers are told."""

    run: str
    factory: str  # MODULE:NAME of what is kept, given the target
    worker_factory: str  # and of what works
    target: str
    home: str  # of the application, in the query's process
    worker_home: str  # and in workers
    tasks: int  # of a batch
    terms: LeaseTerms
    bind: str
    host: str  # as executors reach the keeper
    log_level: str
    token: str = field(repr=False)
    driver: tuple[str, int] = ("", 0)
    start_seconds: float | None = None  # for all tasks to find a slot, before anything begins; None: nobody waits
    consumers: tuple[str, ...] = ()  # by name, for people
    former: Members = ()  # of a keeper that died


class LeaseCoordinator:
    def __init__(self, plan: CoordinatorPlan, make: Callable[[str], LeasesPartitions]) -> None:
        self._plan = plan
        self._make = make
        self._has_work = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._lease_table = LeaseTable(SystemClock(), plan.terms, self._has_work.set)
        self._desk = ChannelServer(plan.bind, plan.host, plan.token, self._hear_worker)
        self._start_barrier = None if plan.start_seconds is None else StartBarrier(plan.tasks)
        self._made: Future[None] = Future()
        self._kept: LeasesPartitions | None = None
        self._counts: list[Any] = []
        self._failures: list[Any] = []  # as workers told of them
        self._is_stopping = False
        self._is_over = False
        self._has_served = False
        self._workers: set[MessageChannel] = set()
        self._steering: dict[str, dict[str, Any]] = {}  # by consumer, as the driver said it
        self._driver: MessageChannel | None = None
        self._thread = threading.Thread(target=self._run, name="multilane-keeper", daemon=True)
        self._thread.start()
        self._made.result()

    @property
    def address(self) -> tuple[str, int]:
        return self._desk.address

    def join(self) -> None:
        """Wait until it has ended."""
        self._thread.join()

    def end(self, timeout: float) -> None:
        """In order, as far as there is time for it; from any thread."""
        self._is_stopping = True
        if self._kept is not None:
            self._kept.stop()
        self._thread.join(timeout)

    # --- what Spark asks for -----------------------------------------------------------------------------------------

    def wait_for_work(self, timeout: float) -> bool:
        """Whether there is something for a batch. Spark asks when the one before has ended."""
        self._hand_over(self._lease_table.end_batch)
        return self._has_work.wait(timeout) and not self._is_stopping

    def plan(self) -> list[int]:
        """The tasks of the next batch."""
        self._has_work.clear()
        return asyncio.run_coroutine_threadsafe(self._planned(), self._loop).result(_PATIENCE)

    async def _planned(self) -> list[int]:
        return self._lease_table.plan(self._plan.tasks) if self._start_barrier is None else self._start_barrier.numbers

    # --- the application ---------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            line = call(self._plan.driver, self._plan.token)
        except LineLost as error:
            self._desk.close()
            self._loop.close()
            self._made.set_exception(error)
            return
        try:
            with in_worker_environment(self._plan.home, 0):
                keeping = self._loop.create_task(self._keep(line))
                despite_exits(lambda: self._loop.run_until_complete(keeping), keeping.done)
        except Exception as error:
            if self._made.done():
                raise
            log.exception("the application has no home here")
            line.tell("failed", error=in_short(error), is_refused=True)
            self._made.set_exception(ConfigError(in_short(error)))
        finally:
            self._is_stopping = self._is_over = True
            self._desk.close()
            for worker in list(self._workers):  # nobody would answer them any more
                worker.close()
            line.close()
            self._loop.close()

    async def _keep(self, line: MessageChannel) -> None:
        self._driver = line
        try:
            kept = self._make(self._plan.target)
        except (Exception, SystemExit) as error:
            log.exception("the application cannot be made here")
            line.tell("failed", error=in_short(error), is_refused=True)
            self._made.set_exception(ConfigError(in_short(error)))
            return
        self._kept = kept
        self._made.set_result(None)
        threading.Thread(target=self._hear_driver, args=(line, kept), name="multilane-driver", daemon=True).start()
        beating = asyncio.create_task(self._beat(line, kept))
        try:
            await self._assemble(line)
            await kept.keep(self._lease_table, self._plan.former)
        except Exception as error:
            log.exception("the application failed")
            line.tell("failed", error=in_short(error), is_refused=isinstance(error, ConfigError))
        finally:
            self._is_stopping = True
            await self._finish_workers()
            beating.cancel()
            self._send_counts(line, kept)
            line.tell("ended")

    async def _assemble(self, line: MessageChannel) -> None:
        """Wait until all tasks have found a slot, if somebody wants to know."""
        start_barrier, seconds = self._start_barrier, self._plan.start_seconds
        if start_barrier is None or seconds is None:
            return
        self._has_work.set()
        deadline = self._loop.time() + seconds
        while not start_barrier.is_complete and not self._is_stopping:
            if self._loop.time() >= deadline:
                advice = f"ask for fewer with --members, or for more slots. {LONGER}"
                raise ConfigError(f"{start_barrier.told} within {seconds:g} s: {advice}")
            await asyncio.wait([self._loop.create_future()], timeout=_LOOK)
        self._start_barrier = None
        self._has_served = start_barrier.is_complete
        start_barrier.end()
        line.tell("assembled")

    async def _finish_workers(self) -> None:
        """They send what their producers were given: the end of Spark would cut that off. First their tasks end."""
        deadline = self._loop.time() + _FINISH_SECONDS
        while self._lease_table.is_lent and self._workers and self._loop.time() < deadline:
            await asyncio.wait([self._loop.create_future()], timeout=_LOOK)
        told = list(self._workers)
        for worker in told:
            worker.tell("finish")
        deadline = self._loop.time() + _FINISH_SECONDS
        while any(worker in self._workers for worker in told) and self._loop.time() < deadline:
            await asyncio.wait([self._loop.create_future()], timeout=_LOOK)

    def _hear_driver(self, line: MessageChannel, kept: LeasesPartitions) -> None:
        while (said := line.receive()) is not None and said["kind"] == "steer":
            self._loop.call_soon_threadsafe(self._steer, said["consumer"], said["steering"])
        if said is None:
            log.warning("the driver is gone: ending in order")
        self._is_stopping = True
        kept.stop()

    def _steer(self, consumer: str, steering: dict[str, Any]) -> None:
        """Workers that come later hear of it before their first loan."""
        self._steering[consumer] = steering
        for worker in list(self._workers):
            worker.tell("steer", consumer=consumer, steering=steering)

    async def _beat(self, line: MessageChannel, kept: LeasesPartitions) -> None:
        while True:
            await asyncio.wait([self._loop.create_future()], timeout=_BEAT_SECONDS)
            self._send_counts(line, kept)

    def _send_counts(self, line: MessageChannel, kept: LeasesPartitions) -> None:
        counts, self._counts = [*self._counts, *kept.counts()], []
        failures, self._failures = self._failures[:_MOST_FAILURES], self._failures[_MOST_FAILURES:]
        members = [[consumer, *astuple(identity)] for consumer, identity in kept.members()]
        line.tell("beat", counts=counts, failures=failures, members=members)

    # --- workers -----------------------------------------------------------------------------------------------------

    def _hear_worker(self, line: MessageChannel) -> None:
        """On the line's own thread, until it ends."""
        self._workers.add(line)
        if self._is_over:
            return
        while (message := line.receive()) is not None:
            self._hand_over(partial(self._on_message, line, message))
        self._workers.discard(line)
        self._hand_over(partial(self._lease_table.lose, line))

    def _hand_over(self, what: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the loop is closed: the run is over
            self._loop.call_soon_threadsafe(what)

    def _on_message(self, line: MessageChannel, message: Message) -> None:
        handle = {
            "hello": self._on_hello,
            "told": self._on_told,
            "given": self._on_given,
            "released": self._on_released,
            "over": self._on_over,
            "counts": self._on_counts,
            "cannot": self._on_cannot,
        }.get(message["kind"])
        if handle is None:
            log.warning("a worker says %r, which is no word of ours", message["kind"])
            return
        try:
            handle(line, message)
        except (KeyError, TypeError, ValueError):
            log.exception("a worker says %r, and what it says of it is not understood", message["kind"])
            line.close()

    def _on_hello(self, line: MessageChannel, message: Message) -> None:
        number = message["number"]
        for consumer, steering in self._steering.items():
            line.tell("steer", consumer=consumer, steering=steering)
        self._grant_leases(line, message)  # before the loan: a worker may be stopped right after it
        log.debug("task %s begins in process %s", number, message.get("pid"))
        if self._start_barrier is not None and not self._is_stopping:
            self._start_barrier.arrive(number, line)
            return
        self._has_served = True
        if self._is_stopping:
            self._lease_table.drop(number)  # nobody would wait for it
        loan = self._lease_table.lend(number, line)
        line.tell("loan", number=number, loan=None if loan is None else loan.to_json())

    def _on_told(self, line: MessageChannel, message: Message) -> None:
        self._lease_table.tell(map(lease_from, message["units"]), line)

    def _on_given(self, line: MessageChannel, message: Message) -> None:
        self._lease_table.give_back(map(lease_from, message["units"]), line)

    def _on_over(self, line: MessageChannel, message: Message) -> None:
        self._on_given(line, message)
        self._lease_table.close(message["number"], line)
        line.tell("closed", number=message["number"])  # before its task ends, and the next batch is planned

    def _on_released(self, line: MessageChannel, message: Message) -> None:
        unit = message["unit"]
        self._lease_table.try_again(unit, tried_from(message["tried"]))
        self._lease_table.release(unit, held_from(message["settled"]), line, is_settled=True)
        self._lease_table.release(unit, held_from(message["undone"]), line, is_settled=False)

    def _on_cannot(self, line: MessageChannel, message: Message) -> None:
        """The application cannot be made in a worker. Once it was in others, that may pass: Spark tries again."""
        del line
        if self._driver is not None and not self._has_served:
            self._driver.tell("failed", error=message["error"], is_refused=True)

    def _on_counts(self, line: MessageChannel, message: Message) -> None:
        self._grant_leases(line, message)
        self._counts += message["counts"]
        self._failures += message.get("failures") or []

    def _grant_leases(self, line: MessageChannel, message: Message) -> None:
        if self._kept is not None and message.get("sent") is not None:
            line.tell("leases", sent=message["sent"], seconds=self._kept.leases())
