"""Small files of accounts become large ones, so that a day of them is no burden to whoever reads it.

Thread: loop; files are read and written on a thread of their own.

A file is written with each commit: 86,400 a day. What is in a merged file is in its small ones too, for as long as
somebody may be reading those, and an account that is there twice counts once: so it does not matter where in all this a
process ends. Nobody waits for it, and what cannot be merged stays as it is. Owns the names of what it may delete.
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

MANY: Final = 256  # files
MOST_ROWS: Final = 1_000_000
READABLE_SECONDS: Final = 3_600.0


class Small(NamedTuple):
    name: str
    rows: int

    @property
    def day(self) -> str:
        return self.name.partition("/")[0]


def to_merge(small: Sequence[Small]) -> int:
    """So many of the first belong into one file, once there are enough: of one day, and no more than fit into memory. 1
    says that the first is large enough by itself."""
    if len(small) < MANY:
        return 0
    rows = 0
    for count, one in enumerate(small):
        rows += one.rows
        if count and (rows > MOST_ROWS or one.day != small[0].day):
            return count
    return len(small)


class Merging:
    def __init__(self, folder: AuditFolder, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock
        self._small: list[Small] = []
        self._merged: deque[tuple[float, list[str]]] = deque()  # since when, and which
        self._work: asyncio.Task[None] | None = None

    def written(self, name: str, rows: int) -> None:
        """One more. What is to be done about it is begun."""
        self._small.append(Small(name, rows))
        if self._work is None or self._work.done():
            count = to_merge(self._small)
            if count:
                self._work = asyncio.create_task(self._merge(self._small[:count]))
                del self._small[:count]

    async def idle(self) -> None:
        """Until what was begun has ended."""
        if self._work is not None:
            await self._work

    async def _merge(self, small: Sequence[Small]) -> None:
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
            log.warning("audit: cannot merge %d account files: %s", len(names), without_credentials(str(error)))
