"""Why a cluster starts no executors: the log of Spark's scheduler, kept for an error message.

Thread: application; the JVM writes.

Only Spark's log mentions an executor that never registered, and at a level that is not shown. So the loggers of its
schedulers write into memory until a run has its slots; errors still go to their usual appenders. Without a JVM in this
process (Spark Connect) there is no log to read. Owns a Log4j appender inside the JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from multilane.logs import logger
from multilane.secret import without_credentials

log = logger(__name__)

_LOGGERS: Final = (
    "org.apache.spark.deploy.client",
    "org.apache.spark.scheduler.cluster",
    "org.apache.spark.deploy.yarn",
)
_NAME: Final = "multilane-executor-news"
_TAIL: Final = 1 << 20  # characters
_LONGEST_CAUSE: Final = 1_000  # of a cause
_ENDS: Final = (
    re.compile(r"Executor updated: \S+ is now (?:FAILED|LOST|EXITED|KILLED|ERROR) \((?P<why>.+)\)\s*$"),
    re.compile(r"Executor \S+ removed: (?P<why>.+)$"),
    re.compile(r"(?:Application has been killed\. Reason|Yarn application has already exited): (?P<why>.+)$"),
    re.compile(r"(?P<why>Container .*(?:exited|killed|failed).*)$", re.IGNORECASE),
)


def cause_in(lines: Iterable[str]) -> str:
    """The most frequent reason why executors ended; empty if none has."""
    counts: dict[str, int] = {}
    for line in lines:
        why = next((found["why"].strip() for end in _ENDS if (found := end.search(line)) is not None), "")
        if why:
            counts[why] = counts.get(why, 0) + 1
    return max(counts, key=lambda why: (counts[why], len(why)), default="")


class ExecutorNews:
    """The log lines of a JVM's schedulers, from now until `end`."""

    def __init__(self, jvm: Any) -> None:
        core, level = jvm.org.apache.logging.log4j.core, jvm.org.apache.logging.log4j.Level
        self._context = jvm.org.apache.logging.log4j.LogManager.getContext(False)
        self._writer = jvm.java.io.StringWriter()
        layout = core.layout.PatternLayout.newBuilder().withPattern("%msg%n").build()
        appender = core.appender.WriterAppender.createAppender(layout, None, self._writer, _NAME, False, True)
        appender.start()
        configuration = self._context.getConfiguration()
        for name in _LOGGERS:
            own = core.config.LoggerConfig(name, level.INFO, False)
            own.addAppender(appender, level.INFO, None)
            for other in configuration.getRootLogger().getAppenders().values():
                own.addAppender(other, level.ERROR, None)
            configuration.addLogger(name, own)
        self._context.updateLoggers()

    @property
    def cause(self) -> str:
        """Why executors have ended, in Spark's words; empty if none has."""
        return cause_in(str(self._writer.toString())[-_TAIL:].splitlines())

    def end(self) -> None:
        for name in _LOGGERS:
            self._context.getConfiguration().removeLogger(name)
        self._context.updateLoggers()


# --- the log of this process's JVM -----------------------------------------------------------------------------------

_news: list[ExecutorNews] = []


def watch_executors(conf: Mapping[str, str]) -> None:
    """Starts the JVM with these settings, as a session would, so that no line is missed."""
    from pyspark import SparkConf, SparkContext

    unwatch_executors()
    try:
        SparkContext._ensure_initialized(conf=SparkConf().setAll(list(conf.items())))  # noqa: SLF001 - no other way
        _news.append(ExecutorNews(SparkContext._jvm))  # noqa: SLF001
    except Exception as error:  # noqa: BLE001 - starting the session reports it; or Spark logs without Log4j
        log.debug("cannot follow Spark's scheduler: %s", error)


def unwatch_executors() -> None:
    """Stops collecting log lines once there are executors, to free the memory."""
    while _news:
        with suppress(Exception):  # the JVM may be gone
            _news.pop().end()


def with_cause(problem: str) -> str:
    """The problem, and why executors ended if any did."""
    cause = ""
    with suppress(Exception):  # the JVM may be gone
        cause = without_credentials(_news[-1].cause) if _news else ""
    return f"{problem.rstrip('.')}. Spark's executors do not start: {cause[:_LONGEST_CAUSE]}" if cause else problem
