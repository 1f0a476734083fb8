"""Loads the compiled kernels once, on first use: in milliseconds if their machine code is cached, else by compiling.

Thread: any (the lock is here).
Owns: the only lock of `wire`, the fork handlers around it, and the file with the code in the user's cache: one for each
version of the kernels, of the compiler with its settings, and of the processor. Never: imports numba if the file
exists.

numba costs a second of imports and ninety megabytes, which every process would pay for code that never changes. So its
output is cached; if it cannot be, the process compiles for itself alone. With NUMBA_BOUNDSCHECK set numba runs the
kernels itself: they could not raise through machine code. NUMBA_DISABLE_JIT is for the user's functions and is ignored
for ours, which would be a thousand times slower.

A fork while another thread loads would leave the child with numba's compiler lock and the import system's module lock
held by a thread that does not exist there: its first decode would wait forever. So a fork waits until loading has
ended. The lock is re-entrant because the thread that loads may itself fork.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import os
import tempfile
import threading
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from multilane.logs import logger
from multilane.user_cache import is_trusted, make_private, user_cache

log = logger(__name__)

_lock = threading.RLock()
_loaded: list[Any] = []  # the module `kernels`, or the same functions as machine code
_SOURCES: Final = (
    *(
        "kernels.py",
        "hash_kernels.py",
        "header_kernels.py",
        "keyed_kernels.py",
        "lz4_kernels.py",
        "sum_kernels.py",
        "layout.py",
    ),
    *("compiling.py", "image.py", "native.py", "keyed_native.py"),
)
# numba's variables that do not change the kernels' code. All others may: each setting has kernels of its own.
_HARMLESS: Final = frozenset(
    f"NUMBA_{name}" for name in ("BOUNDSCHECK", "CACHE_DIR", "DISABLE_JIT", "NUM_THREADS", "THREADING_LAYER")
)

# numba imports logging, which registers its own fork handlers. If that happened while a fork waits here, logging would
# release a lock in the parent that it had not taken; so logging is imported first.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def load_kernels() -> None:
    """Load everything that `scan` and `decode` use. Idempotent."""
    kernels()


def kernels() -> Any:
    """An object with the functions of the module `kernels`."""
    if _loaded:
        return _loaded[0]
    with _lock:
        if not _loaded:
            _loaded.append(_load())
    return _loaded[0]


def _load() -> Any:
    if os.environ.get("NUMBA_BOUNDSCHECK", "0") not in ("", "0"):
        with _compiler_on():
            return importlib.import_module("multilane.wire.records.checked")
    from multilane.wire.records import image
    from multilane.wire.records.native import NativeKernels

    path = _image_path(image.processor())
    stored = _stored(path)
    if stored is None:
        with _compiler_on():
            stored = importlib.import_module("multilane.wire.records.compiling").compile_kernels()
        _store(path, stored.pack())
    return NativeKernels(image.addresses(stored))


@contextlib.contextmanager
def _compiler_on() -> Iterator[None]:
    config: Any = importlib.import_module("numba.core.config")
    before, config.DISABLE_JIT = config.DISABLE_JIT, 0
    try:
        yield
    finally:
        config.DISABLE_JIT = before


# --- the file --------------------------------------------------------------------------------------------------------


def _image_path(processor: str) -> Path:
    facts = hashlib.sha256()
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("NUMBA_") and k not in _HARMLESS)
    for part in (processor, version("numba"), version("llvmlite"), *settings):
        facts.update(os.fsencode(part) + b"\n")
    for source in _SOURCES:
        facts.update(Path(__file__).with_name(source).read_bytes())
    return user_cache() / "kernels" / f"{facts.hexdigest()[:32]}.image"


def _stored(path: Path) -> Any | None:
    """The cached code, if it is complete and only this user or root can have written it."""
    from multilane.wire.records import image

    try:
        data = _read_trusted(path)
        if data is None:
            log.warning("other users can write the kernels in %s: they are not used", path)
            return None
        return image.unpack(data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("the kernels in %s cannot be used and are compiled again: %s", path, error)
        return None


def _read_trusted(path: Path) -> bytes | None:
    """The file's content; None if other users may have written it.

    Directory and file are checked after they are opened: between a check by name and the opening they could change.
    """
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not is_trusted(os.fstat(folder)):
            return None
        handle = os.open(path.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(handle, "rb") as file:
        return file.read() if is_trusted(os.fstat(handle)) else None


def _store(path: Path, data: bytes) -> None:
    """Writes the file atomically: other processes may read it at the same time."""
    try:
        make_private(path.parent)
        if not is_trusted(path.parent.stat()):
            raise PermissionError("other users can write there")
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".kernels-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        log.warning("cannot store the compiled kernels in %s, so each process compiles them: %s", path.parent, error)
