"""Processes that end with the block that runs them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

PATIENCE_SECONDS = 240.0


@contextmanager
def running(
    command: Sequence[str | Path], log: Path, stop: signal.Signals = signal.SIGTERM, **options: Any
) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        # A process group of its own: Ctrl-C is for the script, which then stops the process.
        process = subprocess.Popen(command, stdout=out, stderr=out, process_group=0, **options)
    try:
        yield process
    finally:
        process.send_signal(stop)
        process.wait()


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns when the process has brought the condition about; ends the script if that cannot be expected any more."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"failed: a process has ended, or makes no progress\n{log.read_text()}")
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
