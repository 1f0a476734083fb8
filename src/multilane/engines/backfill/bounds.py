"""Where a backfill begins and ends, as it was asked for, and the stretch of each partition that comes of it.

Thread: none (pure).

A bound is a word (`earliest`, `latest`), a time in ms since 1970, or an offset for each partition. A stretch is
[start, end): what was looked up once and is never looked up again, so that a backfill has the same records however
often it is started.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

from multilane.errors import ConfigError, DataLoss

Bound = Literal["earliest", "latest"] | int | Mapping[int, int]
Stretch = tuple[int, int]
Offsets = Mapping[int, int]  # by partition


def parse_offsets(text: str) -> dict[int, int]:
    """`{"0": 10, "1": 25}`; ValueError says what is wrong with it."""
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError('it is no JSON; write {"0": 10, "1": 25}') from None
    if not isinstance(found, dict) or not found:
        raise ValueError('it has to name partitions, as in {"0": 10, "1": 25}')
    offsets = {}
    for name, offset in found.items():
        is_whole = isinstance(offset, int) and not isinstance(offset, bool) and 0 <= offset < 2**63
        if not (name.isascii() and name.isdigit()) or not is_whole:
            raise ValueError(f"{name!r}: {offset!r} is not a partition and its offset")
        offsets[int(name)] = offset
    return offsets


def told(bound: Bound) -> str:
    """The same text for the same bound, however it was written."""
    if isinstance(bound, str):
        return bound
    if isinstance(bound, int):
        return datetime.fromtimestamp(bound / 1_000, UTC).isoformat(timespec="milliseconds")
    return json.dumps({str(partition): bound[partition] for partition in sorted(bound)})


def named_partitions(begin: Bound, end: Bound) -> frozenset[int] | None:
    """Those that offsets were given for, and no others; None for all there are."""
    named = [frozenset(bound) for bound in (begin, end) if isinstance(bound, Mapping)]
    if len(named) == 2 and named[0] != named[1]:
        odd = ", ".join(map(str, sorted(named[0] ^ named[1])))
        raise ConfigError(f"--from and --to have to name the same partitions, and {odd} is in one of them only")
    return named[0] if named else None


def stretches(starts: Offsets, ends: Offsets, logs: Mapping[int, Stretch]) -> dict[int, Stretch]:
    """Of each partition; `logs` is where each begins and ends now. What was asked for has to be there."""
    made = {}
    for partition, start in sorted(starts.items()):
        end, (first, last) = ends[partition], logs[partition]
        if start > end:
            raise ConfigError(f"partition {partition} begins at {start}, behind its end {end}: mend --from or --to")
        if start < min(first, end):
            raise DataLoss(f"partition {partition} begins at {first} by now, and --from says {start}: begin there")
        if end > last:
            raise ConfigError(f"partition {partition} ends at {last} by now, and --to says {end}: history ends there")
        made[partition] = start, end
    return made
