"""Reads and checks the audit files of a group.

Thread: application; files are read on other threads.

Reads every audit record once, for the digests: reports a damaged or edited file, and its records do not count. Never
changes a file.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from multilane.audit.completeness import AuditFile, AuditFiles, SessionFile, check_files
from multilane.audit.folder import AuditFolder, is_in_place
from multilane.audit.manifest import is_unchanged, read_manifest, read_session_file, sessions_in

_READERS: Final = 8


@dataclass(frozen=True, slots=True)
class _Found:
    """The result of reading one file; empty if a merge deleted it meanwhile."""

    file: AuditFile | None = None
    session_file: SessionFile | None = None
    old: tuple[str, str] | None = None  # name and session
    fault: str = ""


def read_files(folder: AuditFolder, group: str) -> AuditFiles:
    names = [name for name, _ in folder.listing()]
    with ThreadPoolExecutor(_READERS) as threads:
        found = list(threads.map(lambda name: _read(folder, group, name), names))
    return check_files(
        [one.file for one in found if one.file is not None],
        [one.session_file for one in found if one.session_file is not None],
        dict(one.old for one in found if one.old is not None),
        [one.fault for one in found if one.fault],
    )


def _read(folder: AuditFolder, group: str, name: str) -> _Found:
    try:
        if name.endswith(".json"):
            return _own(folder, group, name)
        if not is_in_place(name):
            return _Found(fault=f"{name} is not in the folder of a day")
        return _file(folder, group, name)
    except FileNotFoundError:
        return _Found()
    except Exception as error:  # noqa: BLE001 - Arrow raises many types for a damaged file
        return _Found(fault=f"{name} is damaged: {str(error).splitlines()[0] if str(error) else type(error).__name__}")


def _own(folder: AuditFolder, group: str, name: str) -> _Found:
    owner, session_file = read_session_file(folder.read_bytes(name))
    return _Found(session_file=session_file) if owner == group else _Found(fault=f"{name} belongs to group {owner}")


def _file(folder: AuditFolder, group: str, name: str) -> _Found:
    table = folder.read(name)
    manifest = read_manifest(name, table.schema.metadata)
    if manifest is None:
        session = next(iter(sessions_in([name])), name)
        return _Found(old=(name, session))
    owner, file = manifest
    if owner != group:
        return _Found(fault=f"{name} belongs to group {owner}")
    if not is_unchanged(file, table):
        return _Found(fault=f"{name} was changed after it was written")
    return _Found(file=file)
