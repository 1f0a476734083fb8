"""Accounts on their way into Parquet files: what is committed is in a file before.

Thread: loop; files are written on a thread of their own.

A file has everything that was noted since the last one, and is there as a whole or not at all. Its name says who wrote
it and its number, so that whoever writes it once more replaces it. Files that cannot be written are tried again with
every commit, which is not made meanwhile; after half a minute that ends the group, because what waits here is not
bounded by anything else. Owns the journal.
"""

from __future__ import annotations

import asyncio
import logging
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from multilane.clock import Clock
from multilane.commit.journal import OUTCOMES, Accounts, Journal
from multilane.errors import AccountsNotWritten

log = logging.getLogger(__name__)

_PATIENCE: Final = 30.0  # seconds in which writing may fail
_MICROSECONDS: Final = 1_000_000


class AccountFiles:
    def __init__(self, path: str, group: str, clock: Clock) -> None:
        """`path`: a directory, or a URI of one that Arrow knows (s3://, gs://, hdfs://)."""
        self._folder = Folder(path, f"group={folder_name(group)}")
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


class Folder:
    """Where the files of a group are, on this machine or elsewhere."""

    def __init__(self, path: str, below: str) -> None:
        self._uri = path if "://" in path else None
        self._local = None if self._uri else Path(path).expanduser() / below
        self._below = below

    def __str__(self) -> str:
        """Without a login that the address may have in it."""
        if self._uri is None:
            return str(self._local)
        scheme, _, rest = self._uri.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"

    def make(self) -> None:
        """Thread: any."""
        if self._local is not None:
            self._local.mkdir(parents=True, exist_ok=True)
            probe = self._local / f".{uuid.uuid4().hex}"
            probe.touch()
            probe.unlink()
        else:
            system, base = self._remote()
            system.create_dir(base, recursive=True)

    def write(self, name: str, table: Callable[[], Any]) -> None:
        """Thread: any."""
        import pyarrow as pa
        from pyarrow import parquet

        content = pa.BufferOutputStream()
        parquet.write_table(table(), content, compression="zstd")
        if self._local is not None:
            _write_whole(self._local / name, content.getvalue())
            return
        system, base = self._remote()
        system.create_dir(f"{base}/{name.rpartition('/')[0]}", recursive=True)
        with system.open_output_stream(f"{base}/{name}") as out:  # there when it is closed
            out.write(content.getvalue())

    def _remote(self) -> tuple[Any, str]:
        from pyarrow.fs import FileSystem

        system, base = FileSystem.from_uri(self._uri)
        return system, f"{base.rstrip('/')}/{self._below}"


def folder_name(group: str) -> str:
    """A group's name may have anything in it, a folder's may not."""
    return quote(group, safe="").replace(".", "%2E") if group.startswith(".") else quote(group, safe="")


def _write_whole(path: Path, content: Any) -> None:
    """On the disk, and only then by its name: Spark reads no file whose name begins with a dot."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}")
    try:
        with open(unfinished, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(path)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise


def _rising(clock: Clock) -> Callable[[], int]:
    """The time of day as it was at the beginning, and what has passed since: a clock that is set does not change the
    order in which records were settled."""
    ahead = clock.wall() - clock.monotonic()
    return lambda: int((ahead + clock.monotonic()) * _MICROSECONDS)


def _told(error: BaseException) -> str:
    return str(error) or type(error).__name__
