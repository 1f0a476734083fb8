"""Loopback ports for brokers.

Thread: any.

Ports are chosen below the system's range of ephemeral ports, so that a restarted broker finds its ports free again. A
file lock reserves each port: between the choice and a broker's start, and while a broker is down, no process listens on
it, and another cluster must not take it for free.
"""

from __future__ import annotations

import fcntl
import os
import random
import socket
import stat
import tempfile
import weakref
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from multilane.errors import DevKafkaError, PortInUse
from multilane.user_cache import is_trusted

HOST: Final = "127.0.0.1"
_LOWEST: Final = 20_000
_HIGHEST: Final = 32_000
_ATTEMPTS: Final = 2_000


class ReservedPorts:
    """Free ports that no other process can reserve until this object is closed or garbage-collected."""

    def __init__(self, count: int) -> None:
        self._locks: dict[int, int] = {}  # open files by port
        self._release = weakref.finalize(self, _close_all, self._locks)
        # SystemRandom: with a global seed, as tests set it, two runs would choose the same ports.
        random_source = random.SystemRandom()
        for _ in range(_ATTEMPTS):
            if len(self._locks) == count:
                return
            port = random_source.randrange(_LOWEST, _HIGHEST)
            lock = _lock_of(port) if port not in self._locks and is_free(port) else None
            if lock is not None:
                self._locks[port] = lock
        self.close()
        raise DevKafkaError(f"no {count} free ports between {_LOWEST} and {_HIGHEST}")

    @property
    def ports(self) -> list[int]:
        return sorted(self._locks)

    def close(self) -> None:
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _close_all(locks: dict[int, int]) -> None:
    for lock in locks.values():
        os.close(lock)


def _lock_of(port: int) -> int | None:
    """The lock of this port; None if it is taken. The files stay: a deleted file could be locked twice."""
    file = os.open(_lock_directory() / str(port), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _lock_directory() -> Path:
    """The checked directory of the locks. Another user could create it first: in a directory that others can write to,
    locks mean nothing, and a file opened there may be a link."""
    directory = Path(tempfile.gettempdir(), f"multilane-ports-{os.getuid()}")
    with suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    facts = directory.lstat()
    if not stat.S_ISDIR(facts.st_mode) or not is_trusted(facts):
        raise DevKafkaError(
            f"{directory} is not a directory that only this user can write to: remove it, or set TMPDIR to a directory "
            "of your own"
        )
    return directory


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Kafka does: connections of a predecessor in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def require_free(ports: Iterable[int]) -> None:
    for port in ports:
        if not is_free(port):
            raise PortInUse(f"port {port} on {HOST} is in use: stop its listener, or choose another with --port")
