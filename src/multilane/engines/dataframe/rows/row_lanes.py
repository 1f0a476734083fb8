"""Builds the lanes for the rows of a task: a composition root in Spark's worker.

Thread: loop.

Like the lane factory of an app, without what rows have no use for: a group, brokers, retry and error topics, an audit,
and the search for records that kill their process (a row's number means nothing to the next process). A failed row is
retried in place, and then stays in the frame. Owns nothing that outlives a task but its counts.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, NoReturn
from zlib import crc32

from multilane.clock import Clock
from multilane.commit.ledger import Ledger
from multilane.engines.dataframe.record_verdicts import RecordVerdicts
from multilane.engines.dataframe.rows.arguments import Arguments
from multilane.engines.dataframe.rows.function import RowFunction
from multilane.engines.dataframe.rows.pace import Pace
from multilane.engines.dataframe.rows.row_calls import listener_of
from multilane.engines.dataframe.rows.row_store import RowStore
from multilane.errors import WrongResult
from multilane.lanes.assignment import Starts
from multilane.lanes.chains import Chains
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.failure_log import FailureSink
from multilane.lanes.failure_report import FailureReport
from multilane.lanes.gate import NO_GATE, OutageGate
from multilane.lanes.intake import PIECE, PIECE_OF_ROWS, Intake
from multilane.lanes.ordering import by_key
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.partition_queue import MAIN, PartitionQueue
from multilane.lanes.progress import DEAD
from multilane.lanes.row_chains import RowChains
from multilane.lanes.threads import Threads
from multilane.lanes.waiting_records import WaitingRecords
from multilane.lanes.work import Work
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.context import Context
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import Listener
from multilane.listeners.signature import ListenerKind
from multilane.listeners.window import Window
from multilane.metrics.observer import Gauge, Observer
from multilane.outcome.backoff import RetryDelay
from multilane.outcome.breaker import Breaker
from multilane.outcome.in_place import ExhaustedRecord, InPlace
from multilane.outcome.next_step import Publish, RetryPolicy
from multilane.outcome.outage import Outage, OutageRules
from multilane.runtime.gauges import lane_gauges
from multilane.types import TopicPartition
from multilane.wire.records.loading import load_kernels
from multilane.wire.records.record import Record

_WAITING_PER_LANE: Final = 75
_LATENCY: Final = 0.05  # seconds: the rows are there, so a batch that is not full need not wait for more
_FEWEST_STOP: Final = 100  # outcomes before the breaker may stop a task
_NOT_IN_A_NAME: Final = re.compile(r"[^a-zA-Z0-9._-]")


@dataclass(frozen=True, slots=True)
class LaneSettings:
    """How the lanes of a task call the function. Times are seconds."""

    lanes: int = 20
    batch_size: int = 1
    retries: int = 0
    backoff: float = 1.0
    timeout: float = 30.0
    breaker: str = "off"  # or pause, stop
    max_per_second: float | None = None  # calls, of all tasks
    tasks: int = 0  # how many share them


class FunctionLanes:
    """The lanes of one function in this process, one task after another."""

    def __init__(self, name: str, clock: Clock, observer: Observer, failures: FailureSink) -> None:
        self.name = name
        self.topic: Final = _NOT_IN_A_NAME.sub("_", name) or "function"  # what its rows are called in the log
        self._clock = clock
        self._observer = observer
        self._failures = failures
        self._ended = (0, 0)  # settled, received
        self._live: list[PartitionProcessor] = []

    @property
    def settled(self) -> int:
        return self._ended[0] + sum(processor.settled for processor in self._live)

    @property
    def received(self) -> int:
        return self._ended[1] + sum(processor.received for processor in self._live)

    def gauges(self) -> list[Gauge]:
        return lane_gauges(self.name, self._live)

    async def build(
        self, function: RowFunction, settings: LaneSettings, store: RowStore, starts: Starts, verdicts: RecordVerdicts
    ) -> PartitionProcessor:
        [(partition, start)] = starts.items()
        gate = self._gate(settings) if settings.breaker == "pause" else None
        in_place = _InPlace(RetryPolicy(self.topic), settings.retries, _delay(settings), self._clock.monotonic)
        as_rows = function.kind is not ListenerKind.SINGLE and not in_place.waits and gate is None
        if as_rows:
            await asyncio.to_thread(load_kernels)  # the first use on a machine compiles them: seconds
        queue = _queue(partition, start.offset, settings, as_rows=as_rows)
        threads = Threads(f"multilane-{self.topic}-{partition.partition}")
        interceptors = InterceptorChain(self.topic)
        call, signature = listener_of(function, Arguments(function.argument), store)
        window = Window() if function.kind is ListenerKind.SINGLE else Window(settings.batch_size, _LATENCY)
        listener = _PacedListener(call, signature, window, interceptors, threads)
        if settings.max_per_second is not None:
            listener.pace = Pace(settings.max_per_second, settings.tasks, partition.partition, self._clock)
        failing = Failing(self._routes(settings, in_place, gate), interceptors, self._clock, self._observer, verdicts)
        work = Work(queue, listener, failing, _rules(settings, gate))

        def on_end(_: object) -> None:
            self._ended = self._ended[0] + processor.settled, self._ended[1] + processor.received
            self._live.remove(processor)
            threads.close()
            if gate is not None:
                gate.count_out(queue)
                gate.close()

        processor = PartitionProcessor(queue, work, {MAIN: settings.lanes}, self._clock, on_end=on_end)
        if gate is not None:
            gate.count_in(queue)
        self._live.append(processor)
        return processor

    def note_wrong(self, task: int, faults: Mapping[int, str]) -> None:
        """Results that do not fit their type, by row: their calls have succeeded, and their rows have failed."""
        for number, fault in faults.items():
            self._failures.note(self.name, Record(self.topic, task, number, -1, 0, None, None), WrongResult(fault))
        if faults:
            self._observer.count(DEAD, len(faults), consumer=self.name)

    def _routes(self, settings: LaneSettings, in_place: InPlace, gate: OutageGate | None) -> FailureRoutes:
        return FailureRoutes(
            in_place.retry_policy,
            _NoTopics(),
            last_step=_stays_in_the_frame,
            breaker=Breaker(0.5, 60.0, _FEWEST_STOP) if settings.breaker == "stop" else None,
            in_place=in_place,
            gate=gate,
            report=FailureReport(self.name, self._failures, self._observer),
        )

    def _gate(self, settings: LaneSettings) -> OutageGate:
        outage = Outage(OutageRules(), _delay(settings), crc32(f"{self.name}/{os.getpid()}".encode()))
        return OutageGate(self.name, outage, self._clock, self._observer)


class _PacedListener(Listener):
    """Its calls wait for their turn before their time begins."""

    pace: Pace | None = None

    @property
    def gate(self) -> AbstractAsyncContextManager[object] | None:
        return self.pace


def _queue(partition: TopicPartition, first: int, settings: LaneSettings, *, as_rows: bool) -> PartitionQueue:
    room = settings.lanes * _WAITING_PER_LANE * settings.batch_size
    most = PIECE_OF_ROWS if as_rows else PIECE
    chains: WaitingRecords = Chains(by_key(), settings.lanes)
    if as_rows:
        chains = RowChains(partition.topic, partition.partition, settings.lanes)
    return PartitionQueue([Intake(partition, Ledger(first, in_bulk=as_rows), room, most=most)], {MAIN: chains})


def _rules(settings: LaneSettings, gate: OutageGate | None) -> WorkRules:
    return WorkRules(
        settings.timeout,
        retries_in_place=settings.retries > 0 or gate is not None,
        has_more_lanes_than_threads=True,
        gate=gate or NO_GATE,
        time_option="timeout",
    )


def _delay(settings: LaneSettings) -> RetryDelay:
    return RetryDelay("exponential", settings.backoff, max(60.0, settings.backoff), 2.0, 0.2)


class _InPlace(InPlace):
    """Keeps no list of what is exhausted: the frame has it."""

    def note_exhausted(self, record: Record, error: BaseException) -> None:
        return

    def take_exhausted(self) -> tuple[ExhaustedRecord, ...]:
        return ()


class _NoTopics:
    """The publisher of lanes that have no topic to publish to."""

    async def publish(self, copy: Publish) -> NoReturn:
        raise AssertionError(f"rows have no topic, and {copy.topic} was named")

    async def publish_in_order(self, copies: object) -> NoReturn:
        raise AssertionError(f"rows have no topic for {copies}")


async def _stays_in_the_frame(context: Context, record: Record, error: BaseException) -> None:
    """The last step of a row that failed for good: its outcome and error are columns of the frame."""
