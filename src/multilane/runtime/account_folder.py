"""Where the files of a group's accounts are, on this machine or elsewhere. A file is there as a whole or not at all.

Thread: any.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote


class Folder:
    def __init__(self, path: str, group: str) -> None:
        """`path`: a directory, or a URI of one that Arrow knows."""
        self._below = f"group={folder_name(group)}"
        self._uri = path if "://" in path else None
        self._local = None if self._uri else Path(path).expanduser() / self._below

    def __str__(self) -> str:
        """Without a login that the address may have in it."""
        if self._uri is None:
            return str(self._local)
        scheme, _, rest = self._uri.partition("://")
        return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"

    def make(self) -> None:
        if self._local is not None:
            self._local.mkdir(parents=True, exist_ok=True)
            probe = self._local / f".{uuid.uuid4().hex}"
            probe.touch()
            probe.unlink()
        else:
            system, base = self._remote()
            system.create_dir(base, recursive=True)

    def write(self, name: str, table: Callable[[], Any]) -> None:
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

    def merge(self, names: Sequence[str], into: str) -> None:
        """What is in these files is in one more."""
        import pyarrow as pa

        self.write(into, lambda: pa.concat_tables(self._read(name) for name in names).unify_dictionaries())

    def delete(self, names: Sequence[str]) -> None:
        """Those that are there."""
        if self._local is not None:
            for name in names:
                (self._local / name).unlink(missing_ok=True)
            return
        system, base = self._remote()
        for name in names:
            with suppress(FileNotFoundError):
                system.delete_file(f"{base}/{name}")

    def _read(self, name: str) -> Any:
        from pyarrow import parquet

        if self._local is not None:
            return parquet.ParquetFile(self._local / name).read()
        system, base = self._remote()
        with system.open_input_file(f"{base}/{name}") as content:
            return parquet.ParquetFile(content).read()

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
