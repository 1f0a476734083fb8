"""The Spark job of a backfill.

Thread: as `TaggedJob`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from multilane.engines.backfill.worker import SCHEMA, serve
from multilane.engines.task import TaskSpec
from multilane.errors import SparkStartError
from multilane.spark.tagged_job import OnEnd, TaggedJob

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class BackfillJob:
    def __init__(self, spark: SparkSession, run: str, title: str) -> None:
        self._job = TaggedJob(spark, f"multilane-backfill-{run}", title)

    def start(self, spec: TaskSpec, tasks: int, on_end: OnEnd) -> None:
        if not self._job.is_possible:
            raise SparkStartError("cannot submit a job: the Spark context was stopped")
        self._job.start(tasks, partial(serve, spec), SCHEMA, on_end)

    def cancel(self) -> None:
        self._job.cancel()
