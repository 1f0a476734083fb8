"""SIGTERM and Ctrl-C shut a run down gracefully.

Thread: application (the main thread: signal handlers).
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from multilane.logs import logger
from multilane.outcome.raised import Interrupted

log = logger(__name__)


@contextmanager
def signals_resume(on_resume: Callable[[], object]) -> Iterator[None]:
    """On SIGCONT, call `on_resume` before anything else goes on: the process was stopped for an unknown time."""
    number = getattr(signal, "SIGCONT", None)
    try:
        before = None if number is None else signal.signal(number, lambda *_: on_resume())
    except ValueError:  # not the main thread
        number = None
    try:
        yield
    finally:
        if number is not None:
            signal.signal(number, before or signal.SIG_DFL)


@contextmanager
def signals_stop(stop: Callable[[], object], on_signal: Callable[[], object] = lambda: None) -> Iterator[None]:
    """The first signal calls `stop` and `on_signal`. A second one ends the process at once. Within this context a
    KeyboardInterrupt was raised by a function of the application, unless it is `Interrupted`."""

    def end(number: int, frame: Any) -> None:
        del frame
        log.warning("%s: stopping; a second signal ends the process at once", signal.Signals(number).name)
        stop()
        on_signal()
        restore()
        if before[signal.SIGINT] is signal.default_int_handler:
            signal.signal(signal.SIGINT, end_now)

    def end_now(number: int, frame: Any) -> None:
        raise Interrupted

    def restore() -> None:
        for name, handler in before.items():
            signal.signal(
                name, signal.SIG_DFL if handler is None else handler
            )  # None: a handler not installed by Python

    try:
        before = {name: signal.signal(name, end) for name in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread: another owner handles signals
        yield
        return
    try:
        yield
    finally:
        restore()
