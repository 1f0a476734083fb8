"""What is said of a failure on Spark has no credentials in it."""

from __future__ import annotations

from multilane.spark.reasons import in_short, reason


def test_credentials_in_addresses_are_masked():
    error = OSError("Path does not exist: s3a://AKIA:SECRET@bucket/audit")
    assert reason(error) == "Path does not exist: s3a://***@bucket/audit"
    assert in_short(error) == "OSError: Path does not exist: s3a://***@bucket/audit"


JAVAS = """An error occurred while calling o54.collectToPython.
: org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, most recent \
failure: Lost task 0.0 (TID 0) (executor 0): java.io.IOException: Cannot run program "/no/python": error=2, No such file
\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)
Caused by: java.io.IOException: error=2, No such file or directory
"""


def test_of_a_failure_in_the_jvm_the_cause_is_reported_and_not_that_there_was_one():
    """No line of Python's is in it: no worker has started."""
    told = reason(RuntimeError(JAVAS))
    assert told.startswith("org.apache.spark.SparkException: Job aborted")
    assert 'Cannot run program "/no/python"' in told
