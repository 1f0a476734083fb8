"""Why executors do not start, found in what Spark's schedulers say."""

from __future__ import annotations

import pytest

from multilane.errors import SparkStartError
from multilane.spark import executor_news
from multilane.spark.executor_news import cause_in, unwatch_executors, with_cause
from multilane.spark.reasons import first_cause

NO_JAVA = 'java.io.IOException: Cannot run program "/no/such/java/bin/java": error=2, No such file or directory'
STANDALONE = f"""
Connected to Spark cluster with app ID app-20261118024854-0000
Executor added: app-20261118024854-0000/0 on worker-1 (127.0.0.1:37601) with 1 core(s)
Granted executor ID app-20261118024854-0000/0 on hostPort 127.0.0.1:37601 with 1 core(s), 512.0 MiB RAM
Executor updated: app-20261118024854-0000/0 is now FAILED ({NO_JAVA})
Executor app-20261118024854-0000/0 removed: {NO_JAVA}
Executor updated: app-20261118024854-0000/1 is now RUNNING
Application has been killed. Reason: Master removed our application: FAILED
"""


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (STANDALONE, NO_JAVA),
        ("Executor app-1/465 removed: Command exited with code 1", "Command exited with code 1"),
        ("Application has been killed. Reason: All masters are unresponsive! Giving up.", "All masters are unres"),
        ("Executor app-1/3 added\nGranted executor ID app-1/3 on hostPort", ""),
        ("", ""),
    ],
)
def test_the_cause_is_what_most_executors_ended_with(said, cause):
    found = cause_in(said.splitlines())
    assert found.startswith(cause)
    assert bool(found) == bool(cause)


class News:
    cause = NO_JAVA

    def end(self):
        raise RuntimeError("the JVM is gone")


def test_an_error_names_the_cause_where_it_is_known(monkeypatch):
    monkeypatch.setattr(executor_news, "_news", [News()])
    assert with_cause("no slot") == f"no slot. Spark's executors do not start: {NO_JAVA}"
    monkeypatch.setattr(News, "cause", "Container 7 failed: cannot fetch https://me:hush@repo/app.zip")
    assert "hush" not in with_cause("no slot")
    unwatch_executors()
    assert with_cause("no slot") == "no slot"


def test_what_the_jvm_says_is_reported_and_not_that_it_has_said_something():
    error = SparkStartError(
        "An error occurred while calling None.org.apache.spark.sql.classic.SparkSession.\n"
        ": java.lang.IllegalStateException: Cannot call methods on a stopped SparkContext.\n\tat org.apache"
    )
    assert first_cause(error).endswith("IllegalStateException: Cannot call methods on a stopped SparkContext.")
    assert first_cause(SparkStartError("no Java")) == "no Java"
