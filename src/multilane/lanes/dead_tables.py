"""Reads the begun tables that dead processes have left behind on this machine, and clears away what is done with.

Thread: any.

A table whose lock can be had belongs to a process that is gone. What its lanes were at stays there until whoever has
the partition next finds that it is settled. A table with nothing left is deleted, and so is one that is a week old.
Nothing in a table is believed beyond its own bounds.
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
    """What is left of them. Calls that are settled are cleared from their tables, for everybody. `now` is the time of
    day."""
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
    """OSError while its process lives. Others may read it at the same time."""
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
    os.pwrite(file, struct.pack("=q", many), COUNT_WORD * WORD)  # once calls are cleared nobody could count them
    left = []
    for slot in slots:
        if is_settled(slot.call):
            os.pwrite(file, struct.pack("=q", IDLE), slot.at + WORD)
        else:
            left.append(slot.call)
    return Crash(tuple(left), many)


def _header(content: bytes) -> tuple[int, int, int]:
    magic, names_bytes, used, counted = struct.unpack("=4q", content)
    if magic != MAGIC or not 0 <= names_bytes <= NAMES_BYTES or not 0 <= used <= MOST_SLOTS:
        raise ValueError("its header is wrong")
    return names_bytes, used, counted


def _slots(content: bytes, names: Sequence[Name]) -> Iterator[_Slot]:
    for number, (place, first, last) in enumerate(_SLOT.iter_unpack(content)):
        if first > IDLE and 0 <= place < len(names):
            yield _Slot(FIRST_SLOT * WORD + number * _SLOT.size, OpenCall(names[place], first, max(first, last)))


def _name(line: bytes) -> Name:
    """Versions before did not write the log."""
    cluster, group, topic, partition, *log = json.loads(line)
    return Name(str(cluster), str(group), str(topic), int(partition), *map(str, log))
