"""A module that runs beside a measurement, in a process of its own, until the measurement is over.

Thread: application.

It is told what to do as JSON, and that it is over by the end of its standard input: also when whoever measures is gone.
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
    """Raises when it did not run to the end, or ended with an error."""
    arguments: list[Any] = [sys.executable, "-m", module, json.dumps(asdict(order))]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT) as process:
        try:
            yield
        finally:
            early = process.poll()
            process.communicate(timeout=_END_SECONDS)
    if early is not None or process.returncode:
        raise RuntimeError(f"{module} ended with {process.returncode}")


def until_it_is_over() -> threading.Event:
    """In the process beside: set when nobody measures any more."""
    stop = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_the_end, name="stdin", daemon=True).start()
    return stop
