"""Spark's daemon of Python workers, importing the installed pyspark instead of the same one from a zip.

Thread: main, before any other.

Spark puts a zip of pyspark first on the import path of its Python processes, for machines without pyspark. Python does
not cache compiled modules of a zip: each process would take a second to compile what it imports. A local master's
workers have the package itself, which contains the zip.
"""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from pathlib import Path


def without_zips(paths: Sequence[str]) -> list[str]:
    """Import paths without the zips of a pyspark that is installed on another path."""
    others = [path for path in paths if not path.endswith(".zip")]
    spec = PathFinder.find_spec("pyspark", others)
    if spec is None or spec.origin is None:
        return list(paths)
    zips = Path(spec.origin).parent / "python" / "lib"
    return [path for path in paths if not (path.endswith(".zip") and Path(path).parent == zips)]


if __name__ == "__main__":
    sys.path[:] = without_zips(sys.path)
    runpy.run_module("pyspark.daemon", run_name="__main__", alter_sys=True)
