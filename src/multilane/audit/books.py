"""Whether the files of a group's accounts are all there, and what their writers may have done without an account.

Thread: none (pure).

Each process that writes accounts is a session. It numbers its accounts from 0, each of its files says which digest it
follows, and a card says which sessions were there before it. So a file that is missing, changed or of another group is
noticed, whichever it is; and where the accounts of a partition begin does not depend on the oldest file.

Accounts name offsets, and a log can be cut or made again: so each file says which logs its accounts are of ("logs"), up
to which offset, and whoever audits holds that against the logs of now.

Before a session begins a record, a file says that it may ("open"). What a session had open in its last file and nobody
closed may have been handled without an account: its process was killed, or is at it now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from multilane.commit.completion_map import LogMark, Run
from multilane.types import TopicPartition

START: Final = ""  # the digest before a session's first account


@dataclass(frozen=True, slots=True)
class Stretch:
    """Offsets [start, end) of a partition that a session may have begun, without the runs that it had settled."""

    partition: TopicPartition
    start: int
    end: int
    settled: tuple[Run, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadLog:
    """A log whose offsets below `end` may have accounts."""

    partition: TopicPartition
    end: int
    mark: LogMark


@dataclass(frozen=True, slots=True)
class AccountFile:
    """What a file says of itself."""

    name: str
    session: str
    first: int  # the number of its first account
    previous: str  # the digest that it follows
    entries: tuple[tuple[int, str], ...]  # accounts that were written together, and the digest behind them
    open: tuple[Stretch, ...] = ()
    logs: tuple[ReadLog, ...] = ()

    @property
    def end(self) -> int:
        return self.first + sum(rows for rows, _ in self.entries)


@dataclass(frozen=True, slots=True)
class Card:
    """A session, as it was known when it began; rewritten when it takes on a partition, and at its end."""

    session: str
    earlier: Mapping[str, int] = field(default_factory=dict)  # sessions before it; the number its last file begins with
    since: Mapping[TopicPartition, int] = field(default_factory=dict)  # where accounts begin, by all sessions so far
    accounts: int | None = None  # that it wrote in all, when it ended in order


@dataclass(frozen=True, slots=True)
class Books:
    """`faults` say what is missing or wrong; `old` are sessions of an earlier version, which wrote no such things."""

    usable: tuple[str, ...] = ()  # names of files
    faults: tuple[str, ...] = ()
    old: tuple[str, ...] = ()
    since: Mapping[TopicPartition, int] = field(default_factory=dict)
    doubts: Mapping[str, tuple[Stretch, ...]] = field(default_factory=dict)  # by session
    logs: tuple[ReadLog, ...] = ()
    cannot_check: bool = False  # nothing is known of the files

    @property
    def are_whole(self) -> bool:
        return not self.faults and not self.old


def judge_books(
    files: Sequence[AccountFile], cards: Sequence[Card], old: Mapping[str, str], faults: Sequence[str] = ()
) -> Books:
    """`old`: the sessions of files that say nothing of themselves, by name; earlier versions, which wrote such files,
    wrote no cards. `faults`: of files that cannot be used."""
    by_session: dict[str, list[AccountFile]] = {}
    for file in files:
        by_session.setdefault(file.session, []).append(file)
    known = {card.session: card for card in cards}
    rewritten = {name for name, session in old.items() if session in known or session in by_session}
    old = {name: session for name, session in old.items() if name not in rewritten}
    found = [*faults, *(f"{name} was rewritten: its manifest is missing" for name in sorted(rewritten))]
    for session in sorted(by_session.keys() | known.keys()):
        found += _faults_of(session, by_session.get(session, []), known.get(session))
    found += _missing_sessions(by_session, known, old)
    return Books(
        usable=tuple(sorted([*(file.name for file in files), *old])),
        faults=tuple(dict.fromkeys(found)),
        old=tuple(sorted(set(old.values()))),
        since=earliest(card.since for card in cards),
        doubts={s: last.open for s, some in sorted(by_session.items()) if (last := _last(some)).open},
        logs=furthest(one for file in files for one in file.logs),
    )


def furthest(logs: Iterable[ReadLog]) -> tuple[ReadLog, ...]:
    """Of each log and leader epoch that which goes furthest."""
    found: dict[tuple[TopicPartition, LogMark], ReadLog] = {}
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


def _last(files: Iterable[AccountFile]) -> AccountFile:
    """Files without accounts have the number of the next one: of those of two days the later counts."""
    return max(files, key=lambda file: (file.end, file.first, file.name))


def _faults_of(session: str, files: Sequence[AccountFile], card: Card | None) -> list[str]:
    if card is None:
        return [f"session {session} has accounts but no card"]
    faults = []
    digests = {0: START}
    reached = 0
    for file in sorted(files, key=lambda file: (file.first, -file.end)):
        if file.first > reached:
            faults.append(f"session {session}: {_many(file.first - reached)} missing from number {reached} on")
        elif digests.get(file.first, file.previous) != file.previous:
            faults.append(f"{file.name} does not continue the file before it")
        at = file.first
        for rows, digest in file.entries:
            at += rows
            if digests.setdefault(at, digest) != digest:
                faults.append(f"{file.name} is not what its session wrote")
        reached = max(reached, at)
    if card.accounts is not None and reached < card.accounts:
        faults.append(f"session {session}: its last {_many(card.accounts - reached)} missing")
    return faults


def _missing_sessions(
    by_session: Mapping[str, Sequence[AccountFile]], known: Mapping[str, Card], old: Mapping[str, str]
) -> list[str]:
    faults = []
    is_old = set(old.values())
    for card in known.values():
        for session, seen in card.earlier.items():
            files = by_session.get(session, ())
            is_there = any(file.first >= seen or file.end > seen for file in files) or (seen < 0 and session in known)
            if not is_there and session not in is_old:
                what = "files" if session in known else "everything"
                faults.append(f"session {session}: {what} that session {card.session} saw of it is missing")
    return faults


def _many(accounts: int) -> str:
    return f"{accounts:,} account" + ("s" if accounts > 1 else "")
