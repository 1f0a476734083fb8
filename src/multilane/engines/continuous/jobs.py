"""Spark jobs of one task each, one per member, which run as long as the member does.

Thread: `start` and `cancel` from the supervisor's; each job has a thread that waits for its end.

Each member has a job of its own. In one job with a task per member, a task that fails too often would end the job, and
with it all other members.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from multilane.engines.continuous.worker import MemberTaskSpec, serve
from multilane.errors import SparkStartError
from multilane.spark.tagged_job import OnEnd, TaggedJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SCHEMA: Final = "member int, ended string"


class SparkMemberJobs:
    def __init__(self, spark: SparkSession, run: str, title: str) -> None:
        """`run` distinguishes the jobs of this run from others in the session; Spark's user interface shows `title`."""
        self._spark = spark
        self._run = run
        self._title = title
        self._jobs: dict[int, TaggedJob] = {}  # the last one of each member

    def start(self, spec: MemberTaskSpec, on_end: OnEnd) -> None:
        """Calls `on_end` once, on the job's thread. Raises when the Spark context is stopped."""
        title = f"{self._title} (member {spec.number})"
        job = TaggedJob(self._spark, f"multilane-{self._run}-{spec.number}", title)
        if not job.is_possible:
            raise SparkStartError("its context was stopped")
        self._jobs[spec.number] = job
        job.start(1, partial(serve, spec), _SCHEMA, on_end)

    def cancel(self, number: int) -> None:
        """At once: Spark kills the worker. A job that is not submitted yet never is."""
        self._jobs[number].cancel()
