"""Whether this process logs advice about the configuration.

Thread: any.

An application that runs in several processes is created in each of them. The process that started the others gives the
advice; the others would only repeat it. Owns a counter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_silent: Final[list[bool]] = []  # one entry per reason to be silent


def gives_advice() -> bool:
    return not _silent


@contextmanager
def advised_elsewhere() -> Iterator[None]:
    """Inside the block applications are created without advice: the process that started this one has given it."""
    _silent.append(True)
    try:
        yield
    finally:
        _silent.pop()
