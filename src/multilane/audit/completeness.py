"""Checks that the audit files of a group are complete, and finds what their writers may have handled without a record.

Thread: none (pure).

Each process that writes audit records is a session. It numbers its records from 0, each of its files has the digest
that it continues, and a session file lists the sessions before it. So any file that is missing, changed or of another
group is noticed, and where the records of a partition begin does not depend on the oldest file.

Audit records contain offsets, and a log can be truncated or recreated. So each file lists the logs of its records
("logs") and their last offsets, and an audit compares them with the current logs.

Before a session begins a record, a file allows it ("open"). Ranges that are open in the last file of a session may have
been handled without an audit record: its process was killed, or is processing them now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from multilane.commit.completion_map import LogIdentity
from multilane.commit.runs import Run
from multilane.types import TopicPartition

START: Final = ""  # the digest before the first audit record of a session


@dataclass(frozen=True, slots=True)
class OpenRange:
    """Offsets [start, end) of a partition that a session may have begun, except the runs that it had settled."""

    partition: TopicPartition
    start: int
    end: int
    settled: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A log whose offsets below `end` may have audit records."""

    partition: TopicPartition
    end: int
    mark: LogIdentity


@dataclass(frozen=True, slots=True)
class AuditFile:
    """The manifest of a file."""

    name: str
    session: str
    first: int  # the number of its first audit record
    previous: str  # the digest that it continues
    entries: tuple[tuple[int, str], ...]  # number of records that were written together, and the digest after them
    open: tuple[OpenRange, ...] = ()
    logs: tuple[ReadLog, ...] = ()

    @property
    def end(self) -> int:
        return self.first + sum(rows for rows, _ in self.entries)


@dataclass(frozen=True, slots=True)
class SessionFile:
    """What a session knows: written when it begins, when it gets a partition, and when it ends."""

    session: str
    earlier: Mapping[str, int] = field(
        default_factory=dict
    )  # sessions before it, with the first number of their last file
    since: Mapping[TopicPartition, int] = field(default_factory=dict)  # where audit records begin, over all sessions
    records: int | None = None  # the number of audit records, once the session has ended gracefully


@dataclass(frozen=True, slots=True)
class AuditFiles:
    """The files of a group. `faults`: what is missing or wrong. `old`: sessions of an earlier version, which wrote no
    manifests and no session files."""

    usable: tuple[str, ...] = ()  # names
    faults: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    since: Mapping[TopicPartition, int] = field(default_factory=dict)
    doubts: Mapping[str, tuple[OpenRange, ...]] = field(default_factory=dict)  # by session
    logs: tuple[ReadLog, ...] = ()
    cannot_check: bool = False  # the files could not be listed

    @property
    def are_complete(self) -> bool:
        return not self.faults and not self.old


def check_files(
    files: Sequence[AuditFile], session_files: Sequence[SessionFile], old: Mapping[str, str], faults: Sequence[str] = ()
) -> AuditFiles:
    """`old`: the sessions of files without a manifest, by name; the earlier versions that wrote them wrote no session
    files. `faults`: those of unusable files."""
    by_session: dict[str, list[AuditFile]] = {}
    for file in files:
        by_session.setdefault(file.session, []).append(file)
    known = {session_file.session: session_file for session_file in session_files}
    listed = {session for session_file in session_files for session in session_file.earlier}
    with_manifests = known.keys() | by_session.keys() | listed  # earlier versions wrote no session files
    rewritten = {name for name, session in old.items() if session in with_manifests}
    old = {name: session for name, session in old.items() if name not in rewritten}
    found = [*faults, *(f"{name} was rewritten: its manifest is missing" for name in sorted(rewritten))]
    for session in sorted(by_session.keys() | known.keys()):
        found += _faults_of(session, by_session.get(session, []), known.get(session))
    found += _missing_sessions(by_session, known)
    return AuditFiles(
        usable=tuple(sorted([*(file.name for file in files), *old])),
        faults=tuple(dict.fromkeys(found)),
        old=tuple(sorted(set(old.values()))),
        since=earliest(session_file.since for session_file in session_files),
        doubts={s: last.open for s, some in sorted(by_session.items()) if (last := _last(some)).open},
        logs=furthest(one for file in files for one in file.logs),
    )


def furthest(logs: Iterable[ReadLog]) -> tuple[ReadLog, ...]:
    """The largest `end` of each log and leader epoch."""
    found: dict[tuple[TopicPartition, LogIdentity], ReadLog] = {}
    for one in logs:
        known = found.setdefault((one.partition, one.mark), one)
        if one.end > known.end:
            found[one.partition, one.mark] = one
    return tuple(found.values())


def earliest(maps: Iterable[Mapping[TopicPartition, int]]) -> dict[TopicPartition, int]:
    found: dict[TopicPartition, int] = {}
    for one in maps:
        for partition, offset in one.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def _last(files: Iterable[AuditFile]) -> AuditFile:
    """The last file. A file without records has the number of the next one; if two days have one, the later counts."""
    return max(files, key=lambda file: (file.end, file.first, file.name))


def _faults_of(session: str, files: Sequence[AuditFile], session_file: SessionFile | None) -> list[str]:
    if session_file is None:
        return [f"session {session} has audit records but no session file"]
    faults = []
    digests = {0: START}
    reached = 0
    for file in sorted(files, key=lambda file: (file.first, -file.end)):
        if file.first > reached:
            faults.append(f"session {session}: {_count(file.first - reached)} missing from number {reached} on")
        elif digests.get(file.first, file.previous) != file.previous:
            faults.append(f"{file.name} does not continue the file before it")
        number = file.first
        for rows, digest in file.entries:
            number += rows
            if digests.setdefault(number, digest) != digest:
                faults.append(f"{file.name} does not match what its session wrote")
        reached = max(reached, number)
    if session_file.records is not None and reached < session_file.records:
        faults.append(f"session {session}: its last {_count(session_file.records - reached)} missing")
    return faults


def _missing_sessions(by_session: Mapping[str, Sequence[AuditFile]], known: Mapping[str, SessionFile]) -> list[str]:
    faults = []
    for session_file in known.values():
        for session, seen in session_file.earlier.items():
            files = by_session.get(session, ())
            exists = any(file.first >= seen or file.end > seen for file in files) or (seen < 0 and session in known)
            if not exists:
                missing = "audit files" if session in known else "session file and audit files"
                faults.append(f"session {session}: {missing} that session {session_file.session} listed are missing")
    return faults


def _count(records: int) -> str:
    return f"{records:,} audit record" + ("s" if records > 1 else "")
