"""SIGTERM as an exception, for commands that must clean up.

Thread: application (the main thread: signal handlers).
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from types import FrameType

_ENDED_BY_SIGNAL: Final = 128


@contextmanager
def cleaned_up() -> Iterator[None]:
    """Inside the block SIGTERM raises SystemExit with the exit code that shells expect."""
    before = signal.signal(signal.SIGTERM, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise SystemExit(_ENDED_BY_SIGNAL + number)
