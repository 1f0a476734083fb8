"""Reads the begun tables that dead processes have left on this machine, and removes those that are no longer needed.

Thread: any.

A table that can be locked belongs to a dead process. Its calls stay in it until the partition's next owner finds them
settled. An empty table is deleted, and so is one that is a week old. Every value in a table is checked against its
bounds.
"""

from __future__ import annotations

import fcntl
import json
import os
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from multilane.lanes.begun import (
    COUNT_WORD,
    FIRST_SLOT,
    HEADER_WORDS,
    IDLE,
    MAGIC,
    MOST_SLOTS,
    NAMES_BYTES,
    SUFFIX,
    WORD,
    Name,
    own_tables,
)  # fmt: skip
from multilane.lanes.crashes import Crash, OpenCall
from multilane.logs import logger

log = logger(__name__)

_FORGOTTEN_SECONDS: Final = 7 * 86_400.0
_SLOT: Final = struct.Struct("=3q")
IsSettled = Callable[[OpenCall], bool]


def crashes_in(directory: Path, is_settled: IsSettled, now: float) -> list[Crash]:
    """The crashes with calls that are not settled. Settled calls are cleared from their tables, for all processes.
    `now` is the wall-clock time."""
    found = []
    for path in sorted(directory.glob(f"*{SUFFIX}")):
        if path in own_tables:
            continue
        with suppress(OSError), _locked(path) as file:
            crash = _read(path, file, is_settled)
            if not crash.calls or now - path.stat().st_mtime > _FORGOTTEN_SECONDS:
                path.unlink(missing_ok=True)
            else:
                found.append(crash)
    return found


@contextmanager
def _locked(path: Path) -> Iterator[int]:
    """Raises OSError while its process lives. Several readers may hold it at once."""
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield file
    finally:
        os.close(file)


@dataclass(frozen=True, slots=True)
class _Slot:
    at: int  # in bytes
    call: OpenCall


def _read(path: Path, file: int, is_settled: IsSettled) -> Crash:
    try:
        names_bytes, used, counted = _header(os.pread(file, 4 * WORD, 0))
        names = [_name(line) for line in os.pread(file, names_bytes, HEADER_WORDS * WORD).splitlines()]
        slots = list(_slots(os.pread(file, used * _SLOT.size, FIRST_SLOT * WORD), names))
        many = counted or len(slots)
    except (ValueError, TypeError, IndexError, struct.error) as error:
        log.warning("deleting %s, which is not a begun table: %s", path, error)
        return Crash(())
    os.pwrite(file, struct.pack("=q", many), COUNT_WORD * WORD)  # once calls are cleared they cannot be counted
    unsettled = []
    for slot in slots:
        if is_settled(slot.call):
            os.pwrite(file, struct.pack("=q", IDLE), slot.at + WORD)
        else:
            unsettled.append(slot.call)
    return Crash(tuple(unsettled), many)


def _header(content: bytes) -> tuple[int, int, int]:
    magic, names_bytes, used, counted = struct.unpack("=4q", content)
    if magic != MAGIC or not 0 <= names_bytes <= NAMES_BYTES or not 0 <= used <= MOST_SLOTS:
        raise ValueError("its header is wrong")
    return names_bytes, used, counted


def _slots(content: bytes, names: Sequence[Name]) -> Iterator[_Slot]:
    for number, (name, first, last) in enumerate(_SLOT.iter_unpack(content)):
        if first > IDLE and 0 <= name < len(names):
            yield _Slot(FIRST_SLOT * WORD + number * _SLOT.size, OpenCall(names[name], first, max(first, last)))


def _name(line: bytes) -> Name:
    """Older versions did not write the log, and a trigger is written only where there are several."""
    cluster, group, topic, partition, *more = json.loads(line)
    return Name(str(cluster), str(group), str(topic), int(partition), *map(str, more))
