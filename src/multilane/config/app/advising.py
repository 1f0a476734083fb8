"""Whether advice about the configuration is given in this process.

Thread: any.

An application that runs in several processes is made in each of them. The one that started them gives the advice; the
others would only repeat it. Owns a counter.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_silent: Final[list[bool]] = []  # one for each reason to be silent


def gives_advice() -> bool:
    return not _silent


@contextmanager
def advised_elsewhere() -> Iterator[None]:
    """Within, applications are made without advice: whoever started this process has given it."""
    _silent.append(True)
    try:
        yield
    finally:
        _silent.pop()
