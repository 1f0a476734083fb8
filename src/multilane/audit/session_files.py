"""The file of a session: which sessions came before it, and where the audit records of each partition begin.

Thread: any; `open` before all others.

Every session lists those that it finds. This links the audit records of a group: when files of the oldest session are
missing, younger session files still list it, and the offset from which every partition must have audit records. Owns
the file of its own session. Never changes another one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from math import inf
from threading import Lock
from typing import Final

from multilane.audit.completeness import SessionFile, earliest
from multilane.audit.folder import AuditFolder
from multilane.audit.manifest import (
    read_session_file,
    session_file_content,
    session_file_name,
    session_file_number,
    sessions_in,
)
from multilane.logs import logger
from multilane.types import TopicPartition

log = logger(__name__)

_MAX_SESSIONS: Final = 256  # the newest ones are listed
_READERS: Final = 16


class SessionFiles:
    def __init__(self, folder: AuditFolder, group: str, session: str) -> None:
        self._folder = folder
        self._group = group
        self._lock = Lock()  # a cancelled caller leaves its thread running
        self._own = SessionFile(session)
        self._name = session_file_name(1, session)
        self._seen_at: dict[str, float] = {}  # session files that were read, and their modification times
        self.newest = 0.0  # the newest modification time in the directory, in seconds since 1970

    def open(self) -> None:
        """May be called again if it raises: a write whose answer was lost has left the file of this session."""
        listed = self._folder.listing()
        names = [name for name, _ in listed if name.endswith(".json")]
        own = [name for name in names if name.endswith(f"-{self._own.session}.json")]
        self._name = (
            own[0] if own else session_file_name(1 + max(map(session_file_number, names), default=0), self._own.session)
        )
        self._list_others(listed)
        self.newest = max((modified for _, modified in listed), default=0.0)
        self._write()

    def _list_others(self, listed: Sequence[tuple[str, float]]) -> None:
        """List the sessions found now, and where their files say that partitions begin: some may have begun at the same
        time as this one."""
        names = self._list_files(listed)
        modified = dict(listed)
        changed = [name for name in names if not modified[name] or self._seen_at.get(name) != modified[name]]
        with ThreadPoolExecutor(_READERS) as threads:
            known = list(threads.map(self._read, changed))
        self._seen_at |= {name: modified[name] for name in changed}
        since = earliest([self._own.since, *(session_file.since for session_file in known if session_file is not None)])
        self._own = replace(self._own, since=since)

    def _list_files(self, listed: Sequence[tuple[str, float]]) -> list[str]:
        """List the last file of each session, of those that were ever found. Returns the names of the session files."""
        names = sorted(name for name, _ in listed if name.endswith(".json") and name != self._name)[-_MAX_SESSIONS:]
        written = sessions_in(name for name, _ in listed)
        sessions = [name.rpartition("-")[2].removesuffix(".json") for name in names]
        before = self._own.earlier
        seen = {session: max(written.get(session, -1), before.get(session, -1)) for session in sessions}
        self._own = replace(self._own, earlier={**before, **seen})
        return names

    def _read(self, name: str) -> SessionFile | None:
        try:
            group, session_file = read_session_file(self._folder.read_bytes(name))
        except (ValueError, OSError) as error:
            log.warning("audit: cannot read %s in %s: %s", name, self._folder, error)
            return None
        return session_file if group == self._group else None

    def is_new(self, starts: Mapping[TopicPartition, int]) -> bool:
        """Whether audit records of a partition begin earlier with these offsets."""
        return any(offset < self._own.since.get(partition, inf) for partition, offset in starts.items())

    def add(self, starts: Mapping[TopicPartition, int]) -> None:
        """Add partitions. Their previous owner wrote its files first, so it is listed with them."""
        with self._lock:
            self._list_others(self._folder.listing())
            self._own = replace(self._own, since=earliest([self._own.since, starts]))
            self._write()

    def look(self) -> None:
        """List the last files of the others, without reading their session files. Writes only what is new."""
        with self._lock:
            before = self._own
            self._list_files(self._folder.listing())
            if self._own != before:
                self._write()

    def close(self, records: int) -> None:
        """Write the number of audit records: all are written, and no partition is in progress."""
        with self._lock:
            self._list_others(self._folder.listing())
            self._own = replace(self._own, records=records)
            self._write()

    def _write(self) -> None:
        self._folder.write_bytes(self._name, session_file_content(self._group, self._own))
