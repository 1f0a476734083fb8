"""The directory of a group's audit files, on this machine or in remote storage.

Thread: any.

Owns nothing but the path. Never leaves a partial file: a file exists completely or not at all. A local file is on disk,
under its name, when its write returns.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from multilane.audit.manifest import SESSIONS_FOLDER, merged_metadata

_NO_SYNC: Final = {errno.EINVAL, errno.ENOTSUP, errno.EACCES, errno.EPERM}  # of file systems that sync no folders


class AuditFolder:
    def __init__(self, path: str, group: str) -> None:
        """`path`: a directory, or a URI that Arrow supports."""
        self._group_folder = f"group={folder_name(group)}"
        self._uri = path if "://" in path else None
        self._local = None if self._uri else Path(path).expanduser() / self._group_folder
        self._on_disk: set[Path] = set()  # folders whose names are written to disk

    def __str__(self) -> str:
        """The path, without credentials that the URI may contain."""
        if self._uri is None:
            return str(self._local)
        scheme, _, rest = self._uri.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"

    @property
    def is_remote(self) -> bool:
        return self._uri is not None and not self._uri.startswith("file:")

    def make(self) -> None:
        if self._local is not None:
            self._make(self._local)
            probe = self._local / f".{uuid.uuid4().hex}"
            probe.touch()
            probe.unlink()
        else:
            system, base = self._remote()
            system.create_dir(base, recursive=True)

    def _make(self, folder: Path) -> None:
        """Make a folder and those above it. Another process may have made it and not have written its name to disk."""
        missing = list(takewhile(lambda one: not one.exists(), (folder, *folder.parents)))
        folder.mkdir(parents=True, exist_ok=True)
        if missing or folder not in self._on_disk:
            for one in missing or [folder]:
                _sync(one.parent)
            self._on_disk.add(folder)

    def write(self, name: str, table: Callable[[], Any]) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        content = pa.BufferOutputStream()
        parquet.write_table(table(), content, compression="zstd")
        self.write_bytes(name, content.getvalue())

    def write_bytes(self, name: str, content: Any) -> None:
        if self._local is not None:
            path = self._local / name
            self._make(path.parent)
            _write_whole(path, content)
            return
        system, base = self._remote()
        system.create_dir(f"{base}/{name.rpartition('/')[0]}", recursive=True)
        with system.open_output_stream(f"{base}/{name}") as out:  # the file exists once it is closed
            out.write(content)

    def read_bytes(self, name: str) -> bytes:
        if self._local is not None:
            return (self._local / name).read_bytes()
        system, base = self._remote()
        with system.open_input_file(f"{base}/{name}") as content:
            return bytes(content.read())

    def listing(self) -> list[tuple[str, float]]:
        """All files with their modification times, in seconds since 1970."""
        from pyarrow.fs import FileSelector, LocalFileSystem

        system, base = (LocalFileSystem(), str(self._local)) if self._local is not None else self._remote()
        found = system.get_file_info(FileSelector(base, allow_not_found=True, recursive=True))
        files = [(one.path.removeprefix(base).lstrip("/"), one) for one in found if one.is_file]
        return sorted((name, one.mtime_ns / 1e9 if one.mtime_ns else 0.0) for name, one in files if _is_ours(name))

    def merge(self, names: Sequence[str], into: str) -> None:
        """Write the content of these files to one more."""
        import pyarrow as pa

        def merged() -> pa.Table:
            tables = [self.read(name) for name in names]
            whole = pa.concat_tables(tables).unify_dictionaries()
            return whole.replace_schema_metadata(merged_metadata([table.schema.metadata for table in tables]))

        self.write(into, merged)

    def delete(self, names: Sequence[str]) -> None:
        """Delete these files, as far as they exist."""
        if self._local is not None:
            for name in names:
                (self._local / name).unlink(missing_ok=True)
            return
        system, base = self._remote()
        for name in names:
            with suppress(FileNotFoundError):
                system.delete_file(f"{base}/{name}")

    def read(self, name: str) -> Any:
        """The file as a table, with its metadata."""
        from pyarrow import parquet

        if self._local is not None:
            return parquet.ParquetFile(self._local / name).read()
        system, base = self._remote()
        with system.open_input_file(f"{base}/{name}") as content:
            return parquet.ParquetFile(content).read()

    def _remote(self) -> tuple[Any, str]:
        from pyarrow.fs import FileSystem

        system, base = FileSystem.from_uri(self._uri)
        return system, f"{base.rstrip('/')}/{self._group_folder}"


def folder_name(group: str) -> str:
    """A folder name for a group: a group id may contain characters that a folder name may not."""
    return quote(group, safe="").replace(".", "%2E") if group.startswith(".") else quote(group, safe="")


def is_in_place(name: str) -> bool:
    """Whether an audit file is where files are written. Spark skips some files elsewhere and reads others."""
    return name.startswith("day=") and name.count("/") == 1


def _is_ours(name: str) -> bool:
    """Session files, and the audit files that Spark does not skip."""
    *folders, last = name.split("/")
    if name.endswith(".json"):
        return folders == [SESSIONS_FOLDER] and not last.startswith(".")
    return name.endswith(".parquet") and not any(part.startswith((".", "_")) for part in (*folders, last))


def _sync(folder: Path) -> None:
    """Write the names in a folder to disk: a file can be on disk without its name."""
    try:
        opened = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(opened)
        finally:
            os.close(opened)
    except OSError as error:
        if error.errno not in _NO_SYNC:
            raise


def _write_whole(path: Path, content: Any) -> None:
    """Write to disk, then rename: Spark ignores files whose name begins with a dot. The folder exists."""
    unfinished = path.with_name(f".{path.name}")
    try:
        with open(unfinished, "wb") as out:
            out.write(content)
            out.flush()
            os.fsync(out.fileno())
        unfinished.replace(path)
        _sync(path.parent)
    except BaseException:
        with suppress(OSError):
            unfinished.unlink()
        raise
