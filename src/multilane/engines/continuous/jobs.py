"""Spark jobs of one task each, which last as long as a member does.

Thread: `start` and `cancel` from the supervisor's; each job has a thread that waits for its end.

A job for each member, not one job with a task for each: when a task has failed too often Spark ends its whole job, and
with it everybody else.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from multilane.engines.continuous.worker import MemberTaskPlan, serve
from multilane.errors import SparkStartError
from multilane.spark.tagged_job import OnEnd, TaggedJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA: Final = "member int, ended string"


class SparkMemberJobs:
    def __init__(self, spark: SparkSession, run: str, title: str) -> None:
        """`run` tells the jobs of this run from others in the session; `title` is what people see of it."""
        self._spark = spark
        self._run = run
        self._title = title
        self._jobs: dict[int, TaggedJob] = {}  # the last of each member

    def start(self, plan: MemberTaskPlan, on_end: OnEnd) -> None:
        """`on_end` is called on the job's thread, once. Raises when there is no Spark any more."""
        title = f"{self._title} (member {plan.number})"
        job = TaggedJob(self._spark, f"multilane-{self._run}-{plan.number}", title)
        if not job.is_possible:
            raise SparkStartError("its context was stopped")
        self._jobs[plan.number] = job
        job.start(1, partial(serve, plan), _SCHEMA, on_end)

    def cancel(self, number: int) -> None:
        """At once: the worker is killed. A job that is not submitted yet never is."""
        self._jobs[number].cancel()
