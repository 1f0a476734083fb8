"""The parent's side of a child process that reports events, one line of JSON each.

Thread: application; a thread reads the child's output.

Owns the process: leaving the `with` closes its standard input, which ends every child of these benchmarks, and kills it
if it does not end.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

ROOT: Final = Path(__file__).resolve().parents[2]
WAIT_SECONDS: Final = 90.0
_END_SECONDS: Final = 30.0

Event: TypeAlias = dict[str, Any]


class Child:
    def __init__(self, module: str, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="events", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def tell(self, command: str) -> float:
        """The wall clock time at which the command was sent."""
        if self._process.stdin is None:
            raise RuntimeError("the child has no input")
        now = time.time()
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        return now

    def wait(self, wanted: Callable[[Event], bool], what: str, timeout: float = WAIT_SECONDS) -> Event:
        """The first wanted event from now on; raises if the child ends or does not report one in time."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                event = self._events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise RuntimeError(f"{what}: not within {timeout:.0f} s") from None
            if event is None:
                raise RuntimeError(f"{what}: the child ended with {self._process.wait()}")
            if wanted(event):
                return event

    def wait_event(self, name: str, timeout: float = WAIT_SECONDS) -> Event:
        return self.wait(lambda event: event["event"] == name, name, timeout)

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._events.put(json.loads(line))
        self._events.put(None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(0.0 if error is not None else _END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        if self._process.stdout is not None:
            self._process.stdout.close()
