"""The Kafka installation in the user's cache: fetched once, verified at each start.

Thread: any; a file lock keeps two processes from fetching at once.

Owns `<cache>/multilane/kafka-<version>/`: the jars, and `bootstrap.checkpoint`, which `kafka-storage format` writes
into an empty data directory; it is created once, so that a start needs no JVM for formatting. The jars' SHA-256 sums
are pinned in this package; a manifest beside the files covers the rest. Never repairs silently: a changed file is an
error.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Final

from multilane.dev import formatting, ivy
from multilane.errors import DamagedJars
from multilane.java import Java
from multilane.user_cache import user_cache

MANIFEST: Final = "SHA256SUMS"
CHECKPOINT: Final = "bootstrap.checkpoint"
_REPAIR: Final = "run `multilane dev fetch-jars` to fetch it again"

# Opens a display for so many steps; the function it yields is called after each.
DownloadProgress = Callable[[int], AbstractContextManager[ivy.ProgressStep]]


@dataclass(frozen=True, slots=True)
class Installation:
    """A verified installation."""

    directory: Path

    @property
    def classpath(self) -> str:
        return f"{self.directory}/*"

    @property
    def checkpoint(self) -> Path:
        return self.directory / CHECKPOINT


def silent(total: int) -> AbstractContextManager[ivy.ProgressStep]:
    del total
    return nullcontext(lambda: None)


def cache_directory(environ: Mapping[str, str] | None = None) -> Path:
    """The directory of this version of Kafka."""
    return user_cache(environ) / f"kafka-{ivy.KAFKA_VERSION}"


def pinned() -> dict[str, str]:
    """Jar name -> SHA-256, as pinned by this version of multilane."""
    text = resources.files("multilane.dev").joinpath(f"kafka-{ivy.KAFKA_VERSION}.sha256").read_text()
    return _parse_sums(text)


def installed(java: Java, directory: Path | None = None, progress: DownloadProgress = silent) -> Installation:
    """The installation, fetched if there is none; raises DamagedJars if it was changed."""
    directory = cache_directory() if directory is None else directory
    if not directory.exists():
        with _lock(directory):
            # Another process may have finished while this one waited for the lock.
            if not directory.exists():
                _install(java, directory, progress)
    verify(directory)
    return Installation(directory)


def fetch(java: Java, directory: Path | None = None, progress: DownloadProgress = silent) -> Installation:
    """Like `installed`, but replaces a damaged installation."""
    directory = cache_directory() if directory is None else directory
    try:
        return installed(java, directory, progress)
    except DamagedJars:
        with _lock(directory):
            shutil.rmtree(directory, ignore_errors=True)
            _install(java, directory, progress)
    verify(directory)
    return Installation(directory)


def verify(directory: Path) -> None:
    """Checks that every file is present and unchanged, and that no other file could get onto the class path."""
    manifest = _read_manifest(directory)
    expected = pinned()
    for name, digest in expected.items():
        if manifest.get(name) != digest:
            raise DamagedJars(f"{directory / MANIFEST} does not name the pinned {name}: {_REPAIR}")
    for name in sorted(manifest.keys() - expected.keys() - {CHECKPOINT}):
        raise DamagedJars(f"{directory / MANIFEST} names {name}, which does not belong there: {_REPAIR}")
    present = {path.name for path in directory.iterdir()} - {MANIFEST}
    for name in sorted(present ^ manifest.keys()):
        fault = "is missing from" if name in manifest else "does not belong in"
        raise DamagedJars(f"{name} {fault} {directory}: {_REPAIR}")
    for name, digest in manifest.items():
        if _sha256(directory / name) != digest:
            raise DamagedJars(f"{directory / name} was changed since it was fetched: {_REPAIR}")


def _install(java: Java, directory: Path, progress: DownloadProgress) -> None:
    """Builds the installation in a temporary directory and renames it, so that it is complete or does not exist."""
    expected = pinned()
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=directory.parent) as temporary:
        work = Path(temporary)
        new = work / "new"
        new.mkdir()
        with progress(2 * len(expected) + 1) as step:
            ivy.retrieve(java, new, work, step)
            _check_fetched(new, expected)
            formatting.make_checkpoint(java, new, work, new / CHECKPOINT)
            step()
        sums = {path.name: _sha256(path) for path in sorted(new.iterdir())}
        (new / MANIFEST).write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
        new.rename(directory)


def _check_fetched(new: Path, expected: Mapping[str, str]) -> None:
    got = {path.name: _sha256(path) for path in new.iterdir()}
    wrong = sorted(name for name in expected.keys() | got.keys() if expected.get(name) != got.get(name))
    if wrong:
        raise DamagedJars(f"the fetched files are not what multilane pins: {', '.join(wrong)}")


def _read_manifest(directory: Path) -> dict[str, str]:
    try:
        return _parse_sums((directory / MANIFEST).read_text())
    except (OSError, ValueError) as error:
        raise DamagedJars(f"{directory / MANIFEST} cannot be read: {_REPAIR}") from error


def _parse_sums(text: str) -> dict[str, str]:
    pairs = (line.split() for line in text.splitlines())
    return {name: digest for digest, name in pairs}


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DamagedJars(f"{path} cannot be read: {_REPAIR}") from error


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    directory.parent.mkdir(parents=True, exist_ok=True)
    # The lock file stays: without it a third process could lock a new file while a second one holds the old.
    with directory.with_name(directory.name + ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
