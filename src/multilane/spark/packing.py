"""Packs an application's directory into an archive that Spark unpacks on every executor.

Thread: application.

The archive has the application alone: its modules, its configuration and its other files. multilane and other packages
must be installed in the executors' Python. Hidden files, caches, virtual environments, everything that is not a regular
file, and the archive itself are left out. An archive is copied to many machines: files that look like keys or passwords
are refused (see `key_like`), and so are configurations that hold secrets in clear, and links that lead out of the
directory.
"""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import IO, Final

from multilane.config.app.literal_secrets import Found, literal_secrets
from multilane.config.app.loading import LARGEST_FILE
from multilane.errors import ConfigError
from multilane.spark.key_like import looks_like_key, sounds_like_key

UNPACKED: Final = "multilane-app"  # the directory on executors
_TIMESTAMP: Final = (1980, 1, 1, 0, 0, 0)  # the same for all files: equal content makes equal archives
_MOST_LISTED: Final = 10


def pack(directory: Path, archive: Path, allow: Sequence[str] = (), exclude: Sequence[str] = ()) -> list[Path]:
    """Writes the archive, readable by this user alone, and returns its files, relative to the directory.

    `allow` and `exclude` are patterns of names or relative paths: `allow` packs files that look like keys, `exclude`
    leaves files out.
    """
    if archive.suffix != ".zip":
        raise ConfigError(f"{archive}: Spark recognises archives by their names, so this one has to end with .zip")
    files = sorted(file for file in _files(directory, archive.resolve()) if not _matches(file, exclude))
    if not any(file.suffix == ".py" for file in files):
        raise ConfigError(f"{directory} has no Python module: pack the directory that the application is imported from")
    _refuse_links(directory, files)
    with tempfile.TemporaryFile() as content:  # nameless: no rest of it stays behind, however this ends
        secrets: list[Found] = []
        _refuse_keys([*_packed(directory, files, content, allow, secrets)])
        _refuse_secrets(secrets)
        content.seek(0)
        _write_atomically(archive, content)
    return files


def _packed(
    directory: Path, files: Sequence[Path], content: IO[bytes], allow: Sequence[str], secrets: list[Found]
) -> Iterator[Path]:
    """Writes the archive, yields the files that look like keys, and adds what configurations hold in clear."""
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as out:
        for file in files:
            mode, data = _read(directory, file)
            names = {file.name, (directory / file).resolve().name}  # a link has two
            if not _matches(file, allow):
                if any(map(sounds_like_key, names)) or looks_like_key(data):
                    yield file
                if len(data) <= LARGEST_FILE:
                    secrets += literal_secrets(data, str(file))
            info = zipfile.ZipInfo(file.as_posix(), _TIMESTAMP)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (stat.S_IFREG | mode & 0o777) << 16
            out.writestr(info, data)


def _read(directory: Path, relative: Path) -> tuple[int, bytes]:
    """Links were checked before: a link or pipe that has replaced the file since is not followed or waited for."""
    path = directory / relative
    _refuse_links(directory, [relative])
    file = os.open(path.resolve(), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(file, "rb") as opened:
        facts = os.fstat(file)
        if not stat.S_ISREG(facts.st_mode):
            raise ConfigError(f"{path} is no longer a regular file")
        return facts.st_mode, opened.read()


def _refuse_links(directory: Path, files: Sequence[Path]) -> None:
    """A link to a file inside the directory is packed as that file; other links are refused."""
    inside, advice = directory.resolve(), "copy what the app needs, or leave it out with --exclude"
    if out := [file for file in files if not (directory / file).resolve().is_relative_to(inside)]:
        raise ConfigError(f"{_listed(out)}: links lead out of {directory}; {advice}")
    if directories := [file for file in files if (directory / file).is_dir()]:
        raise ConfigError(f"{_listed(directories)}: links to directories are not packed; {advice}")


def _refuse_keys(found: Sequence[Path]) -> None:
    if found:
        raise ConfigError(
            f"{_listed(found)}: these look like keys or passwords, and the archive is copied to every executor. Keep "
            "secrets elsewhere and refer to them with ${NAME} in the configuration, leave the files out with "
            "--exclude, or pack them with --allow"
        )


def _refuse_secrets(found: Sequence[Found]) -> None:
    if found:
        lines = [f"{location.file}:{location.line} ({key})" for location, key in found]
        raise ConfigError(
            f"{_listed(lines)}: the value is written in clear, and the archive is copied to every executor. Write "
            "${NAME} and set that variable for driver and executors, leave the file out with --exclude, or pack it "
            "with --allow"
        )


def _listed(files: Sequence[object]) -> str:
    more = len(files) - _MOST_LISTED
    return ", ".join(map(str, files[:_MOST_LISTED])) + (f" and {more} more" if more > 0 else "")


def _write_atomically(archive: Path, content: IO[bytes]) -> None:
    """Readable by this user alone (as mkstemp creates files), and renamed only when it is complete."""
    file, name = tempfile.mkstemp(".part", f".{archive.name}.", archive.parent)
    try:
        with open(file, "wb") as out:
            shutil.copyfileobj(content, out)
            out.flush()
            os.fsync(file)
        Path(name).replace(archive)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _files(directory: Path, archive: Path) -> Iterator[Path]:
    """Yields links to directories too, for `_refuse_links`; they are not followed."""
    for where, below, names in os.walk(directory):
        below[:] = [name for name in below if not _is_left_out(Path(where, name))]
        links = [name for name in below if Path(where, name).is_symlink()]
        for name in (*names, *links):
            path = Path(where, name)
            is_ours = not name.startswith(".") and not name.endswith(".pyc") and path.resolve() != archive
            if is_ours and (path.is_file() or name in links):
                yield path.relative_to(directory)


def _is_left_out(directory: Path) -> bool:
    name = directory.name
    return name.startswith(".") or name == "__pycache__" or (directory / "pyvenv.cfg").exists()


def _matches(file: Path, patterns: Sequence[str]) -> bool:
    """By the file's name, its path, or a directory above it."""
    names = (file.name, file.as_posix(), *(above.as_posix() for above in file.parents))
    return any(fnmatchcase(name, pattern.rstrip("/")) for pattern in patterns for name in names)
