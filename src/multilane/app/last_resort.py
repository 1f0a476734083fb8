"""Ends the process when it was told to end and a function of the application keeps it from ending.

Thread: one of its own, from the signal on.

A drain bounds every call that lets the event loop run. A function that blocks the loop itself, or leaves threads behind
that never end, is bounded here: nothing more is settled or committed then, so what was in work comes again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Final

from multilane.logs import logger

log = logger(__name__)

_MARGIN: Final = 5.0  # seconds beyond the drain: to commit, and to leave the groups
_ANSWER: Final = 2.0  # seconds for an event loop that runs
_EXIT_CODE: Final = 1


class LastResort:
    """`ask` has the event loop call something, from any thread; `drain` gives the longest drain of the consumers."""

    def __init__(
        self,
        drain: Callable[[], float],
        ask: Callable[[Callable[[], object]], object],
        leave: Callable[[int], object] = os._exit,
    ) -> None:
        self._drain = drain
        self._ask = ask
        self._leave = leave
        self._is_armed = False
        self._is_disarmed = threading.Event()

    def arm(self) -> None:
        """The process was told to end. A second call does nothing that the first has not done."""
        self._is_armed = True
        threading.Thread(target=self._watch, name="multilane-last-resort", daemon=True).start()

    def disarm(self) -> None:
        """The application has ended; if it was told to, so does its process."""
        self._is_disarmed.set()
        if self._is_armed:
            leave_within()

    def _watch(self) -> None:
        patience = self._drain() + _MARGIN
        while not self._is_disarmed.wait(patience):
            if not self._loop_runs() and not self._is_disarmed.is_set():
                log.critical("a function blocks the event loop: exiting. Records in progress are redelivered")
                self._leave(_EXIT_CODE)
                return
            patience = _MARGIN  # it ends, at the brokers' pace

    def _loop_runs(self) -> bool:
        answered = threading.Event()
        self._ask(answered.set)
        return answered.wait(_ANSWER)


def leave_within(seconds: float = _MARGIN, leave: Callable[[int], object] = os._exit) -> Callable[[], object]:
    """From the time when the interpreter begins to end: threads that functions have left behind do not keep it. Gives
    what starts that time."""
    is_ending = threading.Event()

    def end() -> None:
        is_ending.wait()
        threading.Event().wait(seconds)
        others = [t.name for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()]
        log.critical("exiting while threads of the application still run: %s", ", ".join(others) or "unknown")
        leave(_EXIT_CODE)

    threading.Thread(target=end, name="multilane-last-resort", daemon=True).start()
    register = getattr(threading, "_register_atexit", None)  # atexit comes after all threads were joined
    if register is not None:
        register(is_ending.set)
    return is_ending.set
