"""Worker processes for functions that need a processor of their own.

Thread: loop; the functions run in the processes.

The function, its records and what it returns are pickled, so it has to be one that another process can import. A worker
that dies fails the calls it was at, and is replaced. Owns the pool, which is started with the first call.
"""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

log = logging.getLogger(__name__)


class Processes:
    shares_memory = False

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._pool: ProcessPoolExecutor | None = None

    async def __call__(self, function: Callable[[], Any]) -> Any:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self._workers, multiprocessing.get_context("spawn"))
        pool = self._pool
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, function)
        except BrokenProcessPool:
            if self._pool is pool:
                log.exception("a worker process died; the others are replaced too")
                self._pool = None
                pool.shutdown(wait=False, cancel_futures=True)
            raise

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
