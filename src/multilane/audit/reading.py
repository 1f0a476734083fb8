"""Reads the files of a group's accounts for an audit: which can be used, and what they say of each other.

Thread: application; files are read on threads of their own.

Every account is read once here, for the digests: a file that is damaged or was edited is named, and its accounts do not
count.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from multilane.audit.books import AccountFile, Books, Card, judge_books
from multilane.audit.folder import AuditFolder
from multilane.audit.manifest import is_unchanged, read_card, read_manifest, sessions_in

_AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class _Found:
    """One of them; none for a file that vanished meanwhile, because it was merged."""

    file: AccountFile | None = None
    card: Card | None = None
    old: tuple[str, str] | None = None  # a name, and its session
    fault: str = ""


def read_books(folder: AuditFolder, group: str) -> Books:
    names = [name for name, _ in folder.listing()]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        found = list(threads.map(lambda name: _read(folder, group, name), names))
    return judge_books(
        [one.file for one in found if one.file is not None],
        [one.card for one in found if one.card is not None],
        dict(one.old for one in found if one.old is not None),
        [one.fault for one in found if one.fault],
    )


def _read(folder: AuditFolder, group: str, name: str) -> _Found:
    try:
        return _card(folder, group, name) if name.endswith(".json") else _file(folder, group, name)
    except FileNotFoundError:
        return _Found()
    except Exception as error:  # noqa: BLE001 - Arrow raises many kinds for a file that is none
        return _Found(fault=f"{name} is damaged: {str(error).splitlines()[0] if str(error) else type(error).__name__}")


def _card(folder: AuditFolder, group: str, name: str) -> _Found:
    whose, card = read_card(folder.read_bytes(name))
    return _Found(card=card) if whose == group else _Found(fault=f"{name} belongs to group {whose}")


def _file(folder: AuditFolder, group: str, name: str) -> _Found:
    table = folder.read(name)
    manifest = read_manifest(name, table.schema.metadata)
    if manifest is None:
        session = next(iter(sessions_in([name])), name)
        return _Found(old=(name, session))
    whose, file = manifest
    if whose != group:
        return _Found(fault=f"{name} belongs to group {whose}")
    if not is_unchanged(file, table):
        return _Found(fault=f"{name} was changed after it was written")
    return _Found(file=file)
