"""Spark jobs of one task each, which last as long as a member does.

Thread: `start` and `cancel` from the supervisor's; each job has a thread that waits for its end.

A job for each member, not one job with a task for each: when a task has failed too often Spark ends its whole job, and
with it everybody else. The only module of the flow that knows Spark's interface, classic or Connect.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from multilane.errors import SparkStartError
from multilane.spark.continuous.task import TaskPlan, serve

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

OnEnd = Callable[[Exception | None], object]
_SCHEMA: Final = "member int, ended string"


class Jobs:
    def __init__(self, spark: SparkSession, run: str, title: str) -> None:
        """`run` tells the jobs of this run from others in the session; `title` is what people see of it."""
        self._spark = spark
        self._run = run
        self._title = title
        self._is_connected = not hasattr(spark, "_jvm")  # Connect: there is no context on this side
        self._cancelled: set[int] = set()

    def start(self, plan: TaskPlan, on_end: OnEnd) -> None:
        """`on_end` is called on the job's thread, once. Raises when there is no Spark any more."""
        if not self._is_connected and self._spark.sparkContext._jsc.sc().isStopped():  # noqa: SLF001 - the only way
            raise SparkStartError("its context was stopped")
        name = f"multilane-job-{plan.number}"
        threading.Thread(target=self._wait_for, args=(plan, on_end), name=name, daemon=True).start()

    def cancel(self, number: int) -> None:
        """At once: the worker is killed. A job that is not submitted yet never is."""
        self._cancelled.add(number)
        if self._is_connected:
            self._spark.interruptTag(self._tag(number))
        else:
            self._spark.sparkContext.cancelJobGroup(self._tag(number))

    def _wait_for(self, plan: TaskPlan, on_end: OnEnd) -> None:
        failure: Exception | None = None
        try:
            self._name(plan)
            if plan.number not in self._cancelled:
                rows = self._spark.range(0, 1, 1, 1).mapInArrow(partial(serve, plan), _SCHEMA).collect()
                log.debug("member %d ended: %s", plan.number, rows[0]["ended"])
        except Exception as error:  # noqa: BLE001 - whatever Spark raises is told to the supervisor
            failure = error
        on_end(failure)

    def _name(self, plan: TaskPlan) -> None:
        if self._is_connected:
            self._spark.addTag(self._tag(plan.number))
        else:
            title = f"{self._title} (member {plan.number})"
            self._spark.sparkContext.setJobGroup(self._tag(plan.number), title, interruptOnCancel=True)

    def _tag(self, number: int) -> str:
        return f"multilane-{self._run}-{number}"
