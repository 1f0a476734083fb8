"""Processes the error records of one partition in a run, in order, and tracks how far they may be committed.

Thread: loop.

Publishes copies of different keys concurrently, and copies of one key in order. Awaits handlers and last steps before
the next record, because a failure stops the partition at its record. Skips records that were replayed manually: this is
how an operator removes a kept record. While the fence is shut nothing begins, and what can be cancelled begins again
once it opens. Owns the partition's ledger and its tasks. Never commits, and never processes records after one that
waits or is kept.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, assert_never

from multilane.commit.ledger import Ledger
from multilane.errors import PublishStopped
from multilane.lanes.fence import NO_FENCE, FenceGuard
from multilane.lanes.threads import NotBegun
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.outcome.error_policy import (
    ErrorRules,
    GiveUp,
    Handle,
    KeepRecord,
    MoveToDead,
    Republish,
    Verdict,
    WaitUntilDue,
    judge,
)
from multilane.outcome.next_step import Publish, RetryPolicy, moved
from multilane.outcome.own_thread import on_own_thread
from multilane.outcome.raised import as_failure, is_cancelled
from multilane.outcome.redrive import ReplayMarks
from multilane.types import NO_EPOCH

if TYPE_CHECKING:
    from multilane.types import TopicPartition
    from multilane.wire.records.record import Record

log = logger(__name__)

RecordHandler = Callable[["Record"], Any]
SharedLastStep = Callable[["Record", str], Any]
OnKept = Callable[["Record", str], object]
T = TypeVar("T")

_MAX_COPIES: Final = 500  # in flight
_CANCEL_TIMEOUT: Final = 1.0  # seconds for functions that were cancelled


class _FenceShut(Exception):
    """The fence shut during a step, which was cancelled."""


class ErrorPublisher(Protocol):
    """The part of a Publisher that a share uses."""

    def publish(self, copy: Publish, /) -> Awaitable[tuple[int, int]]: ...


@dataclass(frozen=True, slots=True)
class ErrorSteps:
    """The ways to process error records. If a handler or last step raises, the record is kept.

    A coroutine function is cancelled after `max_processing_time` seconds. A `def` function runs on a thread and is
    awaited without a limit. `on_kept` is called on the loop for each kept record.
    """

    publisher: ErrorPublisher
    handlers: Mapping[RetryPolicy, RecordHandler] = field(default_factory=dict)
    last_steps: Mapping[str, SharedLastStep] = field(default_factory=dict)  # by error topic
    max_processing_time: float = 1.0
    on_kept: OnKept | None = None
    observer: Observer = NO_OBSERVER


@dataclass(slots=True)
class RunCounts:
    """What a run has done so far."""

    republished: int = 0
    handled: int = 0
    exhausted: int = 0
    skipped: int = 0  # replayed manually before
    kept: list[tuple[TopicPartition, int, str]] = field(default_factory=list)
    waiting: list[tuple[TopicPartition, int]] = field(default_factory=list)


class ErrorPartition:
    def __init__(
        self,
        partition: TopicPartition,
        rules: ErrorRules,
        steps: ErrorSteps,
        counts: RunCounts,
        replayed: ReplayMarks,
        fence: FenceGuard = NO_FENCE,
    ) -> None:
        self.partition = partition
        self._replayed = replayed
        self._fence = fence
        self._fence.join(self)
        self._interruptible: set[asyncio.Timeout] = set()  # what ends when the fence shuts
        self.committed: int | None = None
        self.finished: str | None = None
        self._rules = rules
        self._steps = steps
        self._counts = counts
        self._ledger: Ledger | None = None
        self._waiting: deque[tuple[Iterator[Record], int]] = deque()  # with their leader epoch
        self._epoch: int = NO_EPOCH  # of the records in progress
        self._chains: dict[bytes, asyncio.Task[bool]] = {}
        self._copies: set[asyncio.Task[bool]] = set()
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def is_busy(self) -> bool:
        return self._task is not None and not self._task.done()

    @property
    def frontier(self) -> int | None:
        """The offset that may be committed; None before the first record."""
        return None if self._ledger is None else self._ledger.frontier

    @property
    def leader_epoch(self) -> int:
        """The leader epoch at the frontier, so that a truncated log is noticed."""
        return NO_EPOCH if self._ledger is None else self._ledger.commit_point().leader_epoch

    def take(
        self,
        records: Iterator[Record],
        now_ms: Callable[[], int],
        on_done: Callable[[], object],
        leader_epoch: int = NO_EPOCH,
    ) -> None:
        """Process these records, after those in progress."""
        if self.finished is not None or self._is_stopping:
            return
        self._waiting.append((records, leader_epoch))
        if not self.is_busy:
            self._task = asyncio.create_task(self._process(now_ms))
            self._task.add_done_callback(lambda _: on_done())

    async def drain(self, timeout: float) -> None:
        """Begin no more records, finish those in flight, and abandon those that exceed the timeout."""
        self._is_stopping = True
        self._fence.leave(self)
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=timeout)
        await self.drop()

    async def drop(self) -> None:
        """Abandon everything at once. Copies in flight may be stored; their records are not settled."""
        self._is_stopping = True
        self._fence.leave(self)
        tasks: list[asyncio.Task[Any]] = [*self._copies]
        if self._task is not None:
            tasks.append(self._task)
        for task in tasks:
            task.cancel()
        if tasks:
            _, stuck = await asyncio.wait(tasks, timeout=_CANCEL_TIMEOUT)
            if stuck:
                log.error("%s: abandoning a function that ignores its cancellation", self.partition)

    # --- the fence ---------------------------------------------------------------------------------------------------

    def look_up(self) -> None:
        """Nothing to do: every step checks the fence before it begins."""

    def interrupt(self) -> None:
        """Cancel coroutines and copies that are not acknowledged. `def` functions run to their end."""
        now = asyncio.get_running_loop().time()
        for limit in self._interruptible:
            if not limit.expired():  # it ignores its cancellation
                limit.reschedule(now)

    async def _until_fenced(self, step: Awaitable[T]) -> T:
        """Raises _FenceShut if the fence shuts meanwhile."""
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._interruptible.add(limit)
                return await step
        except TimeoutError:
            if not limit.expired():
                raise
            raise _FenceShut from None
        finally:
            self._interruptible.discard(limit)

    async def _behind_fence(self, step: Callable[[], Awaitable[None]]) -> None:
        """Begin a step once the fence is open, and begin it again if it was interrupted. Raises NotBegun if this share
        ends before."""
        while True:
            await self._fence.opens(self)
            try:
                return await step()
            except _FenceShut:
                continue

    # --- record by record --------------------------------------------------------------------------------------------

    async def _process(self, now_ms: Callable[[], int]) -> None:
        try:
            await self._process_waiting(now_ms)
        except NotBegun:
            pass  # it drains behind a shut fence
        except Exception as error:
            # Whatever the error is, the partition must not continue after records that were not processed.
            log.exception("processing %s failed", self.partition)
            self._end(f"{type(error).__name__}: {error}")
        finally:
            self._waiting.clear()
        if self._copies:
            await asyncio.wait(self._copies)
        self._chains.clear()

    async def _process_waiting(self, now_ms: Callable[[], int]) -> None:
        while self._waiting and not self._has_to_stop:
            records, self._epoch = self._waiting[0]
            record = next(records, None)
            if record is None:
                self._waiting.popleft()
                continue
            if record.offset in self._replayed:
                self._begin(record).settle(record.offset)
                self._counts.skipped += 1
            else:
                await self._fence.opens(self)
                await self._act(record, judge(self._rules, record, now_ms()))
            if len(self._copies) >= _MAX_COPIES:
                await asyncio.wait(self._copies, return_when=asyncio.FIRST_COMPLETED)

    @property
    def _has_to_stop(self) -> bool:
        return self._is_stopping or self.finished is not None

    async def _act(self, record: Record, verdict: Verdict) -> None:
        match verdict:
            case WaitUntilDue():
                self._end("its next record is too new")
                self._counts.waiting.append((self.partition, record.offset))
            case KeepRecord():
                self._keep(record, verdict.reason)
            case Republish():
                self._republish(record, verdict.copy)
            case Handle():
                await self._attempt(record, lambda: self._handle(record, verdict))
            case MoveToDead():
                await self._attempt(record, lambda: self._move_to_dead(record, verdict))
            case GiveUp():
                await self._attempt(record, lambda: self._give_up(record, verdict.reason))
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
        """Publish a copy after the previous one of its key. If that one was not stored, this one must not be either."""
        try:
            if before is not None:
                await asyncio.wait([before])
                if before.cancelled() or not before.result():
                    return False
            await self._behind_fence(lambda: self._publish(copy))
        except NotBegun:
            return False
        except PublishStopped as stopped:
            self._end(str(stopped))
            return False
        except Exception as error:
            log.exception("publishing the copy of %s failed", copy.origin)
            self._end(f"{type(error).__name__}: {error}")
            return False
        ledger.settle(record.offset)
        self._counts.republished += 1
        self._steps.observer.count("errors.republished", topic=record.topic, target=copy.topic)
        return True

    async def _publish(self, copy: Publish) -> None:
        """Cancelled, it withdraws a copy that the producer does not have yet, and sends no further attempts."""
        await self._until_fenced(self._steps.publisher.publish(copy))

    async def _attempt(self, record: Record, step: Callable[[], Awaitable[None]]) -> None:
        """Run code of the application. If it fails, the record is kept."""
        ledger = self._begin(record)
        try:
            await self._behind_fence(step)
        except PublishStopped as stopped:
            self._end(str(stopped))
        except BaseException as raised:
            if is_cancelled(raised) or isinstance(raised, NotBegun):
                raise
            error = as_failure(raised)
            log.exception("%s@%d: handling the error record failed", self.partition, record.offset)
            self._keep(record, f"{type(error).__name__}: {error}")
        else:
            ledger.settle(record.offset)

    async def _handle(self, record: Record, verdict: Handle) -> None:
        await self._call(self._steps.handlers[verdict.retry_policy], record)
        self._counts.handled += 1
        self._steps.observer.count("errors.handled", topic=record.topic)

    async def _give_up(self, record: Record, reason: str) -> None:
        last_step = self._steps.last_steps.get(record.topic)
        if last_step is not None:
            await self._call(last_step, record, reason)
        elif self._rules.dead is not None:
            await self._publish(moved(record, self._rules.dead, record.headers))
        else:
            log.warning("%s@%d is exhausted and stays in its error topic: %s", self.partition, record.offset, reason)
        self._counts.exhausted += 1
        self._steps.observer.count("errors.given_up", topic=record.topic)

    async def _move_to_dead(self, record: Record, verdict: MoveToDead) -> None:
        await self._publish(verdict.copy)
        text = "%s@%d goes to the dead topic %s: %s"
        log.warning(text, self.partition, record.offset, verdict.copy.topic, verdict.reason)
        self._counts.exhausted += 1
        self._steps.observer.count("errors.buried", topic=record.topic)

    async def _call(self, function: Callable[..., Any], *arguments: Any) -> None:
        if not inspect.iscoroutinefunction(function) and not inspect.iscoroutinefunction(type(function).__call__):
            result = await on_own_thread(function, *arguments)
            if inspect.isawaitable(result):  # a `def` function that returns a coroutine
                await self._within_time(result)
            return
        await self._within_time(function(*arguments))

    async def _within_time(self, result: Awaitable[Any]) -> None:
        limit = asyncio.timeout(self._steps.max_processing_time)
        try:
            async with limit:
                await self._until_fenced(result)
        except TimeoutError:
            if not limit.expired():
                raise
            raise TimeoutError(f"exceeded maxProcessingTime ({self._steps.max_processing_time:g} s)") from None

    def _keep(self, record: Record, reason: str) -> None:
        self._end(f"a record is kept: {reason}")
        self._counts.kept.append((self.partition, record.offset, reason))
        self._steps.observer.count("errors.kept", topic=record.topic)
        log.error(
            "%s@%d stays in the error topic; later records wait behind it: %s", self.partition, record.offset, reason
        )
        if self._steps.on_kept is not None:
            self._steps.on_kept(record, reason)

    def _end(self, reason: str) -> None:
        if self.finished is None:
            self.finished = reason
