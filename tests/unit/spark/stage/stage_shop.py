"""What a task of the tests is told to make: an application without Kafka, whose lanes only note what they see."""

from __future__ import annotations

import os

from multilane.clock import SystemClock
from multilane.commit.ledger import Ledger
from multilane.engines.dataframe.block_runner import BlockRunner
from multilane.engines.dataframe.worker_progress import TaskReport
from multilane.lanes.chains import Chains
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.intake import Intake
from multilane.lanes.ordering import by_key
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.partition_queue import MAIN, PartitionQueue
from multilane.lanes.threads import Threads
from multilane.lanes.work import Work
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import Listener
from multilane.listeners.signature import read_signature
from multilane.listeners.window import Window
from multilane.outcome.next_step import RetryPolicy
from multilane.wire.records.record import Record

CLOCK = SystemClock()


class NotedApp:
    made = 0
    seen: list[tuple[int, int, bytes | None, str]]

    def __init__(self, target: str) -> None:
        type(self).made += 1
        type(self).seen = []

    async def begin_task(self, consumer: str, *, in_stream: bool) -> BlockRunner:
        return BlockRunner(self._build, CLOCK)

    async def end_task(self, total: str | None) -> TaskReport:
        return {"counts": [], "failures": []}

    async def close(self) -> None:
        return None

    async def _handle(self, record: Record) -> None:
        if record.value == b"bad":
            raise ValueError("not today")
        self.seen.append((record.partition, record.offset, record.value, os.getcwd()))

    async def _build(self, starts, verdicts):
        [(partition, start)] = starts.items()
        queue = PartitionQueue([Intake(partition, Ledger(*start[:3]), 100)], {MAIN: Chains(by_key(), 2)})
        interceptors = InterceptorChain("g")
        listener = Listener(self._handle, read_signature(self._handle), Window(), interceptors, Threads("lane"))
        failing = Failing(FailureRoutes(RetryPolicy("t"), publisher=None), interceptors, CLOCK, notes=verdicts)
        work = Work(queue, listener, failing, WorkRules(60.0))
        return PartitionProcessor(queue, work, {MAIN: 2}, CLOCK)
