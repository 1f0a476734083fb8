"""The worker's side of a lease, in a Spark worker process that runs one task after another.

Thread: the worker's own calls `work`; an event loop on a thread of its own runs the application, and a third thread
receives from the coordinator.

The application is found by import path, once for each process and run: its event loop, pools and producers live as long
as the process. When a run is over or its coordinator is gone, it takes no more records, and calls in flight are
abandoned. A task whose coordinator has died ends without an error: Spark would retry it again and again, and never get
an answer. The query ends by itself then, and is restarted. Owns the lease workers of this process.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Coroutine, Iterable, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from typing import Any, Final, Protocol, TypeVar

from multilane.clock import SystemClock
from multilane.engines.batches.lease_coordinator import CoordinatorSpec
from multilane.engines.batches.messages import (
    FromWorker,
    HeldRecord,
    PartitionLease,
    TaskLease,
    ToWorker,
    held_from,
    task_lease_from,
)
from multilane.engines.channel.channel import ChannelMessage, MessageChannel, connect
from multilane.engines.worker_environment import in_worker_environment
from multilane.errors import ChannelLost, MemberFailed
from multilane.lanes.consumer_overrides import ConsumerOverrides, overrides_from
from multilane.lanes.interpreter import loop_on_thread
from multilane.logs import logger
from multilane.spark.reasons import in_short

log = logger(__name__)

T = TypeVar("T")
_ANSWER_SECONDS: Final = 60.0
_REPORT_SECONDS: Final = 1.0


class LeaseWork(Protocol):
    """What a factory makes: the application's side."""

    async def open(self, send: Callable[..., None]) -> None: ...

    async def close(self) -> None: ...

    async def serve(self, lease: TaskLease) -> list[PartitionLease]:
        """Until its time is up; then sends `over`."""
        ...

    async def revoke(self, number: int, seconds: float) -> None: ...

    def end(self) -> None: ...

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None: ...

    def release(self, number: int, held: Iterable[HeldRecord]) -> None: ...

    def renew(self, until: Mapping[str, float]) -> None:
        """By consumer: its partitions are assigned to no other member before this time, on the monotonic clock."""
        ...

    def counts(self) -> list[Any]: ...

    def gauges(self) -> list[Any]: ...

    def failures(self) -> list[Any]: ...


class LeaseWorker:
    def __init__(
        self, spec: CoordinatorSpec, address: tuple[str, int], number: int, make: Callable[[str], LeaseWork]
    ) -> None:
        self.address = address
        self._lease_timeout = _ANSWER_SECONDS + (spec.start_seconds or 0.0)  # the first answer waits for all slots
        self._stack = ExitStack()
        self._clock = SystemClock()
        self._channel: MessageChannel = connect(address, spec.token)
        self._stack.callback(self._channel.close)
        try:
            self._stack.enter_context(in_worker_environment(spec.worker_home, number))
            self._app = make(spec.target)
            self._loop = self._stack.enter_context(loop_on_thread("multilane-worker"))
            self._on_loop(self._app.open(self._channel.try_send)).result()
        except BaseException as error:
            self._channel.try_send(FromWorker.CANNOT_START, error=in_short(error))
            self._stack.close()
            raise
        self._answers: dict[tuple[ToWorker, int], Future[Any]] = {}
        self.is_lost = False
        self._abandoning = threading.Lock()
        self._has_abandoned = False
        self._reporting = self._on_loop(self._report())
        threading.Thread(target=self._receive, name="multilane-coordinator", daemon=True).start()

    def work(self, number: int) -> list[PartitionLease]:
        """Run the task with this number. Ends when the coordinator has the final progress of its leases."""
        granted, closed = (self._expect(answer, number) for answer in (ToWorker.GRANT, ToWorker.CLOSED))
        try:
            self._channel.send(FromWorker.HELLO, number=number, pid=os.getpid(), sent=self._clock.monotonic())
            if self.is_lost:  # it was lost before `hello`
                raise ChannelLost("the coordinator of this run is gone")
            serving: Future[list[PartitionLease]] | None = granted.result(self._lease_timeout)
            if serving is None:
                return []
            leases = serving.result()
            closed.result(self._lease_timeout)
            return leases
        finally:
            self._answers.pop((ToWorker.CLOSED, number), None)

    def _expect(self, answer: ToWorker, number: int) -> Future[Any]:
        expected: Future[Any] = Future()
        self._answers[answer, number] = expected
        return expected

    def close(self) -> None:
        self._abandon()
        self._stack.close()

    def _abandon(self) -> None:
        """Abandon calls in flight: their results do not count any more. Once."""
        with self._abandoning:
            if not self._has_abandoned:
                self._has_abandoned = True
                self._reporting.cancel()
                with suppress(Exception):
                    self._on_loop(self._app.close()).result(_ANSWER_SECONDS)

    def _on_loop(self, coroutine: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    async def _report(self) -> None:
        while True:
            await asyncio.wait([self._loop.create_future()], timeout=_REPORT_SECONDS)
            sent = self._clock.monotonic()
            self._channel.try_send(
                FromWorker.COUNTS,
                counts=self._app.counts(),
                failures=self._app.failures(),
                gauges=self._app.gauges(),
                sent=sent,
            )

    # --- messages of the coordinator ---------------------------------------------------------------------------------

    def _receive(self) -> None:
        is_finished = False
        try:
            while not is_finished and (message := self._channel.receive()) is not None:
                is_finished = message["kind"] == ToWorker.FINISH
                if not is_finished:
                    self._on_message(message)
        finally:
            self.is_lost = True
            if is_finished:
                log.debug("the run is over")
            elif self._answers:
                log.warning("the query's process is gone: abandoning calls in progress; their records are redelivered")
            else:
                log.warning("the query's process is gone; no task was running here")
            for answer in list(self._answers.values()):
                answer.set_exception(ChannelLost("the coordinator of this run is gone"))
            self._abandon()
            self._channel.close()  # the coordinator waits for it

    def _on_message(self, message: ChannelMessage) -> None:
        match message["kind"]:
            case ToWorker.GRANT:
                # Started here, so that later messages find it started.
                lease = message["loan"]
                self._answer(ToWorker.GRANT, message, None if lease is None else self._serve(task_lease_from(lease)))
            case ToWorker.CLOSED:
                self._answer(ToWorker.CLOSED, message, None)
            case ToWorker.RELEASED:
                self._loop.call_soon_threadsafe(self._app.release, message["unit"], held_from(message["held"]))
            case ToWorker.REVOKE:
                self._on_loop(self._app.revoke(message["unit"], message["seconds"]))
            case ToWorker.APPLY_OVERRIDES:
                overrides = overrides_from(message["steering"])
                self._loop.call_soon_threadsafe(self._app.apply_overrides, message["consumer"], overrides)
            case ToWorker.RENEW:
                # From the time of our request, not of the answer.
                until = {consumer: message["sent"] + seconds for consumer, seconds in message["seconds"].items()}
                self._loop.call_soon_threadsafe(self._app.renew, until)
            case ToWorker.END:
                self._loop.call_soon_threadsafe(self._app.end)

    def _serve(self, lease: TaskLease) -> Future[list[PartitionLease]]:
        return self._on_loop(self._app.serve(lease))

    def _answer(self, kind: ToWorker, message: ChannelMessage, result: Any) -> None:
        expected = self._answers.pop((kind, message["number"]), None)
        if expected is not None:
            expected.set_result(result)


# --- the lease workers of this process -------------------------------------------------------------------------------

_workers: dict[str, LeaseWorker] = {}  # by run


def work(
    spec: CoordinatorSpec, address: tuple[str, int], number: int, make: Callable[[str], LeaseWork]
) -> list[PartitionLease]:
    """Run a task of a run. Other runs are over, and leases of an earlier coordinator of this run are void."""
    has_lost = _close_former(spec, address)
    if has_lost and not _is_there(spec, address):
        return []
    worker = _workers.get(spec.run)
    if worker is None:
        logging.basicConfig(level=spec.log_level, format="%(asctime)s worker %(process)d %(levelname)s %(message)s")
        try:
            worker = _workers[spec.run] = LeaseWorker(spec, address, number, make)
        except (Exception, SystemExit) as error:
            log.exception("cannot load the application in this worker")
            why = f"{type(error).__name__}: {error}"
            raise MemberFailed(f"cannot load the application in this worker: {why}") from error
    try:
        return worker.work(number)
    except ChannelLost:
        if _is_there(spec, address):  # only the connection broke: Spark retries the task, with the same leases
            raise
        return []


def _close_former(spec: CoordinatorSpec, address: tuple[str, int]) -> bool:
    """Whether this process lost the coordinator at this address before."""
    has_lost = False
    for run, former in list(_workers.items()):
        if run != spec.run or former.is_lost or former.address != address:
            has_lost |= former.is_lost and former.address == address
            del _workers[run]
            former.close()
    return has_lost


def _is_there(spec: CoordinatorSpec, address: tuple[str, int]) -> bool:
    try:
        connect(address, spec.token).close()
    except ChannelLost:
        return False
    return True
