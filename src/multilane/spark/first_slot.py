"""Checks that a cluster gives the run a slot, before anything waits for one.

Thread: application.

A job for which a cluster has no room waits forever. So a task that does nothing runs first, with a time limit. It also
shows, with a plain error, that the executors' Python cannot import what it needs.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from multilane.config.app.units import NotAUnit, parse_duration
from multilane.errors import ConfigError, SparkStartError
from multilane.spark.executor_news import unwatch_executors, with_cause
from multilane.spark.reasons import reason
from multilane.spark.tagged_job import TaggedJob

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

START_SECONDS: Final = 120.0  # for a cluster to find room
_SETTING: Final = "spark.multilane.startTimeout"
LONGER: Final = f"If the cluster starts them slowly, wait longer: --conf {_SETTING}=10m"


def start_seconds(conf: Mapping[str, str]) -> float:
    """How long a cluster has to find room for the run: it may have to start machines."""
    text = conf.get(_SETTING)
    if text is None:
        return START_SECONDS
    try:
        seconds = parse_duration(text)
    except NotAUnit as error:
        raise ConfigError(f"{_SETTING}={text}: {error}") from None
    if seconds <= 0:
        raise ConfigError(f"{_SETTING}={text}: give a duration above 0, such as 10m")
    return seconds


def await_slot(spark: SparkSession, seconds: float) -> None:
    """Returns when a task has run; raises if none has in time."""
    ended = threading.Event()
    failures: list[Exception] = []

    def on_end(failure: Exception | None) -> None:
        failures.extend([] if failure is None else [failure])
        ended.set()

    job = TaggedJob(spark, f"multilane-slot-{uuid.uuid4().hex[:12]}", "multilane: slot check")
    job.start(1, _identity, "id long", on_end)
    if not ended.wait(seconds):
        job.cancel()
        raise SparkStartError(with_cause(no_slot(seconds)))
    if failures:
        raise SparkStartError(with_cause(f"a task cannot run on Spark's executors: {reason(failures[0])}"))
    unwatch_executors()


def no_slot(seconds: float) -> str:
    return (
        f"no task found a slot within {seconds:g} s: Spark has no executor for this run. Check that its workers run "
        f"and have the requested cores and memory (--conf spark.executor.memory=...). {LONGER}"
    )


def _identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
