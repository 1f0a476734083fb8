"""Starts Spark's JVM in a session of its own, so that signals to our process group do not reach it.

Thread: application.

A supervisor, `timeout` or a shell that ends a job sends SIGTERM to the whole group. A JVM that gets it ends at once:
nothing can be handed back or stopped in order then, and both sides complain with stacks. Here the signal is the
application's, which stops Spark when it is through. The JVM still ends with its parent, also after `kill -9`: it reads
a pipe from it. Its Python workers have a group of their own already.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial


@contextmanager
def jvm_in_its_own_session() -> Iterator[None]:
    """While this lasts. PySpark passes nothing through to the start of its JVM, so its `Popen` is replaced."""
    from pyspark import java_gateway

    name = "Popen"
    before = getattr(java_gateway, name, None)
    if before is not subprocess.Popen:  # somebody else's, or another PySpark: without it only signals differ
        yield
        return
    setattr(java_gateway, name, partial(subprocess.Popen, start_new_session=True))
    try:
        yield
    finally:
        setattr(java_gateway, name, before)
