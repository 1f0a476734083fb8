"""Names of a run in Spark's user interface: its application, its query and its jobs.

Thread: none (pure).

Everybody who may open Spark's user interface sees these names. They contain the application's target and the names of
its consumers, and nothing else of its configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from multilane.errors import printable

_MAX_NAMES: Final = 5
_MAX_NAME_LENGTH: Final = 60


def job_name(target: str, consumers: Sequence[str] = ()) -> str:
    """`multilane shop:app: orders, payments`."""
    names = [printable(name, _MAX_NAME_LENGTH) for name in consumers[:_MAX_NAMES]]
    omitted = len(consumers) - len(names)
    listed = ", ".join(names) + (f" and {omitted} more" if omitted else "")
    return f"multilane {target}: {listed}" if listed else f"multilane {target}"
