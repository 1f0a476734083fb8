"""Merges small audit files into large ones, so that a day of them is fast to read.

Thread: loop; files are read and written on another thread.

Each commit writes a file: 86,400 a day. The small files stay next to the merged one for an hour, because a reader may
have listed them, and a record that exists twice counts once. So the process may end at any point of a merge. No commit
waits for a merge, and files that cannot be merged stay as they are. Owns the names of the files that it may delete.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from multilane.audit.folder import AuditFolder
from multilane.clock import Clock
from multilane.logs import logger
from multilane.secret import without_credentials

log = logger(__name__)

FILES_PER_MERGE: Final = 256
MAX_ROWS: Final = 1_000_000
READABLE_SECONDS: Final = 3_600.0


class SmallFile(NamedTuple):
    name: str
    rows: int

    @property
    def day(self) -> str:
        return self.name.partition("/")[0]


def to_merge(small: Sequence[SmallFile]) -> int:
    """How many of the first files to merge into one: 0 until there are enough. They are of one day and fit into memory.
    1 means that the first file is large enough by itself."""
    if len(small) < FILES_PER_MERGE:
        return 0
    rows = 0
    for count, one in enumerate(small):
        rows += one.rows
        if count and (rows > MAX_ROWS or one.day != small[0].day):
            return count
    return len(small)


class Merging:
    def __init__(self, folder: AuditFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._small: list[SmallFile] = []
        self._merged: deque[tuple[float, list[str]]] = deque()  # merged at, and the names of the small files
        self._task: asyncio.Task[None] | None = None

    def written(self, name: str, rows: int) -> None:
        """Note a file that was written. Starts a merge if it is due."""
        self._small.append(SmallFile(name, rows))
        if self._task is None or self._task.done():
            count = to_merge(self._small)
            if count:
                self._task = asyncio.create_task(self._merge(self._small[:count]))
                del self._small[:count]

    async def idle(self) -> None:
        """Wait for the merge under way."""
        if self._task is not None:
            await self._task

    async def _merge(self, small: Sequence[SmallFile]) -> None:
        names = [one.name for one in small]
        try:
            if len(names) > 1:
                into = names[0].replace(".parquet", "-merged.parquet")
                await asyncio.to_thread(self._folder.merge, names, into)
                self._merged.append((self._clock.monotonic(), names))
            while self._merged and self._clock.monotonic() - self._merged[0][0] >= READABLE_SECONDS:
                await asyncio.to_thread(self._folder.delete, self._merged[0][1])
                self._merged.popleft()
        except Exception as error:  # noqa: BLE001 - a file system can fail in any way, and nothing depends on this
            log.warning("audit: cannot merge %d audit files: %s", len(names), without_credentials(str(error)))
