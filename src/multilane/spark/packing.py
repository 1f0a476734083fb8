"""Packs an application's directory into an archive that Spark unpacks on every executor.

Thread: application.

The application alone: its modules, its configuration, what else lies there. multilane itself and other packages have to
be installed in the executors' Python. Left out are hidden files, caches, virtual environments and the archive itself.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from multilane.errors import ConfigError

UNPACKED: Final = "multilane-app"  # the directory on executors
_EARLIEST: Final = (1980, 1, 1, 0, 0, 0)  # one time for all: equal content makes equal archives


def pack(directory: Path, archive: Path) -> list[Path]:
    """Writes the archive and gives the files in it, relative to the directory."""
    if archive.suffix != ".zip":
        raise ConfigError(f"{archive}: Spark knows archives by their names, and this one has to end with .zip")
    files = sorted(_files(directory, archive.resolve()))
    if not any(file.suffix == ".py" for file in files):
        raise ConfigError(f"{directory} has no Python module: pack the directory that the application is imported from")
    partial = archive.with_name(f".{archive.name}.part")
    with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as out:
        for file in files:
            info = zipfile.ZipInfo(file.as_posix(), _EARLIEST)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (directory / file).stat().st_mode << 16
            out.writestr(info, (directory / file).read_bytes())
    partial.replace(archive)
    return files


def _files(directory: Path, archive: Path) -> Iterator[Path]:
    for where, below, names in os.walk(directory):
        below[:] = [name for name in below if not _is_left_out(Path(where, name))]
        for name in names:
            path = Path(where, name)
            if not name.startswith(".") and not name.endswith(".pyc") and path.resolve() != archive:
                yield path.relative_to(directory)


def _is_left_out(directory: Path) -> bool:
    name = directory.name
    return name.startswith(".") or name == "__pycache__" or (directory / "pyvenv.cfg").exists()
