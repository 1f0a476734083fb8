"""The bounds that a user gives a backfill, and the resulting range of offsets of each partition.

Thread: none (pure).

A bound is a word (`earliest`, `latest`), a time in ms since 1970, or an offset for each partition. A range is
[start, end). It is looked up once and never again, so that a backfill has the same records however often it starts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from multilane.errors import ConfigError, DataLoss

Bound = Literal["earliest", "latest"] | int | Mapping[int, int]
OffsetRange = tuple[int, int]
OffsetByPartition = Mapping[int, int]  # by partition


def parse_offsets(text: str) -> dict[int, int]:
    """Parse `{"0": 10, "1": 25}`. Raises a ValueError that describes the mistake."""
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError('invalid JSON, expected for example {"0": 10, "1": 25}') from None
    if not isinstance(found, dict) or not found:
        raise ValueError('expected an offset for each partition, for example {"0": 10, "1": 25}')
    offsets = {}
    for name, offset in found.items():
        is_whole = isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < 2**63
        if not (name.isascii() and name.isdigit()) or not is_whole:
            raise ValueError(f"{name!r}: {offset!r} is not a partition and an offset")
        offsets[int(name)] = offset
    return offsets


def bound_text(bound: Bound) -> str:
    """The same text for the same bound, however the user wrote it."""
    if isinstance(bound, str):
        return bound
    if isinstance(bound, int):
        return datetime.fromtimestamp(bound / 1_000, UTC).isoformat(timespec="milliseconds")
    return json.dumps({str(partition): bound[partition] for partition in sorted(bound)})


def named_partitions(begin: Bound, end: Bound) -> frozenset[int] | None:
    """The partitions that offsets were given for; None means all."""
    named = [frozenset(bound) for bound in (begin, end) if isinstance(bound, Mapping)]
    if len(named) == 2 and named[0] != named[1]:
        odd = ", ".join(map(str, sorted(named[0] ^ named[1])))
        raise ConfigError(f"--from and --to must name the same partitions, but {odd} is in one of them only")
    return named[0] if named else None


def offset_ranges(
    starts: OffsetByPartition, ends: OffsetByPartition, logs: Mapping[int, OffsetRange]
) -> dict[int, OffsetRange]:
    """The range of each partition. `logs`: where each begins and ends now. Raises if a range is not in the log."""
    found = {}
    for partition, start in sorted(starts.items()):
        end, (first, last) = ends[partition], logs[partition]
        if start > end:
            raise ConfigError(f"partition {partition}: --from {start} is after --to {end}: correct one of them")
        if start < min(first, end):
            raise DataLoss(f"partition {partition} now begins at {first}, but --from is {start}: begin at {first}")
        if end > last:
            raise ConfigError(f"partition {partition} now ends at {last}, but --to is {end}: end at {last}")
        found[partition] = start, end
    return found
