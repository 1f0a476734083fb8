"""A move between the states of a table: any other is a defect.

Thread: none (pure).
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import TypeVar

S = TypeVar("S", bound=enum.Enum)


def moved(table: Mapping[S, frozenset[S]], before: S, after: S) -> S:
    """Returns the new state."""
    if after is not before and after not in table[before]:
        raise AssertionError(f"a {type(before).__name__} goes from {before.name} to {after.name}")
    return after
