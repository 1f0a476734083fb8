"""Worker processes for functions that need a processor of their own.

Thread: loop; the functions run in the processes.

The function, its records and what it returns are pickled, so it has to be one that another process can import. As many
calls run at once as there are workers; the others wait at the gate, and their time has not begun. A worker that dies
fails the calls it was at, and is replaced. Owns the pool.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from multilane.logs import logger

log = logger(__name__)


class Processes:
    shares_memory = False

    def __init__(self, workers: int) -> None:
        self.limit: float = workers
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None
        self.gate = asyncio.Semaphore(workers)

    async def start(self, *functions: Callable[..., Any]) -> None:
        """Every worker is there and has imported what it will be asked for: that takes longer than most calls may."""
        await asyncio.gather(*(self(_Known(functions)) for _ in range(self._workers)))

    async def __call__(self, function: Callable[[], Any]) -> Any:
        if self._pool is None:
            spawning = multiprocessing.get_context("spawn")
            self._pool = ProcessPoolExecutor(self._workers, spawning, initializer=_belong_to_parent)
        pool = self._pool
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, function)
        except BrokenProcessPool:
            if self._pool is pool:
                log.exception("a worker process died; the others are replaced too")
                self._end(pool)
            raise

    def withdraw(self) -> None:
        """Nothing waits here: calls wait at the gate."""

    def close(self) -> None:
        if self._pool is not None:
            self._end(self._pool)

    def _end(self, pool: ProcessPoolExecutor) -> None:
        """Whatever a worker is at: its records are not settled, and nobody waits for it."""
        self._pool = None
        workers = list((getattr(pool, "_processes", None) or {}).values())
        pool.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()


class _Known:
    """Does nothing, but a worker that gets it has imported the functions."""

    def __init__(self, functions: tuple[Callable[..., Any], ...]) -> None:
        self._functions = functions

    def __call__(self) -> None:
        return None


def _belong_to_parent() -> None:
    """Ctrl-C in a terminal reaches every process of it; ours decides when the workers end. If it is killed they would
    wait for work for ever, so each looks after it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="multilane-parent", daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
