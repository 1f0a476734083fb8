"""Kills brokers whose owner process is gone, for any reason.

Thread: none here; this file also runs as a small process of its own, one per cluster.

The process reads lines from the owner: `+pid` (watch), `-pid` (ended), `d path` (remove this directory at the end).
When the pipe closes or the parent changes, the owner is dead (even by SIGKILL), and the watched processes are killed. A
death signal from the kernel (PDEATHSIG) does not suffice: it fires when the starting *thread* ends.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

# A fork of the owner may hold the pipe open after its death, so the parent is checked as well.
_PARENT_CHECK_SECONDS: Final = 0.5
_BLOCKED_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Reaper:
    """The owner's side."""

    def __init__(self) -> None:
        # -I -S: only the standard library, starts in about 20 ms. A session of its own: Ctrl-C does not reach it.
        command = [sys.executable, "-I", "-S", __file__]
        # Blocked signals are inherited: from its first instruction on only SIGKILL ends it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED_SIGNALS)
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def watch(self, pid: int) -> None:
        self._send(f"+{pid}")

    def forget(self, pid: int) -> None:
        self._send(f"-{pid}")

    def remove_at_end(self, directory: Path) -> None:
        self._send(f"d{directory}")

    def close(self) -> None:
        """Makes the reaper finish now: it kills the watched processes and removes the directories."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _send(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()


def read_commands(descriptor: int, parent: int) -> tuple[set[int], list[str]]:
    """Reads commands until the owner is gone; returns the processes to kill and the directories to remove."""
    pids: set[int] = set()
    directories: list[str] = []
    pending = b""
    while os.getppid() == parent:
        if not select.select([descriptor], [], [], _PARENT_CHECK_SECONDS)[0]:
            continue
        chunk = os.read(descriptor, 65536)
        if not chunk:
            break
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            _apply(line.decode(), pids, directories)
    return pids, directories


def _apply(line: str, pids: set[int], directories: list[str]) -> None:
    command, rest = line[:1], line[1:]
    if command == "+":
        pids.add(int(rest))
    elif command == "-":
        pids.discard(int(rest))
    else:
        directories.append(rest)


def main() -> None:
    pids, directories = read_commands(sys.stdin.fileno(), os.getppid())
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for directory in directories:
        # A dying broker may still write files during the first attempt.
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
