"""Spark's settings for a run, before there is a session."""

from __future__ import annotations

import pytest

from multilane.engines.spark_run import BATCHES, CONTINUOUS, SparkSettings, session_conf
from multilane.errors import ConfigError

JVM = "spark.driver.extraJavaOptions"


def test_a_jvm_on_this_machine_starts_quickly_unless_the_user_knows_better():
    assert "TieredStopAtLevel=1" in session_conf(SparkSettings(master="local[2]"))[JVM]
    assert session_conf(SparkSettings(master="local[2]", conf={JVM: "-Xmx9g"}))[JVM] == "-Xmx9g"


def test_jvm_options_of_a_cluster_are_not_changed():
    assert JVM not in session_conf(SparkSettings(master="spark://there:7077"))


@pytest.mark.parametrize(("flow", "reused"), [(BATCHES, "true"), (CONTINUOUS, "false")])
def test_a_worker_lasts_as_long_as_its_event_loop(flow, reused):
    assert session_conf(SparkSettings(flow=flow))["spark.python.worker.reuse"] == reused


def test_workers_that_end_with_each_batch_are_an_error():
    with pytest.raises(ConfigError, match=r"spark.python.worker.reuse=false ends workers with their batch"):
        session_conf(SparkSettings(flow=BATCHES, conf={"spark.python.worker.reuse": "false"}))


def test_the_archive_is_added_to_others(tmp_path):
    archive = tmp_path / "app.zip"
    archive.touch()
    conf = session_conf(SparkSettings(archive=archive, conf={"spark.archives": "data.zip"}))
    assert conf["spark.archives"].startswith(f"data.zip,{archive.resolve()}#")


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (SparkSettings(master="sc://there"), "--flow batches does not support Spark Connect"),
        (SparkSettings(CONTINUOUS, "sc://there"), "set its address with --host"),
    ],
)
def test_settings_that_exclude_each_other_are_an_error(settings, text):
    with pytest.raises(ConfigError, match=text):
        session_conf(settings)


def test_a_missing_archive_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"multilane pack .*app\.zip"):
        session_conf(SparkSettings(archive=tmp_path / "app.zip"))
