"""Writes audit records to Parquet files: before their offsets are committed, and what may begin before it begins.

Thread: loop; files are written on another thread.

A file has all records since the last one, and exists completely or not at all. Its name has the session and a number,
so that a retried write replaces it. A file that cannot be written is retried with every commit, and the commit is not
made until it is written. After half a minute this ends the group, because nothing else bounds the records that wait
here.

Each file lists the partitions in progress and how far they may begin (`begin_bounds`), and continues the file before it
by a digest (`manifest`). Owns the journal, the bounds and the session's file. Never commits.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final
from uuid import UUID

from multilane.audit.begin_bounds import BeginBounds
from multilane.audit.completeness import START, AuditFile, OpenRange, ReadLog, furthest
from multilane.audit.folder import AuditFolder
from multilane.audit.manifest import digest_of, with_manifest
from multilane.audit.merging import Merging
from multilane.audit.session_files import SessionFiles
from multilane.audit.table import table_of
from multilane.clock import Clock
from multilane.commit.journal import AuditRecords, RecordJournal
from multilane.errors import AuditNotWritten
from multilane.lanes.intake import Intake
from multilane.logs import logger
from multilane.secret import without_credentials
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

log = logger(__name__)

_WRITE_TIMEOUT: Final = 30.0  # seconds in which writing may fail
_SKEW: Final = 1.0  # seconds between two clocks that are not logged
_MICROSECONDS: Final = 1_000_000


class AuditRecordFiles:
    def __init__(self, path: str, group: str, clock: Clock) -> None:
        """`path`: a directory, or a URI that Arrow supports (s3://, gs://, hdfs://)."""
        self._folder = AuditFolder(path, group)
        self._group = group
        self._merging = Merging(self._folder, clock)
        self._clock = clock
        self._session = uuid.uuid4().hex[:16]
        self._sessions = SessionFiles(self._folder, group, self._session)
        self._sequence = 0
        self._digest = START
        self._unwritten: list[_PendingFile] = []
        self._bounds: list[BeginBounds] = []
        self._released: list[ReadLog] = []  # logs that were released since the last file
        self._is_changed = False  # whether the partitions in progress changed since the last file
        self._takeovers = 0  # partitions that may have had another owner
        self._listed_takeovers = 0
        self._early: asyncio.Task[None] | None = None
        self._is_open = False
        self._failing_since: float | None = None
        self._flush_lock = asyncio.Lock()
        self._writing: asyncio.Future[None] | None = None
        self._ahead = clock.wall() - clock.monotonic()
        self.journal: Final = RecordJournal(self._now)

    async def open(self) -> None:
        """Check that the directory is writable. Raises now, not when there are records to lose. May be called again
        after a retriable error: remote storage may only be out of reach for now."""
        try:
            await asyncio.to_thread(self._folder.make)
            await asyncio.to_thread(self._sessions.open)
        except Exception as error:
            failed = AuditNotWritten(f"audit: cannot write to {self._folder}: {_text_of(error)}")
            failed.retriable = self._folder.is_remote and isinstance(error, OSError)
            raise failed from error
        self._is_open = True
        behind = self._sessions.newest - self._clock.wall()
        if behind > 0:
            self._ahead += behind
        if behind > _SKEW:
            text = "audit: the clock is %.0f s behind the newest file in %s: audit records are dated after that file"
            log.warning(text, behind, self._folder)

    def _now(self) -> int:
        """The wall clock at the start plus the time since: setting the clock does not change the order in which records
        were settled."""
        return int((self._ahead + self._clock.monotonic()) * _MICROSECONDS)

    async def begin(
        self, intakes: Mapping[TopicPartition, Intake], topic_ids: Mapping[TopicPartition, UUID | None] | None = None
    ) -> BeginBounds:
        """Announce these partitions. Returns when a file lists them; no record of them may begin before."""
        bounds = BeginBounds(intakes, self._flush_soon, topic_ids)
        starts = {p: intake.ledger.position for p, intake in intakes.items() if intake.ledger.position >= 0}
        for partition, offset in starts.items():
            self.journal.begin(partition, offset)
        self._bounds.append(bounds)
        self._is_changed = True
        try:
            if self._sessions.is_new(starts):
                await self._write(lambda: self._sessions.add(starts))
            else:
                self._takeovers += 1
            await self._flush_files()
        except BaseException:
            self._bounds.remove(bounds)
            self._is_changed = True
            raise
        return bounds

    def end(self, bounds: BeginBounds, interrupted: Sequence[Record]) -> None:
        """Release these partitions. Interrupted records may have been handled, and are redelivered."""
        if bounds in self._bounds:
            self._bounds.remove(bounds)
            bounds.end()
            self._released += bounds.logs()
            self.journal.note_interrupted(interrupted)
            self._flush_soon()  # the last file still lists them as ours, and their next owner begins soon

    async def flush(self) -> None:
        """Write all records so far to files. The caller collects the offsets to commit before it calls this."""
        await self._list_owners()
        await self._flush_files()

    async def _list_owners(self) -> None:
        """List the files of killed owners before anything of their partitions is committed: if the last one is deleted
        later, only this list shows it. Once for all partitions that came since the last commit: it takes a moment."""
        takeovers = self._takeovers
        if takeovers > self._listed_takeovers:
            await self._write(self._sessions.look)
            self._listed_takeovers = max(takeovers, self._listed_takeovers)

    async def _flush_files(self) -> None:
        self._seal()
        async with self._flush_lock:
            while self._unwritten:
                if self._writing is None or self._writing.done():  # else an earlier flush was cancelled during a write
                    self._writing = asyncio.ensure_future(self._write_first())
                await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Finish the writes that are under way. Records that were not flushed are lost."""
        if self._early is not None:
            await asyncio.wait([self._early])
        await self._merging.idle()
        is_written = not self._unwritten and not self._bounds and not len(self.journal) and not self._is_changed
        if self._is_open and is_written:
            try:
                await asyncio.to_thread(self._sessions.close, self._sequence)
            except Exception as error:  # noqa: BLE001 - a file system can fail in any way, and the records are written
                log.warning("audit: cannot write the end of this session to %s: %s", self._folder, _text_of(error))

    def _flush_soon(self) -> None:
        """Do not wait for the next commit: a partition has used up its allowance, or was released."""
        self._is_changed = True
        if self._early is None or self._early.done():
            self._early = asyncio.ensure_future(self._flush_early())

    async def _flush_early(self) -> None:
        try:
            await self.flush()
        except AuditNotWritten as error:  # the next commit raises the same, and has the timeout
            log.warning("%s", error)

    def _seal(self) -> None:
        if len(self.journal) or self._is_changed:
            allowed = [(bounds, bounds.open_ranges()) for bounds in self._bounds]
            ranges = [one for _, some in allowed for one in some]
            logs = furthest([*self._released, *(log for bounds in self._bounds for log in bounds.logs())])
            records = self.journal.take()
            day = datetime.fromtimestamp(self._now() / _MICROSECONDS, UTC).date().isoformat()  # it never goes back
            name = f"day={day}/{self._session}-{self._sequence:012d}.parquet"
            file = AuditFile(name, self._session, self._sequence, START, (), tuple(ranges), logs)
            self._unwritten.append(_PendingFile(file, records, allowed))
            self._sequence += len(records)
            self._is_changed = False
            self._released = []

    async def _write_first(self) -> None:
        pending = self._unwritten[0]
        await self._write(lambda: self._write_file(pending))
        self._unwritten.remove(pending)
        if len(pending.records):
            self._merging.written(pending.file.name, len(pending.records))
        for bounds, ranges in pending.allowed:
            bounds.allow(ranges)

    async def _write(self, write: Callable[[], object]) -> None:
        try:
            await asyncio.to_thread(write)
        except Exception as error:
            raise self._failed(error) from error
        self._failing_since = None

    def _write_file(self, pending: _PendingFile) -> None:
        """Called on a thread, one file at a time."""
        table, rows = table_of(pending.records, pending.file.session, pending.file.first), len(pending.records)
        digest = digest_of(self._digest, table) if rows else self._digest
        entries = ((rows, digest),) if rows else ()
        file = replace(pending.file, previous=self._digest, entries=entries)
        self._folder.write(file.name, lambda: with_manifest(table, self._group, file))
        self._digest = digest

    def _failed(self, error: Exception) -> AuditNotWritten:
        now = self._clock.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        failed = AuditNotWritten(
            f"audit: cannot write audit records to {self._folder}: {_text_of(error)}. "
            "Nothing is committed until they are written"
        )
        failed.retriable = now - self._failing_since < _WRITE_TIMEOUT
        return failed


@dataclass(frozen=True, slots=True)
class _PendingFile:
    """The content of a file that is not written yet, and the ranges that may begin once it is."""

    file: AuditFile
    records: AuditRecords
    allowed: Sequence[tuple[BeginBounds, Sequence[OpenRange]]]


def _text_of(error: BaseException) -> str:
    return without_credentials(str(error)) or type(error).__name__  # Arrow repeats URIs
