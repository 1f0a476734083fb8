"""The archive of Spark's classes: used where it can be trusted, made whole or not at all."""

from __future__ import annotations

import os
import sys

import pytest

from multilane.errors import SparkStartError
from multilane.spark.class_archive import archive_file, make, mapped


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    file = archive_file()
    file.parent.mkdir(parents=True)
    file.write_bytes(b"classes")
    file.chmod(0o444)
    return file


def test_an_archive_is_mapped_and_nothing_is_said_if_java_does_not_take_it(archive):
    assert mapped({}) == {"spark.driver.defaultJavaOptions": f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off"}


def test_no_archive_no_setting(archive):
    archive.unlink()

    assert mapped({}) == {}


def test_what_others_can_write_is_not_mapped(archive):
    archive.chmod(0o664)

    assert mapped({}) == {}


@pytest.mark.parametrize("name", ["SPARK_HOME", "SPARK_CONF_DIR"])
def test_another_spark_has_other_jars_and_its_own_options(archive, name):
    assert mapped({name: "/opt/spark"}) == {}


def test_options_of_java_are_separated_by_spaces(archive, tmp_path, monkeypatch):
    odd = tmp_path / "my environment"
    (odd / archive.parent.relative_to(tmp_path)).mkdir(parents=True)
    monkeypatch.setattr(sys, "prefix", str(odd))
    archive_file().write_bytes(b"classes")

    assert mapped({}) == {}


@pytest.mark.parametrize(
    ("does", "told"),
    [
        ("echo cannot dump >&2; exit 1", "cannot dump"),
        ("exit 0", "no archive"),
        ('echo half > "$3"; echo full disk; exit 3', "full disk"),
    ],
)
def test_an_archive_that_is_not_whole_replaces_none(archive, tmp_path, monkeypatch, does, told):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{does}\n")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(python))

    with pytest.raises(SparkStartError, match=told):
        make()

    assert archive.read_bytes() == b"classes"
    assert list(archive.parent.iterdir()) == [archive]


def test_a_new_archive_takes_the_place_of_the_old_one(archive, tmp_path, monkeypatch):
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\n[ "$1 $2" = "-m multilane.spark.class_training" ] && printf new > "$3"\n')
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", os.fspath(python))

    assert make() == archive

    assert archive.read_bytes() == b"new"
    assert list(archive.parent.iterdir()) == [archive]
