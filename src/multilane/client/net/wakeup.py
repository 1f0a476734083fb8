"""Wakes the network thread from its select.

Thread: any thread sets, the network thread clears.

A byte is written only while the thread sleeps or is about to: setting costs nothing while the loop is busy. A set
during a turn is kept: `may_sleep` returns False, and the thread starts another turn instead of sleeping.
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
        """Call after the event is in its queue.

        This method writes `_rung` before it reads `_asleep`; `may_sleep` writes `_asleep` before it reads `_rung`. So
        in any order one of the two sees the other.
        """
        self._rung = True
        if self._asleep:
            self.ring()

    def ring(self) -> None:
        """Write the byte, whether or not the thread sleeps."""
        self._asleep = False
        with contextlib.suppress(OSError):  # full: it wakes anyway; closed: the thread has ended
            self._writer.send(b"\0")

    def begin_turn(self) -> None:
        """Call before checking the queues: a set from now on may come too late for this turn."""
        self._rung = False

    def may_sleep(self) -> bool:
        """Whether the thread may sleep: nothing was set since `begin_turn`."""
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
