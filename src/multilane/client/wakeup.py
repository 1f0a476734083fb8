"""Wakes the network thread out of its select.

Thread: any thread sets, the network thread clears.

A byte is written only when the thread is about to sleep or asleep: in a busy loop setting costs nothing.
"""

from __future__ import annotations

import contextlib
import socket


class Wakeup:
    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._asleep = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def set(self) -> None:
        """Call after the thing to be seen is in its place: the sleeper looks once more after it has lain down."""
        if self._asleep:
            self.ring()

    def ring(self) -> None:
        """Wake, asleep or not."""
        self._asleep = False
        with contextlib.suppress(OSError):  # full: it wakes anyway; closed: nobody sleeps any more
            self._writer.send(b"\0")

    def lie_down(self) -> None:
        self._asleep = True

    def get_up(self) -> None:
        self._asleep = False

    def clear(self) -> None:
        with contextlib.suppress(OSError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
