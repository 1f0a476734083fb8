"""One Spark job that can be cancelled: its tasks get a number each and run our function.

Thread: `start` and `cancel` from any; a thread of the job waits for its end.

Owns how jobs are named and cancelled, in a session of this process or through Spark Connect.
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
        """`tag` identifies the job in the session; `title` is shown in Spark's user interface."""
        self._spark = spark
        self._tag = tag
        self._title = title
        self._is_connected = not hasattr(spark, "_jvm")  # Spark Connect has no context in this process
        self._is_cancelled = False

    @property
    def is_possible(self) -> bool:
        """Whether Spark still runs."""
        return self._is_connected or not self._spark.sparkContext._jsc.sc().isStopped()  # noqa: SLF001 - the only way

    def start(self, tasks: int, function: TaskFunction, schema: str, on_end: OnEnd) -> None:
        """Starts a task for each number from 0 on; a task gets its number as an Arrow batch of one row. The job's
        thread calls `on_end` once."""
        arguments = (tasks, function, schema, on_end)
        threading.Thread(target=self._run, args=arguments, name=self._tag, daemon=True).start()

    def cancel(self) -> None:
        """Cancels at once: the workers are killed. A job that is not submitted yet never will be."""
        self._is_cancelled = True
        if self._is_connected:
            self._spark.interruptTag(self._tag)
        else:
            self._spark.sparkContext.cancelJobGroup(self._tag)

    def _run(self, tasks: int, function: TaskFunction, schema: str, on_end: OnEnd) -> None:
        failure: Exception | None = None
        try:
            self._name()
            if not self._is_cancelled:
                self._spark.range(0, tasks, 1, tasks).mapInArrow(function, schema).collect()
        except Exception as error:  # noqa: BLE001 - passed to on_end
            failure = error
        on_end(failure)

    def _name(self) -> None:
        if self._is_connected:
            self._spark.addTag(self._tag)
        else:
            self._spark.sparkContext.setJobGroup(self._tag, self._title, interruptOnCancel=True)
