"""SIGTERM and Ctrl-C end what runs, in order.

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
def signals_resume(look_up: Callable[[], object]) -> Iterator[None]:
    """SIGCONT: the process was stopped, for who knows how long. `look_up` is called before anything else goes on."""
    number = getattr(signal, "SIGCONT", None)
    try:
        before = None if number is None else signal.signal(number, lambda *_: look_up())
    except ValueError:  # not the main thread
        number = None
    try:
        yield
    finally:
        if number is not None:
            signal.signal(number, before or signal.SIG_DFL)


@contextmanager
def signals_stop(stop: Callable[[], object], on_signal: Callable[[], object] = lambda: None) -> Iterator[None]:
    """The first signal ends in order, a second one at once; `on_signal` is called at the first. While this lasts a
    KeyboardInterrupt is a function's own, unless it is `Interrupted`."""

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
            signal.signal(name, signal.SIG_DFL if handler is None else handler)  # None: one that Python does not know

    try:
        before = {name: signal.signal(name, end) for name in (signal.SIGTERM, signal.SIGINT)}
    except ValueError:  # not the main thread: signals are somebody else's
        yield
        return
    try:
        yield
    finally:
        restore()
