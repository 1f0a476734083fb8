"""What is chosen and refused before a JVM is started."""

from __future__ import annotations

import os
import socket
import sys
from types import SimpleNamespace

import pytest

from multilane.errors import SparkStartError
from multilane.spark import session
from multilane.spark.session import (
    check_reachable,
    is_speculating,
    local_slots,
    masked_master,
    prepare_environment,
    start_session,
    with_retries,
)


@pytest.mark.parametrize(
    ("master", "used"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,9]", "local[2,9]"),
        ("spark://a:7077", "spark://a:7077"),
        ("yarn", "yarn"),
    ],
)
def test_a_killed_worker_does_not_end_everything(master, used):
    assert with_retries(master) == used


@pytest.mark.parametrize(
    ("master", "slots"),
    [("local", 1), ("local[3]", 3), ("local[3,4]", 3), ("local[*]", len(os.sched_getaffinity(0))), ("yarn", None)],
)
def test_slots_are_known_of_local_masters(master, slots):
    assert local_slots(master) == slots


def test_tokens_of_spark_connect_are_not_shown():
    assert (
        masked_master("sc://host:15002/;use_ssl=true;token=hush")
        == masked_master("sc://host:15002;token=hush")
        == "sc://host:15002"
    )
    assert masked_master("spark://a:1,b:2") == "spark://a:1,b:2"


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_nor_are_they_by_what_pyspark_says_of_the_address(monkeypatch):
    monkeypatch.setattr(session, "check_reachable", lambda master: None)
    with pytest.raises(SparkStartError, match=r"sc://127.0.0.1:1: .*token=\.\.\.") as told:
        start_session("sc://127.0.0.1:1/;token=YWJj==", "test", {})
    assert "YWJj" not in str(told.value)
    with pytest.raises(SparkStartError) as told:
        check_reachable("sc://127.0.0.1:1/;token=hush")
    assert "hush" not in str(told.value)


def test_workers_run_with_this_python_and_on_this_machine_alone():
    environ = dict(os.environ) | {"PYSPARK_PYTHON": ""}
    del environ["PYSPARK_PYTHON"]
    environ.pop("SPARK_LOCAL_IP", None)
    prepare_environment("local[2]", environ)
    assert environ["PYSPARK_PYTHON"] == environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert environ["SPARK_LOCAL_IP"] == "127.0.0.1"


def test_what_is_set_stays_and_executors_elsewhere_have_their_own_python():
    environ = dict(os.environ) | {"PYSPARK_PYTHON": "/opt/python", "SPARK_LOCAL_IP": "::1"}
    prepare_environment("local[2]", environ)
    assert (environ["PYSPARK_PYTHON"], environ["SPARK_LOCAL_IP"]) == ("/opt/python", "::1")
    del environ["PYSPARK_PYTHON"]
    prepare_environment("spark://a:7077", environ)
    assert "PYSPARK_PYTHON" not in environ


def test_a_master_that_is_not_there():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        check_reachable(f"spark://127.0.0.1:{port}")
        check_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}")
    with pytest.raises(
        SparkStartError,
        match=rf"no Spark master answers at spark://127\.0\.0\.1:{port} .*refused.*Is Spark running there\?",
    ):
        check_reachable(f"spark://127.0.0.1:{port}")


@pytest.mark.parametrize(
    "master", ["bogus", "spark://", "local[", "localhost:7077", "spark://host", "sc://host/;token=x"]
)
def test_what_is_no_master(master):
    with pytest.raises(SparkStartError, match="is not a Spark master"):
        start_session(master, "test", {})


def java_of(directory, version):
    """A program that says it is Java, in a home of its own."""
    program = directory / f"java-{version}" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}.0.2\"' >&2\n")
    program.chmod(0o755)
    return program


@pytest.mark.parametrize(
    ("home", "path", "chosen"),
    [
        (17, 21, 17),  # as it is set
        (11, 17, 17),
        (None, 17, None),  # Spark looks there itself
        (21, None, 21),
    ],
)
def test_spark_gets_the_java_that_is_new_enough(tmp_path, home, path, chosen):
    javas = {version: java_of(tmp_path, version) for version in (11, 17, 21)}
    environ = {"PATH": "" if path is None else os.fspath(javas[path].parent)}
    environ |= {} if home is None else {"JAVA_HOME": os.fspath(javas[home].parents[1])}
    prepare_environment("local[2]", environ)
    assert environ.get("JAVA_HOME") == (None if chosen is None else os.fspath(javas[chosen].parents[1]))


@pytest.mark.parametrize(("said", "is_on"), [("true", True), ("True", True), ("TRUE ", True), ("false", False)])
def test_speculation_by_any_spelling(said, is_on):
    assert is_speculating(SimpleNamespace(conf={"spark.speculation": said})) is is_on
    assert not is_speculating(SimpleNamespace(conf={}))
