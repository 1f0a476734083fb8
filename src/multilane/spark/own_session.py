"""Starts Spark's JVM in a session of its own, so that signals to our process group do not reach it.

Thread: application.

A supervisor, `timeout` or a shell that ends a job sends SIGTERM to the whole group. A JVM that receives it exits at
once: nothing can be returned or stopped cleanly then, and both sides log stack traces. So only the application gets
the signal, and stops Spark when it has finished. The JVM still ends with its parent, also after `kill -9`: it reads a
pipe from it. Its Python workers have a group of their own already.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial


@contextmanager
def jvm_in_its_own_session() -> Iterator[None]:
    """Applies inside the `with` block. PySpark passes no arguments through to its JVM's start, so its `Popen` is
    replaced."""
    from pyspark import java_gateway

    name = "Popen"
    before = getattr(java_gateway, name, None)
    if before is not subprocess.Popen:  # patched by another library, or another PySpark: then only signals differ
        yield
        return
    setattr(java_gateway, name, partial(subprocess.Popen, start_new_session=True))
    try:
        yield
    finally:
        setattr(java_gateway, name, before)
