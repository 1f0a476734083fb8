"""An app in batches without Spark: its coordinator and its workers in one event loop, and leases one batch after the
other. Messages take their JSON form."""

from __future__ import annotations

import asyncio
import json
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

from multilane.app.app import App
from multilane.clock import SystemClock
from multilane.engines.batches.coordinator_app import CoordinatorApp
from multilane.engines.batches.lease_table import LeaseTable, LeaseTerms
from multilane.engines.batches.messages import (
    FromWorker,
    ToWorker,
    held_from,
    lease_from,
    retries_from,
    task_lease_from,
)
from multilane.engines.batches.worker_app import LeaseWorkerApp

PAUSE = 0.01


class Worker:
    """A worker and the channel to it. `die`: nothing that it does reaches the coordinator any more."""

    def __init__(self, target: str, lease_table: LeaseTable) -> None:
        self.app = LeaseWorkerApp(target)
        self.is_dead = False
        self.told: list[tuple[str, dict[str, Any]]] = []
        self._lease_table = lease_table

    async def open(self) -> Worker:
        await self.app.open(self._hear)
        return self

    def die(self) -> None:
        self.is_dead = True
        self._lease_table.lose(self)

    def send(self, kind: str, **fields: Any) -> None:
        """From the coordinator."""
        loop = asyncio.get_running_loop()
        if self.is_dead:
            return
        if kind == ToWorker.END:
            loop.call_soon(self.app.end)
        elif kind == ToWorker.REVOKE:
            loop.call_soon(lambda: asyncio.ensure_future(self.app.revoke(fields["unit"], fields["seconds"])))
        elif kind == ToWorker.RELEASED:
            loop.call_soon(self.app.release, fields["unit"], held_from(fields["held"]))

    def _hear(self, kind: str, **fields: Any) -> None:
        """From the worker."""
        if self.is_dead:
            return
        told = json.loads(json.dumps(fields)) if kind != FromWorker.COUNTS else fields
        self.told.append((kind, told))
        units = [lease_from(unit) for unit in told.get("units", ())]
        if kind == FromWorker.PROGRESS:
            self._lease_table.note_progress(units, self)
        elif kind in (FromWorker.RETURN, FromWorker.OVER):
            self._lease_table.take_back(units, self)
        elif kind == FromWorker.RELEASED:
            self._lease_table.note_retries(told["unit"], retries_from(told["tried"]))
            self._lease_table.release(told["unit"], held_from(told["settled"]), self, is_settled=True)
            self._lease_table.release(told["unit"], held_from(told["undone"]), self, is_settled=False)
        if kind == FromWorker.OVER:
            self._lease_table.close(told["number"], self)

    async def serve(self, number: int) -> None:
        """A task of a batch."""
        lease = self._lease_table.grant(number, self)
        if lease is not None:
            await self.app.serve(task_lease_from(json.loads(json.dumps(lease.to_json()))))


class Batches:
    def __init__(self, app: App, tasks: int, terms: LeaseTerms) -> None:
        module = ModuleType(f"in_batches_{uuid.uuid4().hex}")
        module.app = app  # type: ignore[attr-defined]
        sys.modules[module.__name__] = module
        self._target = f"{module.__name__}:app"
        self.lease_table = LeaseTable(SystemClock(), terms)
        self.coordinator = CoordinatorApp(self._target)
        self.workers: list[Worker] = []
        self.batches = 0
        self._tasks = tasks
        self._is_over = False

    async def replace(self, worker: Worker) -> None:
        """A worker is killed; Spark starts its task in another one."""
        at = self.workers.index(worker)
        worker.die()
        self.workers[at] = await Worker(self._target, self.lease_table).open()
        worker.app.end()

    async def run(self) -> None:
        running = asyncio.create_task(self.coordinator.run(self.lease_table))
        self.workers = [await Worker(self._target, self.lease_table).open() for _ in range(self._tasks)]
        try:
            while not self._is_over and not running.done():
                if self.lease_table.has_work:
                    self.batches += 1
                    numbers = self.lease_table.plan(self._tasks)
                    await asyncio.gather(*(self._run_task(at, number) for at, number in enumerate(numbers)))
                    self.lease_table.end_batch()
                await asyncio.wait([running], timeout=PAUSE)
            await running
        finally:
            for worker in self.workers:
                await worker.app.close()

    async def _run_task(self, at: int, number: int) -> None:
        worker = self.workers[at]
        await worker.serve(number)
        if worker.is_dead:  # Spark runs the task again
            await worker.app.close()
            await self._run_task(at, number)

    def stop(self) -> None:
        self._is_over = True
        self.coordinator.stop()
        self.lease_table.end_tasks()


@asynccontextmanager
async def in_batches(
    app: App, tasks: int = 1, seconds: float = 1.0
) -> AsyncIterator[tuple[Batches, asyncio.Task[None]]]:
    batches = Batches(app, tasks, LeaseTerms(seconds, 0.1, seconds))
    task = asyncio.create_task(batches.run())
    try:
        yield batches, task
    finally:
        batches.stop()
        await asyncio.wait([task], timeout=60)


@asynccontextmanager
async def batched(app: App) -> AsyncIterator[asyncio.Task[None]]:
    """As `running`."""
    async with in_batches(app) as (_, task):
        yield task
