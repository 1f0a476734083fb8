"""One partition's share of an error run: its records in order, each acted upon, and how far it may be committed.

Thread: loop.

Copies of different keys are under way together, those of one key one after the other; handlers and last steps are
awaited before the next record is looked at, because one that fails stops the partition in front of its record. Owns the
partition's ledger and its tasks; never commits, and never touches what is behind a record that waits or is kept. What
was replayed by hand is passed over: that is how people get a kept record out of the way.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, assert_never

from multilane.commit.ledger import Ledger
from multilane.errors import PublishStopped
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.outcome.error_policy import (
    Bury,
    ErrorRules,
    GiveUp,
    Handle,
    KeepRecord,
    Republish,
    Verdict,
    WaitUntilDue,
    judge,
)
from multilane.outcome.flow import Publish, RetryFlow, moved
from multilane.outcome.own_thread import on_own_thread
from multilane.outcome.raised import as_failure, is_cancelled
from multilane.outcome.redrive import ReplayMarks
from multilane.types import NO_EPOCH

if TYPE_CHECKING:
    from multilane.types import TopicPartition
    from multilane.wire.records.record import Record

log = logger(__name__)

Handler = Callable[["Record"], Any]
LastStepFunction = Callable[["Record", str], Any]
OnKept = Callable[["Record", str], object]

_MOST_UNDER_WAY: Final = 500
_PARTING: Final = 1.0  # seconds for functions that were cancelled


class ErrorPublisher(Protocol):
    """What is needed of a Publisher."""

    def publish(self, copy: Publish, /) -> Awaitable[tuple[int, int]]: ...


@dataclass(frozen=True, slots=True)
class ErrorSteps:
    """What can be done with error records. A handler or last step that raises means: keep the record.

    One that is a coroutine function is cancelled after `max_processing_time` seconds; another runs on a thread and is
    waited for. Whoever wants to know of kept records gets `on_kept`, on the loop.
    """

    publisher: ErrorPublisher
    handlers: Mapping[RetryFlow, Handler] = field(default_factory=dict)
    last_steps: Mapping[str, LastStepFunction] = field(default_factory=dict)  # by error topic
    max_processing_time: float = 1.0
    on_kept: OnKept | None = None
    observer: Observer = NO_OBSERVER


@dataclass(slots=True)
class RunCounts:
    """What a run has done so far."""

    republished: int = 0
    handled: int = 0
    given_up: int = 0
    passed_over: int = 0  # replayed by hand before
    kept: list[tuple[TopicPartition, int, str]] = field(default_factory=list)
    waiting: list[tuple[TopicPartition, int]] = field(default_factory=list)


class PartitionShare:
    def __init__(
        self, partition: TopicPartition, rules: ErrorRules, steps: ErrorSteps, tally: RunCounts, replayed: ReplayMarks
    ) -> None:
        self.partition = partition
        self._replayed = replayed
        self.committed: int | None = None
        self.finished: str | None = None
        self._rules = rules
        self._steps = steps
        self._tally = tally
        self._ledger: Ledger | None = None
        self._waiting: deque[tuple[Iterator[Record], int]] = deque()  # and the leader epoch at the end of them
        self._epoch: int = NO_EPOCH  # of what is being worked on
        self._chains: dict[bytes, asyncio.Task[bool]] = {}
        self._copies: set[asyncio.Task[bool]] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def frontier(self) -> int | None:
        """What may be committed; None when nothing was acted upon."""
        return None if self._ledger is None else self._ledger.frontier

    @property
    def leader_epoch(self) -> int:
        """At the frontier, so that a log which was cut since is noticed."""
        return NO_EPOCH if self._ledger is None else self._ledger.commit_point().leader_epoch

    def take(
        self,
        records: Iterator[Record],
        now_ms: Callable[[], int],
        on_done: Callable[[], object],
        leader_epoch: int = NO_EPOCH,
    ) -> None:
        """Work on these, after those that are being worked on."""
        if self.finished is not None or self._is_stopping:
            return
        self._waiting.append((records, leader_epoch))
        if not self.is_busy:
            self._task = asyncio.create_task(self._work(now_ms))
            self._task.add_done_callback(lambda _: on_done())

    async def drain(self, timeout: float) -> None:
        """Begin nothing more, finish what is begun, and give up what takes longer."""
        self._is_stopping = True
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout)
        await self.drop()

    async def drop(self) -> None:
        """Give up at once. Copies that are on their way may be stored; their records are not settled."""
        self._is_stopping = True
        tasks: list[asyncio.Task[Any]] = [*self._copies]
        if self._task is not None:
            tasks.append(self._task)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=_PARTING)
            if stuck:
                log.error("%s: abandoning a function that ignores its cancellation", self.partition)

    # --- record by record --------------------------------------------------------------------------------------------

    async def _work(self, now_ms: Callable[[], int]) -> None:
        try:
            await self._work_through(now_ms)
        except Exception as error:
            # Whatever it was, the partition must not go on behind records that were not acted upon.
            log.exception("the work on %s failed", self.partition)
            self._end(f"{type(error).__name__}: {error}")
        finally:
            self._waiting.clear()
        if self._copies:
            await asyncio.wait(self._copies)
        self._chains.clear()

    async def _work_through(self, now_ms: Callable[[], int]) -> None:
        while self._waiting and not self._has_to_stop:
            records, self._epoch = self._waiting[0]
            record = next(records, None)
            if record is None:
                self._waiting.popleft()
                continue
            if record.offset in self._replayed:
                self._begin(record).settle(record.offset)
                self._tally.passed_over += 1
            else:
                await self._act(record, judge(self._rules, record, now_ms()))
            if len(self._copies) >= _MOST_UNDER_WAY:
                await asyncio.wait(self._copies, return_when=asyncio.FIRST_COMPLETED)

    @property
    def _has_to_stop(self) -> bool:
        return self._is_stopping or self.finished is not None

    async def _act(self, record: Record, verdict: Verdict) -> None:
        match verdict:
            case WaitUntilDue():
                self._end("its next record is too new")
                self._tally.waiting.append((self.partition, record.offset))
            case KeepRecord():
                self._keep(record, verdict.reason)
            case Republish():
                self._republish(record, verdict.copy)
            case Handle():
                await self._attempt(record, self._handle(record, verdict))
            case Bury():
                await self._attempt(record, self._bury(record, verdict))
            case GiveUp():
                await self._attempt(record, self._give_up(record, verdict.reason))
            case _:
                assert_never(verdict)

    def _begin(self, record: Record) -> Ledger:
        if self._ledger is None:
            self._ledger = Ledger(record.offset)
        self._ledger.hand_out((record.offset,))
        self._ledger.advance(record.offset + 1, self._epoch)
        return self._ledger

    def _republish(self, record: Record, copy: Publish) -> None:
        before = self._chains.get(copy.key) if copy.key is not None else None
        task = asyncio.create_task(self._copy(record, copy, before, self._begin(record)))
        self._copies.add(task)
        task.add_done_callback(self._copies.discard)
        if copy.key is not None:
            self._chains[copy.key] = task

    async def _copy(self, record: Record, copy: Publish, before: asyncio.Task[bool] | None, ledger: Ledger) -> bool:
        """One copy, behind the last one with its key; if that was not stored, this must not be either."""
        try:
            if before is not None:
                await asyncio.wait([before])
                if before.cancelled() or not before.result():
                    return False
            await self._steps.publisher.publish(copy)
        except PublishStopped as stopped:
            self._end(str(stopped))
            return False
        except Exception as error:
            log.exception("the copy of %s failed", copy.origin)
            self._end(f"{type(error).__name__}: {error}")
            return False
        ledger.settle(record.offset)
        self._tally.republished += 1
        self._steps.observer.count("errors.republished", topic=record.topic, target=copy.topic)
        return True

    async def _attempt(self, record: Record, step: Awaitable[None]) -> None:
        """Code of the application's: if it fails the record is kept."""
        ledger = self._begin(record)
        try:
            await step
        except PublishStopped as stopped:
            self._end(str(stopped))
        except BaseException as raised:
            if is_cancelled(raised):
                raise
            error = as_failure(raised)
            log.exception("%s@%d: its error was not handled", self.partition, record.offset)
            self._keep(record, f"{type(error).__name__}: {error}")
        else:
            ledger.settle(record.offset)

    async def _handle(self, record: Record, verdict: Handle) -> None:
        await self._call(self._steps.handlers[verdict.flow], record)
        self._tally.handled += 1
        self._steps.observer.count("errors.handled", topic=record.topic)

    async def _give_up(self, record: Record, reason: str) -> None:
        last_step = self._steps.last_steps.get(record.topic)
        if last_step is not None:
            await self._call(last_step, record, reason)
        elif self._rules.dead is not None:
            await self._steps.publisher.publish(moved(record, self._rules.dead, record.headers))
        else:
            log.warning("%s@%d is given up and stays in its error topic: %s", self.partition, record.offset, reason)
        self._tally.given_up += 1
        self._steps.observer.count("errors.given_up", topic=record.topic)

    async def _bury(self, record: Record, verdict: Bury) -> None:
        await self._steps.publisher.publish(verdict.copy)
        told = "%s@%d goes to the dead topic %s: %s"
        log.warning(told, self.partition, record.offset, verdict.copy.topic, verdict.reason)
        self._tally.given_up += 1
        self._steps.observer.count("errors.buried", topic=record.topic)

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(type(function).__call__):
            answer = await on_own_thread(function, *arguments)
            if inspect.isawaitable(answer):  # a plain function that makes a coroutine
                await self._within_time(answer)
            return
        await self._within_time(function(*arguments))

    async def _within_time(self, answer: Awaitable[Any]) -> None:
        limit = asyncio.timeout(self._steps.max_processing_time)
        try:
            async with limit:
                await answer
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"not done within maxProcessingTime, {self._steps.max_processing_time:g} s") from None

    def _keep(self, record: Record, reason: str) -> None:
        self._end(f"a record is kept: {reason}")
        self._tally.kept.append((self.partition, record.offset, reason))
        self._steps.observer.count("errors.kept", topic=record.topic)
        log.error("%s@%d is kept, and what is behind it waits: %s", self.partition, record.offset, reason)
        if self._steps.on_kept is not None:
            self._steps.on_kept(record, reason)

    def _end(self, reason: str) -> None:
        if self.finished is None:
            self.finished = reason
