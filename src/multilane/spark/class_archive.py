"""The archive of Spark's loaded classes (Java's class data sharing): a JVM that maps it starts in half the time.

Thread: application.

The archive is optional. Java checks that the same Java made it from the same jars, and ignores it otherwise. It is
stored in the Python environment whose jars it was made from, and is deleted with it.
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

# Set for another Spark installation, or for settings that may contain Java options.
_FOREIGN_SPARK: Final = ("SPARK_HOME", "SPARK_CONF_DIR")
_TIMEOUT: Final = 300.0
_FAILED: Final = "cannot create the archive of Spark's classes"


def archive_file(java: Java) -> Path:
    from pyspark import __version__ as spark

    return Path(sys.prefix) / "share" / "multilane" / f"spark-{spark}-java-{java.version}-{java.build}.jsa"


def mapped(java: Java, environ: Mapping[str, str]) -> dict[str, str]:
    """The setting with which Spark's JVM maps the archive; empty if there is none to trust."""
    archive = archive_file(java)
    if _other_spark(environ) is not None or not _is_usable(archive):
        return {}
    # No warnings about an archive that Java rejects.
    return {"spark.driver.defaultJavaOptions": f"{java_option('-XX:SharedArchiveFile', archive)} -Xlog:cds*=off"}


def java_option(name: str, path: Path) -> str:
    """An option quoted for Spark's launcher, which splits options at unquoted spaces."""
    text = f"{name}={path}"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return text if escaped == text and not any(letter.isspace() or letter == "'" for letter in text) else f'"{escaped}"'


def make(java: Java, environ: Mapping[str, str]) -> Path:
    """Creates the archive unless it exists, and deletes those of other Javas and Sparks: an environment has one."""
    archive = archive_file(java)
    if (other := _other_spark(environ)) is not None:
        raise SparkStartError(
            f"{_FAILED}: {other} is set, and an archive is only valid for the Spark of this environment"
        )
    if not _is_usable(archive):
        archive.parent.mkdir(parents=True, exist_ok=True)
        # A JVM that maps half an archive crashes, so it is renamed when complete. A JVM that outlives this process
        # finds its directory gone.
        with tempfile.TemporaryDirectory(prefix=".", dir=archive.parent) as scratch:
            _written(Path(scratch, archive.name)).replace(archive)
        for old in set(archive.parent.glob("spark-*.jsa")) - {archive}:
            old.unlink(missing_ok=True)
    return archive


def _written(archive: Path) -> Path:
    """Writes the archive in a process of its own: a JVM writes it at exit."""
    command = [sys.executable, "-m", "multilane.spark.class_training", str(archive)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT, check=False)  # noqa: S603 - ours
    except subprocess.TimeoutExpired:
        raise SparkStartError(f"{_FAILED}: Java did not write it within {_TIMEOUT:.0f} s") from None
    if made.returncode != 0 or not archive.is_file():
        last_line = (made.stderr.strip() or made.stdout.strip() or "Java gave no reason").splitlines()[-1]
        raise SparkStartError(f"{_FAILED}: {last_line}")
    return archive


def _other_spark(environ: Mapping[str, str]) -> str | None:
    return next((name for name in _FOREIGN_SPARK if name in environ), None)


def _is_usable(archive: Path) -> bool:
    try:
        return is_trusted(archive.stat())
    except OSError:
        return False
