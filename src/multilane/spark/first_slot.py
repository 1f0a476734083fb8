"""Whether a cluster gives us a slot at all, found out before anybody waits for it without a word.

Thread: application.

A job for which a cluster has no room waits for ever. A task that does nothing goes first, with a time limit; it also
tells in plain words of a Python on executors that cannot import what is needed there.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from multilane.config.app.units import NotAUnit, parse_duration
from multilane.errors import ConfigError, SparkStartError
from multilane.spark.executor_news import hear_no_more, with_cause
from multilane.spark.reasons import reason
from multilane.spark.tagged_job import TaggedJob

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

START_SECONDS: Final = 120.0  # for a cluster to find room
_SETTING: Final = "spark.multilane.startTimeout"
LONGER: Final = f"If it takes its time to start them, wait longer: --conf {_SETTING}=10m"


def start_seconds(conf: Mapping[str, str]) -> float:
    """How long a cluster has to find room for us: it may have to start machines."""
    text = conf.get(_SETTING)
    if text is None:
        return START_SECONDS
    try:
        seconds = parse_duration(text)
    except NotAUnit as error:
        raise ConfigError(f"{_SETTING}={text}: {error}") from None
    if seconds <= 0:
        raise ConfigError(f"{_SETTING}={text}: it has to be longer than nothing, as 10m")
    return seconds


def await_slot(spark: SparkSession, seconds: float) -> None:
    """Returns when a task has run, and raises when none has."""
    ended = threading.Event()
    failures: list[Exception] = []

    def on_end(failure: Exception | None) -> None:
        failures.extend([] if failure is None else [failure])
        ended.set()

    job = TaggedJob(spark, f"multilane-slot-{uuid.uuid4().hex[:12]}", "multilane: is there a slot?")
    job.start(1, _same, "id long", on_end)
    if not ended.wait(seconds):
        job.cancel()
        raise SparkStartError(with_cause(no_slot(seconds)))
    if failures:
        raise SparkStartError(with_cause(f"a task cannot run on Spark's executors: {reason(failures[0])}"))
    hear_no_more()


def no_slot(seconds: float) -> str:
    return (
        f"no task has found a slot within {seconds:g} s: Spark has no executor for us. See whether its workers run and "
        f"have the cores and the memory that are asked for (--conf spark.executor.memory=...). {LONGER}"
    )


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
