"""Ends brokers whose owner is gone, however it went.

Thread: none here; this file also runs as a small process of its own, one for each cluster.

The process reads lines from the owner: `+pid` (watch), `-pid` (has ended), `d path` (remove this directory at the end).
When the pipe closes or its parent changes, the owner is dead (even by SIGKILL): what is still watched is killed. A
death signal from the kernel (PDEATHSIG) would not do: it fires when the starting *thread* ends.
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

# A fork of the owner may hold the pipe open after its death, so the parent is looked at as well.
_PARENT_CHECK_SECONDS: Final = 0.5
_DEAF_TO: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Reaper:
    """The owner's end."""

    def __init__(self) -> None:
        # -I -S: nothing but the standard library; starts in about 20 ms. A session of its own: no Ctrl-C reaches it.
        command = [sys.executable, "-I", "-S", __file__]
        # Blocked signals are inherited: from its first instruction on nothing but SIGKILL ends it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _DEAF_TO)
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True)  # noqa: S603
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def watch(self, pid: int) -> None:
        self._tell(f"+{pid}")

    def forget(self, pid: int) -> None:
        self._tell(f"-{pid}")

    def remove_at_end(self, directory: Path) -> None:
        self._tell(f"d{directory}")

    def close(self) -> None:
        """Lets it do its last work now: kill what is watched, remove what was named."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()

    def _tell(self, line: str) -> None:
        if self._process.stdin is not None:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()


def read_orders(descriptor: int, parent: int) -> tuple[set[int], list[str]]:
    """Follows the owner until it is gone; gives what is left to do."""
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
            _follow(line.decode(), pids, directories)
    return pids, directories


def _follow(line: str, pids: set[int], directories: list[str]) -> None:
    order, rest = line[:1], line[1:]
    if order == "+":
        pids.add(int(rest))
    elif order == "-":
        pids.discard(int(rest))
    else:
        directories.append(rest)


def main() -> None:
    pids, directories = read_orders(sys.stdin.fileno(), os.getppid())
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    for directory in directories:
        # A dying broker may still write: what it leaves is tried once more.
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
