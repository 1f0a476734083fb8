"""The begun table: which records the lanes of this process are handling, in a file that survives the process.

Thread: loop.

There is one mapped file per process. Each lane has a slot in it and writes the offset of its record there before each
call: a store into memory, not a system call. The kernel keeps the page when the process is killed, so the next owner of
the partition can read which records were in flight (`dead_tables`). The table does not survive a power failure, which
no record can cause.

The file is locked while its process lives; a table that can be locked belongs to a dead process. It is sparse, and its
pages are written before a lane stores to them: if a full disk had no room for a page, the store would kill the process
(SIGBUS). Owns the file, and removes it at a clean exit.
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
IDLE: Final = -1  # written as offset: the lane has no call; as `last`: the call has one record
WORD: Final = 8
HEADER_WORDS: Final = 8  # magic, bytes of names, slots ever used, calls in flight (written by the first reader)
COUNT_WORD: Final = 3
NAMES_BYTES: Final = 1 << 20
FIRST_SLOT: Final = HEADER_WORDS + NAMES_BYTES // WORD
SLOT_WORDS: Final = 3  # partition number, first offset, last offset
MOST_SLOTS: Final = 1 << 16
_PAGE: Final = 4096
FILE_BYTES: Final = (FIRST_SLOT + MOST_SLOTS * SLOT_WORDS) * WORD


class Name(NamedTuple):
    """A partition, among all that processes of this machine process. `log` is the id of its topic: a recreated topic,
    or a cluster that was set up anew, has other records at the same offsets."""

    cluster: str
    group: str
    topic: str
    partition: int
    log: str = ""  # empty: unknown
    trigger: str = ""  # the consumer, if several share the group: each calls its own function

    def is_of_another_log(self, other: Name) -> bool:
        """Whether it is the same partition of a topic that was recreated."""
        return self[:4] == other[:4] and "" not in (self.log, other.log) and self.log != other.log

    def may_be(self, other: Name) -> bool:
        """Whether it is the same partition, as far as is known: older versions did not write the log."""
        return self[:4] == other[:4] and self.trigger == other.trigger and not self.is_of_another_log(other)


class Words(Protocol):
    """Eight-byte numbers in the mapped file, or a list instead."""

    def __getitem__(self, at: int, /) -> int: ...
    def __setitem__(self, at: int, number: int, /) -> None: ...


own_tables: set[Path] = set()  # of this process: opening and closing such a file again would drop our lock


class BegunTable:
    def __init__(self, directory: Path) -> None:
        """Raises OSError if the file cannot be created."""
        make_private(directory)
        if not is_trusted(directory.stat()):
            raise PermissionError(f"other users can write to {directory}")
        self.path = directory / f"{os.getpid()}-{uuid.uuid4().hex[:12]}{SUFFIX}"
        unlocked = self.path.with_suffix(".new")  # other processes must not find it before it is locked
        self._file = os.open(unlocked, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            os.ftruncate(self._file, FILE_BYTES)
            self._names_end = self._reserved(0)  # in bytes: beyond it no disk space is reserved yet
            self._slots_end = self._reserved(FIRST_SLOT * WORD)
            fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._view = memoryview(mmap.mmap(self._file, FILE_BYTES))
            self.words: Words = self._view.cast("q")
            self.words[0] = MAGIC
            own_tables.add(self.path)
            unlocked.rename(self.path)
        except BaseException:
            own_tables.discard(self.path)
            os.close(self._file)
            unlocked.unlink(missing_ok=True)
            raise
        self._numbers: dict[Name, int] = {}
        self._free: list[int] = []
        self._slots = 0
        self._most_slots = MOST_SLOTS

    def _reserved(self, end: int) -> int:
        """Reserve one more page of names or slots. Returns its end; raises OSError on a full disk."""
        limit = FIRST_SLOT * WORD if end < FIRST_SLOT * WORD else FILE_BYTES
        zeros = bytes(min(_PAGE, limit - end))
        if os.pwrite(self._file, zeros, end) < len(zeros):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return end + len(zeros)

    def number_of(self, name: Name) -> int:
        """The number that identifies a partition in slots."""
        known = self._numbers.get(name)
        if known is not None:
            return known
        text = json.dumps(name if name.trigger else name[:5]).encode() + b"\n"
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
        self._numbers[name] = number = len(self._numbers)
        return number

    def take_slot(self) -> int:
        """The index of the word for a lane's offset. If all slots are taken, lanes share the last one."""
        if self._free:
            return self._free.pop()
        if self._slots < self._most_slots and not self._has_room_for(self._slots):
            self._most_slots = self._slots
        slot = FIRST_SLOT + min(self._slots, self._most_slots - 1) * SLOT_WORDS + 1
        if self._slots < self._most_slots:
            self._slots += 1
            self.words[slot] = self.words[slot + 1] = IDLE
            self.words[2] = self._slots
        return slot

    def _has_room_for(self, index: int) -> bool:
        try:
            while (FIRST_SLOT + (index + 1) * SLOT_WORDS) * WORD > self._slots_end:
                self._slots_end = self._reserved(self._slots_end)
        except OSError:
            return False
        return True

    def give_slot(self, slot: int) -> None:
        self.words[slot] = IDLE
        if slot < FIRST_SLOT + (self._most_slots - 1) * SLOT_WORDS:
            self._free.append(slot)

    def close(self) -> None:
        """A clean exit: no process has to read the table."""
        self.path.unlink(missing_ok=True)
        own_tables.discard(self.path)
        os.close(self._file)  # the mapping stays until the last lane has released it


class LaneMarks:
    """The words that the lanes of one processor write to. Without a table: a list that is never read."""

    def __init__(self, table: BegunTable | None = None, numbers: Mapping[str, int] | None = None) -> None:
        """`numbers`: the table's numbers of the processor's partitions, by topic."""
        self._table = table
        self.words: Words = [0, IDLE, IDLE] if table is None else table.words
        self.numbers = dict(numbers or {})
        self._number = next(iter(self.numbers.values()), 0)

    def take_slot(self) -> int:
        if self._table is None:
            return 1
        slot = self._table.take_slot()
        self.words[slot - 1] = self._number
        return slot

    def give_slot(self, slot: int) -> None:
        if self._table is not None:
            self._table.give_slot(slot)
