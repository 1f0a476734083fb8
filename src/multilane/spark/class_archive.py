"""Spark's classes as its JVM has them in memory, in a file of this Python environment.

A JVM that maps it starts in half the time.

Thread: application.

The archive is never needed. Java looks by itself whether it was made by the same Java from the same jars, and does
without it if not. It lies with the environment whose jars it was made from, and goes with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from multilane.errors import SparkStartError
from multilane.user_cache import is_trusted

# Another installation of Spark, or settings of its own, that may have options for Java among them.
_OF_OTHERS: Final = ("SPARK_HOME", "SPARK_CONF_DIR")
_PATIENCE: Final = 300.0


def archive_file() -> Path:
    from pyspark import __version__ as spark

    return Path(sys.prefix) / "share" / "multilane" / f"spark-{spark}.jsa"


def mapped(environ: Mapping[str, str]) -> dict[str, str]:
    """The setting with which a JVM of Spark's maps the archive; empty where there is none to trust."""
    archive = archive_file()
    if any(name in environ for name in _OF_OTHERS) or any(letter.isspace() for letter in str(archive)):
        return {}
    try:
        is_ours = is_trusted(archive.stat())
    except OSError:
        return {}
    # Nobody needs to hear of an archive that Java does not take.
    return {"spark.driver.defaultJavaOptions": f"-XX:SharedArchiveFile={archive} -Xlog:cds*=off"} if is_ours else {}


def make() -> Path:
    """Made anew. In a process of its own: a JVM writes its archive when it ends."""
    archive = archive_file()
    beside = archive.with_suffix(f".{os.getpid()}")  # a JVM that maps half an archive crashes
    archive.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    command = [sys.executable, "-m", "multilane.spark.class_training", str(beside)]
    try:
        made = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE, check=False)  # noqa: S603 - ours
        if made.returncode != 0 or not beside.is_file():
            said = (made.stderr.strip() or made.stdout.strip() or "it did not say why").splitlines()[-1]
            raise SparkStartError(f"Java has written no archive of Spark's classes: {said}")
        beside.replace(archive)
    except subprocess.TimeoutExpired:
        raise SparkStartError(f"Java has written no archive of Spark's classes in {_PATIENCE:.0f} s") from None
    finally:
        beside.unlink(missing_ok=True)
    return archive
