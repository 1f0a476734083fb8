"""What works in a Spark worker process, for one task after the other.

Thread: the worker's own calls `work`; an event loop on a thread of its own runs the application, and a third thread
hears the keeper.

The application is found by import path, once for each process and run: its event loop, pools and producers live as
long as the process does. A run that is over, or whose keeper is gone, takes no more records: whatever is in work is
given up. A task whose keeper has died ends without an error: Spark would run it again and again, and nobody would
answer. The query ends by itself then, and is started again. Owns the hands of this process.
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
from multilane.engines.batches.lease_coordinator import CoordinatorPlan
from multilane.engines.batches.messages import HeldRecord, PartitionLease, TaskLease, held_from, task_lease_from
from multilane.engines.channel.channel import Message, MessageChannel, call
from multilane.engines.worker_environment import in_worker_environment
from multilane.errors import LineLost, MemberFailed
from multilane.lanes.consumer_overrides import ConsumerOverrides, overrides_from
from multilane.lanes.interpreter import loop_on_thread
from multilane.logs import logger
from multilane.spark.reasons import in_short

log = logger(__name__)

T = TypeVar("T")
_ANSWER_SECONDS: Final = 60.0
_BEAT_SECONDS: Final = 1.0


class LeaseWork(Protocol):
    """What a factory makes."""

    async def open(self, tell: Callable[..., None]) -> None: ...

    async def close(self) -> None: ...

    async def serve(self, loan: TaskLease) -> list[PartitionLease]:
        """Until its time is up; then tells `over`."""
        ...

    async def give_back(self, number: int, seconds: float) -> None: ...

    def end(self) -> None: ...

    def steer(self, consumer: str, steering: ConsumerOverrides) -> None: ...

    def release_held(self, number: int, held: Iterable[HeldRecord]) -> None: ...

    def renew(self, until: Mapping[str, float]) -> None:
        """By consumer: nobody else gets what it was lent before this time, on the monotonic clock."""
        ...

    def counts(self) -> list[Any]: ...

    def failures(self) -> list[Any]: ...


class LeaseWorker:
    def __init__(
        self, plan: CoordinatorPlan, address: tuple[str, int], number: int, make: Callable[[str], LeaseWork]
    ) -> None:
        self.address = address
        self._patience = _ANSWER_SECONDS + (plan.start_seconds or 0.0)  # the first loan comes when all have a slot
        self._stack = ExitStack()
        self._clock = SystemClock()
        self._line: MessageChannel = call(address, plan.token)
        self._stack.callback(self._line.close)
        try:
            self._stack.enter_context(in_worker_environment(plan.worker_home, number))
            self._worker = make(plan.target)
            self._loop = self._stack.enter_context(loop_on_thread("multilane-hands"))
            self._on_loop(self._worker.open(self._tell)).result()
        except BaseException as error:
            self._tell("cannot", error=in_short(error))
            self._stack.close()
            raise
        self._answers: dict[tuple[str, int], Future[Any]] = {}
        self.is_lost = False
        self._giving_up = threading.Lock()
        self._has_given_up = False
        self._beating = self._on_loop(self._beat())
        threading.Thread(target=self._hear, name="multilane-keeper", daemon=True).start()

    def work(self, number: int) -> list[PartitionLease]:
        """What the task with this number is there for. It ends when the keeper knows how its units are."""
        begun, closed = (self._expect(answer, number) for answer in ("loan", "closed"))
        try:
            self._line.send("hello", number=number, pid=os.getpid(), sent=self._clock.monotonic())
            if self.is_lost:  # it ended before this was asked
                raise LineLost("the keeper of this run is gone")
            serving: Future[list[PartitionLease]] | None = begun.result(self._patience)
            if serving is None:
                return []
            units = serving.result()
            closed.result(self._patience)
            return units
        finally:
            self._answers.pop(("closed", number), None)

    def _expect(self, answer: str, number: int) -> Future[Any]:
        expected: Future[Any] = Future()
        self._answers[answer, number] = expected
        return expected

    def close(self) -> None:
        self._give_up()
        self._stack.close()

    def _give_up(self) -> None:
        """Whatever is in work: nobody wants it any more. Once."""
        with self._giving_up:
            if not self._has_given_up:
                self._has_given_up = True
                self._beating.cancel()
                with suppress(Exception):
                    self._on_loop(self._worker.close()).result(_ANSWER_SECONDS)

    def _on_loop(self, what: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(what, self._loop)

    def _tell(self, kind: str, **fields: Any) -> None:
        with suppress(LineLost):  # whoever hears it ends what has to end
            self._line.send(kind, **fields)

    async def _beat(self) -> None:
        while True:
            await asyncio.wait([self._loop.create_future()], timeout=_BEAT_SECONDS)
            sent = self._clock.monotonic()
            self._tell("counts", counts=self._worker.counts(), failures=self._worker.failures(), sent=sent)

    # --- the keeper's words ------------------------------------------------------------------------------------------

    def _hear(self) -> None:
        is_finished = False
        try:
            while not is_finished and (message := self._line.receive()) is not None:
                is_finished = message["kind"] == "finish"
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
                answer.set_exception(LineLost("the keeper of this run is gone"))
            self._give_up()
            self._line.close()  # by which the keeper knows

    def _on_message(self, message: Message) -> None:
        match message["kind"]:
            case "loan":
                # Begun here, so that what is said next finds it begun.
                loan = message["loan"]
                self._answer("loan", message, None if loan is None else self._serve(task_lease_from(loan)))
            case "closed":
                self._answer("closed", message, None)
            case "freed":
                self._loop.call_soon_threadsafe(self._worker.release_held, message["unit"], held_from(message["held"]))
            case "back":
                self._on_loop(self._worker.give_back(message["unit"], message["seconds"]))
            case "steer":
                told = overrides_from(message["steering"])
                self._loop.call_soon_threadsafe(self._worker.steer, message["consumer"], told)
            case "leases":
                # Since we asked, not since we were answered.
                until = {consumer: message["sent"] + seconds for consumer, seconds in message["seconds"].items()}
                self._loop.call_soon_threadsafe(self._worker.renew, until)
            case "end":
                self._loop.call_soon_threadsafe(self._worker.end)

    def _serve(self, loan: TaskLease) -> Future[list[PartitionLease]]:
        return self._on_loop(self._worker.serve(loan))

    def _answer(self, kind: str, message: Message, what: Any) -> None:
        asked = self._answers.pop((kind, message["number"]), None)
        if asked is not None:
            asked.set_result(what)


# --- the hands of this process ---------------------------------------------------------------------------------------

_hands: dict[str, LeaseWorker] = {}


def work(
    plan: CoordinatorPlan, address: tuple[str, int], number: int, make: Callable[[str], LeaseWork]
) -> list[PartitionLease]:
    """For a task of a run; other runs are over, and so is whatever another keeper of this one has lent."""
    has_lost = _close_former(plan, address)
    if has_lost and not _is_there(plan, address):
        return []
    hands = _hands.get(plan.run)
    if hands is None:
        logging.basicConfig(level=plan.log_level, format="%(asctime)s worker %(process)d %(levelname)s %(message)s")
        try:
            hands = _hands[plan.run] = LeaseWorker(plan, address, number, make)
        except (Exception, SystemExit) as error:
            log.exception("the application cannot be made here")
            raise MemberFailed(f"the application cannot be made here: {type(error).__name__}: {error}") from error
    try:
        return hands.work(number)
    except LineLost:
        if _is_there(plan, address):  # only the line broke: Spark runs the task again, with the same loan
            raise
        return []


def _close_former(plan: CoordinatorPlan, address: tuple[str, int]) -> bool:
    """Whether the keeper at this address was lost from here before."""
    has_lost = False
    for run, former in list(_hands.items()):
        if run != plan.run or former.is_lost or former.address != address:
            has_lost |= former.is_lost and former.address == address
            del _hands[run]
            former.close()
    return has_lost


def _is_there(plan: CoordinatorPlan, address: tuple[str, int]) -> bool:
    try:
        call(address, plan.token).close()
    except LineLost:
        return False
    return True
