"""What is said of a failure on Spark has no credentials in it."""

from __future__ import annotations

from multilane.spark.reasons import in_short, reason


def test_credentials_in_addresses_are_masked():
    error = OSError("Path does not exist: s3a://AKIA:SECRET@bucket/audit")
    assert reason(error) == "Path does not exist: s3a://***@bucket/audit"
    assert in_short(error) == "OSError: Path does not exist: s3a://***@bucket/audit"
