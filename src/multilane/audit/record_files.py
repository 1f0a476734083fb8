"""Accounts on their way into Parquet files: what is committed is in a file before, and what is begun is announced.

Thread: loop; files are written on a thread of their own.

A file has everything that was noted since the last one, and is there as a whole or not at all. Its name says who wrote
it and its number, so that whoever writes it once more replaces it. Files that cannot be written are tried again with
every commit, which is not made meanwhile; after half a minute that ends the group, because what waits here is not
bounded by anything else.

Each file says which partitions are being worked on and how far that may go (`account_tenure`), and follows the one
before it by a digest (`account_manifest`). Owns the journal, the tenures and the session's card.
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
from multilane.audit.books import START, AccountFile, ReadLog, Stretch, furthest
from multilane.audit.folder import AuditFolder
from multilane.audit.manifest import described, digest_of
from multilane.audit.merging import Merging
from multilane.audit.session_cards import SessionCards
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

_PATIENCE: Final = 30.0  # seconds in which writing may fail
_SKEW: Final = 1.0  # seconds that two clocks may be apart without a word
_MICROSECONDS: Final = 1_000_000


class AuditRecordFiles:
    def __init__(self, path: str, group: str, clock: Clock) -> None:
        """`path`: a directory, or a URI of one that Arrow knows (s3://, gs://, hdfs://)."""
        self._folder = AuditFolder(path, group)
        self._group = group
        self._merging = Merging(self._folder, clock)
        self._clock = clock
        self._session = uuid.uuid4().hex[:16]
        self._cards = SessionCards(self._folder, group, self._session)
        self._sequence = 0
        self._digest = START
        self._unwritten: list[_File] = []
        self._tenures: list[BeginBounds] = []
        self._left: list[ReadLog] = []  # logs that nobody works on any more, since the last file
        self._is_changed = False  # who works on what, since the last file
        self._early: asyncio.Task[None] | None = None
        self._failing_since: float | None = None
        self._one_at_a_time = asyncio.Lock()
        self._writing: asyncio.Future[None] | None = None
        self._ahead = clock.wall() - clock.monotonic()
        self.journal: Final = RecordJournal(self._now)

    async def open(self) -> None:
        """Raises when nothing can be written there: now, not when there is something to lose."""
        try:
            await asyncio.to_thread(self._folder.make)
            await asyncio.to_thread(self._cards.open)
        except Exception as error:
            raise AuditNotWritten(f"audit: nothing can be written to {self._folder}: {_told(error)}") from error
        behind = self._cards.newest - self._clock.wall()
        if behind > 0:
            self._ahead += behind
        if behind > _SKEW:
            told = "audit: the clock is %.0f s behind the newest file in %s: accounts are dated after that file"
            log.warning(told, behind, self._folder)

    def _now(self) -> int:
        """The time of day as it was at the beginning, and what has passed since: a clock that is set does not change
        the order in which records were settled."""
        return int((self._ahead + self._clock.monotonic()) * _MICROSECONDS)

    async def begin(
        self, intakes: Mapping[TopicPartition, Intake], topic_ids: Mapping[TopicPartition, UUID | None] | None = None
    ) -> BeginBounds:
        """Somebody works on these from now on; returns when the files say so. Nothing of them is begun before."""
        tenure = BeginBounds(intakes, self._flush_soon, topic_ids)
        starts = {p: intake.ledger.position for p, intake in intakes.items() if intake.ledger.position >= 0}
        for partition, offset in starts.items():
            self.journal.begin(partition, offset)
        self._tenures.append(tenure)
        self._is_changed = True
        try:
            if self._cards.is_new(starts):
                await self._write(lambda: self._cards.add(starts))
            await self.flush()
        except BaseException:
            self._tenures.remove(tenure)
            self._is_changed = True
            raise
        return tenure

    def end(self, tenure: BeginBounds, given_up: Sequence[Record]) -> None:
        """Nobody works on these any more. What was in work to the end may have been handled, and comes again."""
        if tenure in self._tenures:
            self._tenures.remove(tenure)
            tenure.end()
            self._left += tenure.logs()
            self.journal.note_interrupted(given_up)
            self._flush_soon()  # whoever has them next works on what the last file says is ours

    async def flush(self) -> None:
        """All that was noted so far is in files when this returns. Whatever is to be committed is looked at before."""
        self._seal()
        async with self._one_at_a_time:
            while self._unwritten:
                if self._writing is None or self._writing.done():  # else somebody was cancelled who waited for it
                    self._writing = asyncio.ensure_future(self._write_first())
                await asyncio.shield(self._writing)

    async def close(self) -> None:
        """Of what was noted only what was flushed is kept."""
        if self._early is not None:
            await asyncio.wait([self._early])
        await self._merging.idle()
        if not self._unwritten and not self._tenures and not len(self.journal) and not self._is_changed:
            try:
                await asyncio.to_thread(self._cards.close, self._sequence)
            except Exception as error:  # noqa: BLE001 - a file system can fail in any way, and the accounts are written
                log.warning("audit: cannot write the end of this session to %s: %s", self._folder, _told(error))

    def _flush_soon(self) -> None:
        """Not with the next commit: a partition has used up what the last file allows it, or has gone."""
        self._is_changed = True
        if self._early is None or self._early.done():
            self._early = asyncio.ensure_future(self._flush_early())

    async def _flush_early(self) -> None:
        try:
            await self.flush()
        except AuditNotWritten as error:  # the next commit says the same, and knows how long that may go on
            log.warning("%s", error)

    def _seal(self) -> None:
        if len(self.journal) or self._is_changed:
            allowed = [(tenure, tenure.stretches()) for tenure in self._tenures]
            stretches = [stretch for _, some in allowed for stretch in some]
            logs = furthest([*self._left, *(log for tenure in self._tenures for log in tenure.logs())])
            accounts = self.journal.take()
            day = datetime.fromtimestamp(self._now() / _MICROSECONDS, UTC).date().isoformat()  # never an earlier one
            name = f"day={day}/{self._session}-{self._sequence:012d}.parquet"
            file = AccountFile(name, self._session, self._sequence, START, (), tuple(stretches), logs)
            self._unwritten.append(_File(file, accounts, allowed))
            self._sequence += len(accounts)
            self._is_changed = False
            self._left = []

    async def _write_first(self) -> None:
        pending = self._unwritten[0]
        await self._write(lambda: self._write_file(pending))
        self._unwritten.remove(pending)
        if len(pending.accounts):
            self._merging.written(pending.file.name, len(pending.accounts))
        for tenure, stretches in pending.allowed:
            tenure.allow(stretches)

    async def _write(self, what: Callable[[], object]) -> None:
        try:
            await asyncio.to_thread(what)
        except Exception as error:
            raise self._failed(error) from error
        self._failing_since = None

    def _write_file(self, pending: _File) -> None:
        """On a thread, one after the other."""
        table, rows = table_of(pending.accounts, pending.file.session, pending.file.first), len(pending.accounts)
        digest = digest_of(self._digest, table) if rows else self._digest
        entries = ((rows, digest),) if rows else ()
        file = replace(pending.file, previous=self._digest, entries=entries)
        self._folder.write(file.name, lambda: described(table, self._group, file))
        self._digest = digest

    def _failed(self, error: Exception) -> AuditNotWritten:
        now = self._clock.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        failed = AuditNotWritten(
            f"audit: accounts cannot be written to {self._folder}: {_told(error)}. Nothing is committed until they are"
        )
        failed.retriable = now - self._failing_since < _PATIENCE
        return failed


@dataclass(frozen=True, slots=True)
class _File:
    """What one file will have in it, and what it allows."""

    file: AccountFile
    accounts: AuditRecords
    allowed: Sequence[tuple[BeginBounds, Sequence[Stretch]]]


def _told(error: BaseException) -> str:
    return without_credentials(str(error)) or type(error).__name__  # Arrow repeats addresses
