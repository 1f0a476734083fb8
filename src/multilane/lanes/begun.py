"""The begun table: which records the lanes of this process are handling, in a file that survives the process.

Thread: loop.

One mapped file per process. A lane has a slot in it and writes the offset of its record there before each call: a store
into memory, no system call. The kernel keeps the page when the process is killed, so whoever takes over can read what
was in work (`dead_tables`). It does not survive a power failure, which no record has caused.

The file is locked for as long as its process lives; a table that can be locked belongs to a dead one. It is sparse, and
its pages are written before anybody stores to them: where a full disk has no room for one, the store would kill the
process (SIGBUS). Owns the file, and removes it when the process ends in order.
"""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from multilane.user_cache import is_trusted, make_private

SUFFIX: Final = ".begun"
MAGIC: Final = 0x31_4E_55_47_45_42_4C_4D  # "MLBEGUN1"
IDLE: Final = -1  # a lane without a call, in the place of its offset; for `last`: the call has one record
WORD: Final = 8
HEADER_WORDS: Final = 8  # magic, bytes of names, slots ever used, calls in work (by whoever reads it first)
COUNT_WORD: Final = 3
NAMES_BYTES: Final = 1 << 20
FIRST_SLOT: Final = HEADER_WORDS + NAMES_BYTES // WORD
SLOT_WORDS: Final = 3  # place, first offset, last offset
MOST_SLOTS: Final = 1 << 16
_PAGE: Final = 4096
FILE_BYTES: Final = (FIRST_SLOT + MOST_SLOTS * SLOT_WORDS) * WORD


class Name(NamedTuple):
    """A partition, among all that processes of this machine work on. `log` is the id of its topic: one that was deleted
    and made again, and a cluster that was set up anew, have other records at the same offsets."""

    cluster: str
    group: str
    topic: str
    partition: int
    log: str = ""  # not known

    def is_of_another_log(self, other: Name) -> bool:
        """The same partition, of a topic that was made again."""
        return self[:4] == other[:4] and "" not in (self.log, other.log) and self.log != other.log


class Words(Protocol):
    """Numbers of eight bytes in the mapped file, or a list in its place."""

    def __getitem__(self, at: int, /) -> int: ...
    def __setitem__(self, at: int, number: int, /) -> None: ...


own_tables: set[Path] = set()  # of this process: a lock of ours would be lost if the file were opened once more


class BegunTable:
    def __init__(self, directory: Path) -> None:
        """Raises OSError where no such file can be made."""
        make_private(directory)
        if not is_trusted(directory.stat()):
            raise PermissionError(f"other users can write to {directory}")
        self.path = directory / f"{os.getpid()}-{uuid.uuid4().hex[:12]}{SUFFIX}"
        unborn = self.path.with_suffix(".new")  # nobody may find it before it is locked
        self._file = os.open(unborn, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(self._file, FILE_BYTES)
            self._names_end = self._reserved(0)  # in bytes: what is beyond has no room on the disk as yet
            self._slots_end = self._reserved(FIRST_SLOT * WORD)
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._view = memoryview(mmap.mmap(self._file, FILE_BYTES))
            self.words: Words = self._view.cast("q")
            self.words[0] = MAGIC
            own_tables.add(self.path)
            unborn.rename(self.path)
        except BaseException:
            own_tables.discard(self.path)
            os.close(self._file)
            unborn.unlink(missing_ok=True)
            raise
        self._places: dict[Name, int] = {}
        self._free: list[int] = []
        self._slots = 0
        self._most_slots = MOST_SLOTS

    def _reserved(self, end: int) -> int:
        """A page more of the names or the slots, and where that ends; OSError on a full disk."""
        limit = FIRST_SLOT * WORD if end < FIRST_SLOT * WORD else FILE_BYTES
        zeros = bytes(min(_PAGE, limit - end))
        if os.pwrite(self._file, zeros, end) < len(zeros):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return end + len(zeros)

    def place(self, name: Name) -> int:
        """The number by which slots name a partition."""
        known = self._places.get(name)
        if known is not None:
            return known
        text = json.dumps(name).encode() + b"\n"
        used = self.words[1]
        if used + len(text) > NAMES_BYTES:
            return IDLE
        begin = HEADER_WORDS * WORD + used
        try:
            while begin + len(text) > self._names_end:
                self._names_end = self._reserved(self._names_end)
        except OSError:
            return IDLE
        self._view[begin : begin + len(text)] = text
        self.words[1] = used + len(text)
        self._places[name] = number = len(self._places)
        return number

    def take_slot(self) -> int:
        """Where a lane writes its offset. When all slots are taken, lanes share the last one."""
        if self._free:
            return self._free.pop()
        if self._slots < self._most_slots and not self._has_room_for(self._slots):
            self._most_slots = self._slots
        at = FIRST_SLOT + min(self._slots, self._most_slots - 1) * SLOT_WORDS + 1
        if self._slots < self._most_slots:
            self._slots += 1
            self.words[at] = self.words[at + 1] = IDLE
            self.words[2] = self._slots
        return at

    def _has_room_for(self, slot: int) -> bool:
        try:
            while (FIRST_SLOT + (slot + 1) * SLOT_WORDS) * WORD > self._slots_end:
                self._slots_end = self._reserved(self._slots_end)
        except OSError:
            return False
        return True

    def give_slot(self, at: int) -> None:
        self.words[at] = IDLE
        if at < FIRST_SLOT + (self._most_slots - 1) * SLOT_WORDS:
            self._free.append(at)

    def close(self) -> None:
        """The process ends in order: nobody has to read it."""
        self.path.unlink(missing_ok=True)
        own_tables.discard(self.path)
        os.close(self._file)  # the mapping stays until the last lane has let go of it


class LaneMarks:
    """What the lanes of one team write to. Without a table: to a list that nobody reads."""

    def __init__(self, table: BegunTable | None = None, places: Mapping[str, int] | None = None) -> None:
        """`places`: the numbers of the team's partitions, by topic."""
        self._table = table
        self.words: Words = [0, IDLE, IDLE] if table is None else table.words
        self.places = dict(places or {})
        self._place = next(iter(self.places.values()), 0)

    def take_slot(self) -> int:
        if self._table is None:
            return 1
        at = self._table.take_slot()
        self.words[at - 1] = self._place
        return at

    def give_slot(self, at: int) -> None:
        if self._table is not None:
            self._table.give_slot(at)
