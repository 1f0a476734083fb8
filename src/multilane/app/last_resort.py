"""Ends the process if a function of the application blocks a graceful shutdown.

Thread: one of its own, from the signal on.

A drain bounds every call that lets the event loop run. This module bounds a function that blocks the loop itself, or
leaves threads behind that never end. It never settles or commits, so records in flight are redelivered.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from multilane.logs import logger

log = logger(__name__)

_MARGIN: Final = 5.0  # seconds beyond the drain: to commit, and to leave the groups
_LOOP_TIMEOUT: Final = 2.0  # seconds for a running event loop to answer
_EXIT_CODE: Final = 1


class LastResort:
    """`call_on_loop` has the event loop call a function, from any thread; `drain` returns the longest drain timeout of
    the consumers."""

    def __init__(
        self,
        drain: Callable[[], float],
        call_on_loop: Callable[[Callable[[], object]], object],
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._drain = drain
        self._call_on_loop = call_on_loop
        self._leave = leave
        self._is_armed = False
        self._is_disarmed = threading.Event()

    def arm(self) -> None:
        """Start the watch: the process received a signal to end. Further calls do nothing."""
        self._is_armed = True
        threading.Thread(target=self._watch, name="multilane-last-resort", daemon=True).start()

    def disarm(self) -> None:
        """The application has ended. After a signal, make sure that the process ends too."""
        self._is_disarmed.set()
        if self._is_armed:
            leave_within()

    def _watch(self) -> None:
        timeout = self._drain() + _MARGIN
        while not self._is_disarmed.wait(timeout):
            if not self._loop_runs() and not self._is_disarmed.is_set():
                log.critical("a function blocks the event loop: exiting. Records in progress are redelivered")
                self._leave(_EXIT_CODE)
                return
            timeout = _MARGIN  # it is shutting down, at the brokers' pace

    def _loop_runs(self) -> bool:
        answered = threading.Event()
        self._call_on_loop(answered.set)
        return answered.wait(_LOOP_TIMEOUT)


def leave_within(seconds: float = _MARGIN, leave: Callable[[int], object] = os._exit) -> Callable[[], object]:
    """Exit this many seconds after the interpreter begins to shut down, even if functions left threads behind. Returns
    the function that starts the countdown."""
    is_ending = threading.Event()

    def end() -> None:
        is_ending.wait()
        threading.Event().wait(seconds)
        others = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
        log.critical("exiting while threads of the application still run: %s", ", ".join(others) or "unknown")
        leave(_EXIT_CODE)

    threading.Thread(target=end, name="multilane-last-resort", daemon=True).start()
    register = getattr(threading, "_register_atexit", None)  # atexit runs only after all threads were joined
    if register is not None:
        register(is_ending.set)
    return is_ending.set
