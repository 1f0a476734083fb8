"""A window: how many records are gathered for one call, for how long, and which of them are handled.

Thread: none (pure values).

A `select` function gets the records of a window, in log order for each key, and splits them into those to handle and
those to skip. `newest_of_each_key` is the `select` function of unique listeners.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from multilane.wire.records.record import Record


class Selection(NamedTuple):
    """The records of a window that are handled, and those that are skipped. Together they are the whole window."""

    handled: list[Record]
    skipped: Sequence[Record] = ()


Select = Callable[[list[Record]], Selection]


@dataclass(frozen=True, slots=True)
class Window:
    size: int = 1
    latency: float = 0.0  # seconds that a record waits for the window to fill
    select: Select | None = None  # None: all are handled

    @property
    def is_single(self) -> bool:
        return self.size <= 1 and self.select is None


def newest_of_each_key(records: list[Record]) -> Selection:
    """The last record of each key. Records without a key are all kept."""
    newest = {record.key: record for record in records if record.key is not None}
    if len(newest) == len(records):
        return Selection(records)
    handled: list[Record] = []
    skipped: list[Record] = []
    for record in records:
        is_newest = record.key is None or newest[record.key] is record
        (handled if is_newest else skipped).append(record)
    return Selection(handled, skipped)
