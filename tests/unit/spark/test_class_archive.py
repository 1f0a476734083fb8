"""The archive of Spark's classes: used where it can be trusted, made whole or not at all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from multilane.errors import SparkStartError
from multilane.java import Java
from multilane.spark.class_archive import archive_file, java_option, make, mapped

JAVA = Java(Path("/no/java"), 17, "abc")
NEWER = Java(Path("/no/java"), 17, "def")
TRAINS = '[ "$1 $2" = "-m multilane.spark.class_training" ] && printf new > "$3"'


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    file = archive_file(JAVA)
    file.parent.mkdir(parents=True)
    file.write_bytes(b"classes")
    file.chmod(0o444)
    return file


@pytest.fixture
def training(tmp_path, monkeypatch):
    """What the process does that is to write an archive."""

    def does(command):
        python = tmp_path / "python"
        python.write_text(f"#!/bin/sh\n{command}\n")
        python.chmod(0o755)
        monkeypatch.setattr(sys, "executable", os.fspath(python))

    return does


def test_an_archive_is_mapped_and_nothing_is_said_if_java_does_not_take_it(archive):
    assert mapped(JAVA, {}) == {"spark.driver.defaultJavaOptions": f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off"}


def test_no_archive_no_setting(archive):
    archive.unlink()

    assert mapped(JAVA, {}) == {}


def test_another_java_has_another_archive(archive):
    assert mapped(NEWER, {}) == {}


def test_what_others_can_write_is_not_mapped(archive):
    archive.chmod(0o664)

    assert mapped(JAVA, {}) == {}


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR"])
def test_another_spark_has_other_jars_and_its_own_options(archive, name):
    assert mapped(JAVA, {name: "/opt/spark"}) == {}
    with pytest.raises(SparkStartError, match=f"{name} is set"):
        make(NEWER, {name: "/opt/spark"})


@pytest.mark.parametrize(
    ("path", "option"),
    [
        ("/opt/a.jsa", "-X=/opt/a.jsa"),
        ("/my opt/a.jsa", '"-X=/my opt/a.jsa"'),
        ("/my 'opt/a.jsa", '"-X=/my \'opt/a.jsa"'),
        ('/my "opt\\/a.jsa', '"-X=/my \\"opt\\\\/a.jsa"'),
    ],
)
def test_options_of_java_are_quoted_for_sparks_launcher(path, option):
    assert java_option("-X", Path(path)) == option


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("echo cannot dump >&2; exit 1", "cannot dump"),
        ("exit 0", "gave no reason"),
        ('echo half > "$3"; echo full disk; exit 3', "full disk"),
    ],
)
def test_an_archive_that_is_not_whole_replaces_none(archive, training, does, told):
    training(does)

    with pytest.raises(SparkStartError, match=told):
        make(NEWER, {})

    assert archive.read_bytes() == b"classes"
    assert list(archive.parent.iterdir()) == [archive]


def test_what_is_written_too_late_is_nowhere(archive, training, tmp_path):
    """A JVM writes when it ends, which may be after those who waited for it."""
    late = tmp_path / "late"
    training(f'echo "$3" > {late}; exit 1')
    with pytest.raises(SparkStartError):
        make(NEWER, {})

    with pytest.raises(FileNotFoundError):
        Path(late.read_text().strip()).write_bytes(b"classes")


def test_one_that_is_there_is_not_made_again(archive, training):
    training("exit 1")

    assert make(JAVA, {}) == archive


def test_a_new_archive_takes_the_place_of_that_of_another_java(archive, training):
    training(TRAINS)

    made = make(NEWER, {})

    assert made == archive_file(NEWER) != archive
    assert made.read_bytes() == b"new"
    assert list(archive.parent.iterdir()) == [made]
