"""One broker process: started, killed, stopped, paused, and started again on the same data.

Thread: any, one at a time.

Owns the process and its log file. Never waits for the broker to be ready: the cluster does.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections import deque
from pathlib import Path
from typing import Final

from multilane.dev.reaper import Reaper
from multilane.errors import DevKafkaError

STOP_SECONDS: Final = 15.0


class BrokerNode:
    """A broker that this process started, or may start."""

    def __init__(self, node_id: int, directory: Path, command: list[str], reaper: Reaper) -> None:
        self.id = node_id
        self.directory = directory
        self.log = directory / "broker.log"
        self._command = command
        self._reaper = reaper
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs and before it was started."""
        return None if self._process is None else self._process.poll()

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        if self.running:
            raise DevKafkaError(f"node {self.id} is running")
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in a terminal reaches only this process, which stops the brokers cleanly.
            self._process = subprocess.Popen(  # noqa: S603
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                start_new_session=True,
            )
        self._reaper.watch(self._process.pid)

    def kill(self) -> None:
        """SIGKILL, like a machine that loses power."""
        self._signal(signal.SIGKILL)
        self._wait(None)

    def terminate(self) -> None:
        """SIGTERM: leaders move away first. Does not wait."""
        # A paused process would handle SIGTERM only after it resumes.
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)

    def wait_ended(self, timeout: float = STOP_SECONDS) -> None:
        """Waits for a terminated broker to end; kills it if it takes too long."""
        try:
            self._wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def tail(self, lines: int) -> str:
        if not self.log.exists():
            return ""
        with self.log.open(errors="replace") as file:
            return "".join(deque(file, maxlen=lines))

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise DevKafkaError(f"node {self.id} is not running")
        return self._process

    def _signal(self, number: signal.Signals) -> None:
        os.kill(self._running().pid, number)

    def _wait(self, timeout: float | None) -> None:
        if self._process is None:
            return
        self._process.wait(timeout)
        self._reaper.forget(self._process.pid)
