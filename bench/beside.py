"""Runs a module beside a measurement, in a process of its own, until the measurement ends.

Thread: application.

The process gets its order as JSON, and stops at the end of its standard input, also if the measuring process is gone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from bench.group.steering import ROOT

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_END_SECONDS: Final = 60


@contextmanager
def beside(module: str, order: DataclassInstance) -> Iterator[None]:
    """Raises if the module ended early, or with an error."""
    arguments: list[Any] = [sys.executable, "-m", module, json.dumps(asdict(order))]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT) as process:
        try:
            yield
        finally:
            early = process.poll()
            process.communicate(timeout=_END_SECONDS)
    if early is not None or process.returncode:
        raise RuntimeError(f"{module} exited with {process.returncode}")


def stop_at_end() -> threading.Event:
    """In the child process: an event that is set when the measurement ends."""
    stop = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_the_end, name="stdin", daemon=True).start()
    return stop
