"""Loopback ports for brokers.

Thread: any.

Ports are chosen below the range from which systems take outgoing ports, so that a broker that restarts finds its own
ports free again. They are reserved with locks on files, one for each port: between the choice and a broker's start, and
while a broker is down, nobody listens there, and another process must not take the port for free.
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
_TRIES: Final = 2_000


class ReservedPorts:
    """Ports on which nobody listens, and that no other process reserves until these are closed or forgotten."""

    def __init__(self, count: int) -> None:
        self._locks: dict[int, int] = {}  # open files by port
        self._release = weakref.finalize(self, _close_all, self._locks)
        # SystemRandom: a seed that tests set for everybody must not make two runs choose alike.
        chance = random.SystemRandom()
        for _ in range(_TRIES):
            if len(self._locks) == count:
                return
            port = chance.randrange(_LOWEST, _HIGHEST)
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
    """The lock of this port, unless somebody has it. The files stay: one that is removed can be locked twice."""
    file = os.open(_lock_directory() / str(port), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    return file


def _lock_directory() -> Path:
    """Anyone can create a directory of this name before we do: in one that others write to, locks mean nothing, and a
    file that we open there may be a link to another."""
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
        # As Kafka does it: connections of a predecessor in TIME_WAIT do not count.
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
            raise PortInUse(f"port {port} on {HOST} is in use: stop what listens there, or choose another with --port")
