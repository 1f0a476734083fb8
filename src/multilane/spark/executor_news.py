"""Why a cluster does not give us executors: what Spark's scheduler logs about it, kept for an error message.

Thread: application; the JVM writes.

An executor that never registered is known to Spark's log alone, at a level that nobody sees. So the loggers of its
schedulers write into memory until a run has its slots. Their errors go where they went before. Without a JVM in this
process (Spark Connect) there is nothing to hear. Owns an appender of Log4j's, inside the JVM.
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
_MOST: Final = 1 << 20  # characters
_LONGEST: Final = 1_000  # of a cause
_ENDS: Final = (
    re.compile(r"Executor updated: \S+ is now (?:FAILED|LOST|EXITED|KILLED|ERROR) \((?P<why>.+)\)\s*$"),
    re.compile(r"Executor \S+ removed: (?P<why>.+)$"),
    re.compile(r"(?:Application has been killed\. Reason|Yarn application has already exited): (?P<why>.+)$"),
    re.compile(r"(?P<why>Container .*(?:exited|killed|failed).*)$", re.IGNORECASE),
)


def cause_in(lines: Iterable[str]) -> str:
    """What most executors ended with; nothing where none has."""
    counts: dict[str, int] = {}
    for line in lines:
        why = next((found["why"].strip() for end in _ENDS if (found := end.search(line)) is not None), "")
        if why:
            counts[why] = counts.get(why, 0) + 1
    return max(counts, key=lambda why: (counts[why], len(why)), default="")


class ExecutorNews:
    """What the schedulers of a JVM say, from now on until `end`."""

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
        """Why executors have ended, in Spark's words; nothing where none has."""
        return cause_in(str(self._writer.toString())[-_MOST:].splitlines())

    def end(self) -> None:
        for name in _LOGGERS:
            self._context.getConfiguration().removeLogger(name)
        self._context.updateLoggers()


# --- the news of this process, which has one JVM ---------------------------------------------------------------------

_news: list[ExecutorNews] = []


def hear_of_executors(conf: Mapping[str, str]) -> None:
    """Starts the JVM with these settings, as a session would, so that nothing is missed."""
    from pyspark import SparkConf, SparkContext

    hear_no_more()
    try:
        SparkContext._ensure_initialized(conf=SparkConf().setAll(list(conf.items())))  # noqa: SLF001 - no other way
        _news.append(ExecutorNews(SparkContext._jvm))  # noqa: SLF001
    except Exception as error:  # noqa: BLE001 - whoever starts the session tells it; or Spark logs by other means
        log.debug("cannot follow Spark's scheduler: %s", error)


def hear_no_more() -> None:
    """There are executors, and memory is not for their news."""
    while _news:
        with suppress(Exception):  # the JVM may be gone
            _news.pop().end()


def with_cause(told: str) -> str:
    """What went wrong, and if executors have ended why that was."""
    cause = ""
    with suppress(Exception):  # the JVM may be gone
        cause = without_credentials(_news[-1].cause) if _news else ""
    return f"{told.rstrip('.')}. Spark's executors do not start: {cause[:_LONGEST]}" if cause else told
