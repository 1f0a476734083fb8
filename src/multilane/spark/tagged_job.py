"""One Spark job that can be cancelled: tasks that are given a number each, and run a function of ours.

Thread: `start` and `cancel` from any; the job has a thread that waits for its end.

The only one who knows how jobs are named and cancelled, in a session of this process or by Spark Connect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OnEnd = Callable[[Exception | None], object]
TaskFunction = Callable[[Iterator[Any]], Iterator[Any]]


class TaggedJob:
    def __init__(self, spark: SparkSession, tag: str, title: str) -> None:
        """`tag` tells it from others in the session; `title` is for people."""
        self._spark = spark
        self._tag = tag
        self._title = title
        self._is_connected = not hasattr(spark, "_jvm")  # Connect: there is no context on this side
        self._is_cancelled = False

    @property
    def is_possible(self) -> bool:
        """Spark is there."""
        return self._is_connected or not self._spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - the only way

    def start(self, tasks: int, function: TaskFunction, schema: str, on_end: OnEnd) -> None:
        """A task for each number from 0 on, which comes to it as an Arrow batch of one row. `on_end` is called on the
        job's thread, once."""
        told = (tasks, function, schema, on_end)
        threading.Thread(target=self._wait_for, args=told, name=self._tag, daemon=True).start()

    def cancel(self) -> None:
        """At once: the workers are killed. A job that is not submitted yet never is."""
        self._is_cancelled = True
        if self._is_connected:
            self._spark.interruptTag(self._tag)
        else:
            self._spark.sparkContext.cancelJobGroup(self._tag)

    def _wait_for(self, tasks: int, function: TaskFunction, schema: str, on_end: OnEnd) -> None:
        failure: Exception | None = None
        try:
            self._name()
            if not self._is_cancelled:
                self._spark.range(0, tasks, 1, tasks).mapInArrow(function, schema).collect()
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is told
            failure = error
        on_end(failure)

    def _name(self) -> None:
        if self._is_connected:
            self._spark.addTag(self._tag)
        else:
            self._spark.sparkContext.setJobGroup(self._tag, self._title, interruptOnCancel=True)
