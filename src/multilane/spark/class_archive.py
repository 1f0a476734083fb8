"""Spark's classes as its JVM has them in memory, in a file of this Python environment.

A JVM that maps it starts in half the time.

Thread: application.

The archive is never needed. Java looks by itself whether it was made by the same Java from the same jars, and does
without it if not. It lies with the environment whose jars it was made from, and goes with it.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from multilane.errors import SparkStartError
from multilane.java import Java
from multilane.user_cache import is_trusted

# Another installation of Spark, or settings of its own, that may have options for Java among them.
_OF_OTHERS: Final = ("SPARK_HOME", "SPARK_CONF_DIR")
_PATIENCE: Final = 300.0
_NOT_MADE: Final = "there is no archive of Spark's classes"


def archive_file(java: Java) -> Path:
    from pyspark import __version__ as spark

    return Path(sys.prefix) / "share" / "multilane" / f"spark-{spark}-java-{java.version}-{java.build}.jsa"


def mapped(java: Java, environ: Mapping[str, str]) -> dict[str, str]:
    """The setting with which a JVM of Spark's maps the archive; empty where there is none to trust."""
    archive = archive_file(java)
    if _other_spark(environ) is not None or not _is_there(archive):
        return {}
    # Nobody needs to hear of an archive that Java does not take.
    return {"spark.driver.defaultJavaOptions": f"{java_option('-XX:SharedArchiveFile', archive)} -Xlog:cds*=off"}


def java_option(name: str, path: Path) -> str:
    """As Spark's launcher splits options: at spaces, but for those between quotes."""
    text = f"{name}={path}"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if escaped == text and not any(letter.isspace() or letter == "'" for letter in text) else f'"{escaped}"'


def make(java: Java, environ: Mapping[str, str]) -> Path:
    """Unless it is there. In the place of those of other Javas and Sparks: an environment has one of each."""
    archive = archive_file(java)
    if (other := _other_spark(environ)) is not None:
        raise SparkStartError(f"{_NOT_MADE}: {other} is set, and it would be for the Spark of this environment alone")
    if not _is_there(archive):
        archive.parent.mkdir(parents=True, exist_ok=True)
        # A JVM that maps half an archive crashes. One that outlives this finds no place for its own.
        with tempfile.TemporaryDirectory(prefix=".", dir=archive.parent) as beside:
            _written(Path(beside, archive.name)).replace(archive)
        for old in set(archive.parent.glob("spark-*.jsa")) - {archive}:
            old.unlink(missing_ok=True)
    return archive


def _written(archive: Path) -> Path:
    """By a process of its own: a JVM writes its archive when it ends."""
    command = [sys.executable, "-m", "multilane.spark.class_training", str(archive)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603 - ours
    except subprocess.TimeoutExpired:
        raise SparkStartError(f"{_NOT_MADE}: Java has written none in {_PATIENCE:.0f} s") from None
    if made.returncode != 0 or not archive.is_file():
        said = (made.stderr.strip() or made.stdout.strip() or "Java did not say why").splitlines()[-1]
        raise SparkStartError(f"{_NOT_MADE}: {said}")
    return archive


def _other_spark(environ: Mapping[str, str]) -> str | None:
    return next((name for name in _OF_OTHERS if name in environ), None)


def _is_there(archive: Path) -> bool:
    try:
        return is_trusted(archive.stat())
    except OSError:
        return False
