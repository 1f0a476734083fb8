"""What a task of a DataFrame stage needs of its process: which task it is, an event loop on a thread, a log.

Thread: the worker's own; `LoopThread` runs coroutines on another.

Other functions of the session use the same process, so nothing here changes it for good but for the log of this
library. Owns its loop and thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from multilane.lanes.interpreter import loop_on_thread
from multilane.logs import logger

T = TypeVar("T")
_QUERY_ID: Final = "sql.streaming.queryId"  # Spark sets it for the tasks of a query


@dataclass(frozen=True, slots=True)
class SparkTask:
    number: int
    stage: int
    query: str | None  # the id of the streaming query that it belongs to

    @property
    def total(self) -> str | None:
        """What the log line with its totals calls it; None for no line: tasks of a stream follow each other fast."""
        return None if self.query is not None else f"total of task {self.number} in stage {self.stage}"


def current_task() -> SparkTask:
    from pyspark import TaskContext

    context = TaskContext.get()
    if context is None:
        return SparkTask(0, 0, None)
    return SparkTask(context.partitionId(), context.stageId(), context.getLocalProperty(_QUERY_ID))


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self, name: str) -> None:
        self._stack = ExitStack()
        self._loop = self._stack.enter_context(loop_on_thread(name))

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def close(self) -> None:
        self._stack.close()


def show_log(level: int) -> None:
    """Write this library's log to the worker's stderr, unless the application has configured logging. Other loggers are
    left alone: the process belongs to the session."""
    ours = logger("multilane")
    if not ours.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(asctime)s worker %(process)d %(levelname)s %(message)s"))
        ours.addHandler(handler)
        ours.setLevel(level)
