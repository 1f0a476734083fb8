"""Wakes the network thread out of its select.

Thread: any thread sets, the network thread clears.

A byte is written only when the thread is about to sleep or asleep: in a busy loop setting costs nothing. What is set
while the thread is busy is kept: `may_sleep` says so, and the thread looks again instead of sleeping.
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
        self._rung = False

    def fileno(self) -> int:
        return self._reader.fileno()

    def set(self) -> None:
        """Call after the thing to be seen is in its place.

        Here the ring is noted before the sleeper is looked at; there the sleeper lies down before it looks for a ring.
        So whichever comes first, one of the two sees the other.
        """
        self._rung = True
        if self._asleep:
            self.ring()

    def ring(self) -> None:
        """Wake, asleep or not."""
        self._asleep = False
        with contextlib.suppress(OSError):  # full: it wakes anyway; closed: nobody sleeps any more
            self._writer.send(b"\0")

    def begin_turn(self) -> None:
        """Before looking at everything: what is set from now on may have come too late to be seen."""
        self._rung = False

    def may_sleep(self) -> bool:
        """Whether the thread may sleep: nothing was set since it began to look."""
        self._asleep = True
        return not self._rung

    def awake(self) -> None:
        self._asleep = False

    def clear(self) -> None:
        with contextlib.suppress(OSError):
            while self._reader.recv(4096):
                pass

    def close(self) -> None:
        self._reader.close()
        self._writer.close()
