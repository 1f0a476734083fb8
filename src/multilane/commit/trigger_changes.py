"""Changes to the named positions of a commit: another name for a trigger, or none.

Thread: none (pure).

The committed offset, the runs and the log that they belong to stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from multilane.commit import completion_map
from multilane.commit.sections import LARGEST
from multilane.commit.trigger_positions import Position
from multilane.types import OffsetAndMetadata


def positions_of(committed: OffsetAndMetadata) -> Mapping[str, Position]:
    return completion_map.read(committed.metadata, committed.offset).positions


def renamed(committed: OffsetAndMetadata, old: str, new: str) -> OffsetAndMetadata | None:
    """None if there is nothing to rename. Raises ValueError if the new name is taken."""
    positions = positions_of(committed)
    if old not in positions:
        return None
    if new in positions:
        raise ValueError(f"{new} has a position of its own")
    moved = replace(positions[old], absent_since=None)
    return _with(committed, {new if name == old else name: p for name, p in positions.items()} | {new: moved})


def forgotten(committed: OffsetAndMetadata, name: str) -> OffsetAndMetadata | None:
    """None if there is nothing to forget."""
    positions = positions_of(committed)
    if name not in positions:
        return None
    return _with(committed, {other: position for other, position in positions.items() if other != name})


def _with(committed: OffsetAndMetadata, positions: Mapping[str, Position]) -> OffsetAndMetadata:
    text = completion_map.read(committed.metadata, committed.offset)
    # Without any name left, runs would count as those of whoever comes next.
    runs = text.runs if positions else ()
    metadata = completion_map.encode(committed.offset, runs, text.log, positions, LARGEST)
    return replace(committed, metadata=metadata)
