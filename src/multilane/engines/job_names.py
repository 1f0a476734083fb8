"""What a run is called where Spark shows it: the names of its query, its jobs and its application.

Thread: none (pure).

Whoever may see Spark's user interface sees it: an application's place and the names of its consumers, and nothing else
of its configuration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from multilane.errors import printable

_MOST_NAMED: Final = 5
_LONGEST_NAME: Final = 60


def job_name(target: str, consumers: Sequence[str] = ()) -> str:
    """`multilane shop:app: orders, payments`."""
    named = [printable(name, _LONGEST_NAME) for name in consumers[:_MOST_NAMED]]
    left = len(consumers) - len(named)
    told = ", ".join(named) + (f" and {left} more" if left else "")
    return f"multilane {target}: {told}" if told else f"multilane {target}"
