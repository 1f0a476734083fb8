"""Accounts on their way into Parquet files: what is committed is in a file before.

Thread: loop; files are written on a thread of their own.

A file has everything that was noted since the last one, and is there as a whole or not at all. Its name says who wrote
it and its number, so that whoever writes it once more replaces it. Files that cannot be written are tried again with
every commit, which is not made meanwhile; after half a minute that ends the group, because what waits here is not
bounded by anything else. Owns the journal.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from multilane.clock import Clock
from multilane.commit.journal import OUTCOMES, Accounts, Journal
from multilane.errors import AccountsNotWritten
from multilane.logs import logger
from multilane.runtime.account_folder import Folder
from multilane.runtime.account_merging import Merging
from multilane.secret import without_credentials

log = logger(__name__)

_PATIENCE: Final = 30.0  # seconds in which writing may fail
_MICROSECONDS: Final = 1_000_000


class AccountFiles:
    def __init__(self, path: str, group: str, clock: Clock) -> None:
        """`path`: a directory, or a URI of one that Arrow knows (s3://, gs://, hdfs://)."""
        self._folder = Folder(path, group)
        self._merging = Merging(self._folder, clock)
        self._clock = clock
        self._session = uuid.uuid4().hex[:16]
        self._sequence = 0
        self._unwritten: list[_File] = []
        self._failing_since: float | None = None
        self._one_at_a_time = asyncio.Lock()
        self._writing: asyncio.Future[None] | None = None
        self.journal: Final = Journal(_rising(clock))

    async def open(self) -> None:
        """Raises when nothing can be written there: now, not when there is something to lose."""
        try:
            await asyncio.to_thread(self._folder.make)
        except Exception as error:
            raise AccountsNotWritten(f"audit: nothing can be written to {self._folder}: {_told(error)}") from error

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
        await self._merging.idle()

    def _seal(self) -> None:
        if len(self.journal):
            accounts = self.journal.take()
            day = datetime.fromtimestamp(self._clock.wall(), UTC).date().isoformat()
            self._unwritten.append(_File(accounts, self._session, self._sequence, day))
            self._sequence += len(accounts)

    async def _write_first(self) -> None:
        file = self._unwritten[0]
        try:
            await asyncio.to_thread(self._folder.write, file.name, file.table)
        except Exception as error:
            raise self._failed(error) from error
        self._failing_since = None
        self._unwritten.remove(file)
        self._merging.written(file.name, file.rows)

    def _failed(self, error: Exception) -> AccountsNotWritten:
        now = self._clock.monotonic()
        self._failing_since = now if self._failing_since is None else self._failing_since
        failed = AccountsNotWritten(
            f"audit: accounts cannot be written to {self._folder}: {_told(error)}. Nothing is committed until they are"
        )
        failed.retriable = now - self._failing_since < _PATIENCE
        return failed


class _File:
    """What one file will have in it."""

    def __init__(self, accounts: Accounts, session: str, sequence: int, day: str) -> None:
        self._accounts = accounts
        self._session = session
        self._sequence = sequence
        self.rows = len(accounts)
        self.name = f"day={day}/{session}-{sequence:012d}.parquet"

    def table(self) -> Any:
        import numpy as np
        import pyarrow as pa

        told, texts = self._accounts, pa.dictionary(pa.int32(), pa.string())
        has_copy = told.copy >= 0
        copies = np.array([(c.partition, c.offset) for c in told.copies] or [(0, 0)], np.int64)[told.copy]
        is_placed = has_copy & (copies[:, 1] >= 0)

        def named(numbers: Any, names: list[str], mask: Any = None) -> pa.Array:
            return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32(), mask=mask), names or [""]).cast(texts)

        return pa.table(
            {
                "topic": named(told.place, [p.topic for p in told.places]),
                "partition": pa.array(np.array([p.partition for p in told.places], np.int32)[told.place]),
                "offset": pa.array(told.offset),
                "outcome": named(told.outcome.astype(np.int32), list(OUTCOMES)),
                "settled_at": pa.array(told.settled_at, pa.timestamp("us", "UTC")),
                "session": named(np.zeros(len(told), np.int32), [self._session]),
                "sequence": pa.array(np.arange(self._sequence, self._sequence + len(told))),
                "copy_topic": named(told.copy, [c.topic for c in told.copies], ~has_copy),
                "copy_partition": pa.array(copies[:, 0].astype(np.int32), mask=~is_placed),
                "copy_offset": pa.array(copies[:, 1], mask=~is_placed),
            }
        )


def _rising(clock: Clock) -> Callable[[], int]:
    """The time of day as it was at the beginning, and what has passed since: a clock that is set does not change the
    order in which records were settled."""
    ahead = clock.wall() - clock.monotonic()
    return lambda: int((ahead + clock.monotonic()) * _MICROSECONDS)


def _told(error: BaseException) -> str:
    return without_credentials(str(error)) or type(error).__name__  # Arrow repeats addresses
