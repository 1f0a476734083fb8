"""Loads the compiled kernels once, on first use: in milliseconds where their machine code is kept, else by compiling.

Thread: any (the lock is here).
Owns: the only lock of `wire`, the fork handlers around it, and the file in the user's cache that keeps the code: one
for each version of the kernels, of the compiler with its settings, and of the processor. Never: imports numba where
the file is there.

numba is a second of imports and ninety megabytes, which every process would pay for code that never changes. So what it
makes is kept, and without a place to keep it the process compiles for itself alone. With NUMBA_BOUNDSCHECK set
numba runs the kernels itself: they could not raise through machine code. NUMBA_DISABLE_JIT is for the user's functions
and says nothing about ours, which would be a thousand times slower.

A fork while another thread loads would leave the child with numba's compiler lock and the import system's module lock
held by a thread that does not exist there: its first decode would wait for ever. So a fork waits for the loading to
end. The lock is re-entrant because the thread that loads may itself fork.
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
# Variables of numba's that change no code, or none of ours. All others may: each setting has kernels of its own.
_HARMLESS: Final = frozenset(
    f"NUMBA_{name}" for name in ("BOUNDSCHECK", "CACHE_DIR", "DISABLE_JIT", "NUM_THREADS", "THREADING_LAYER")
)

# numba imports logging, which registers fork handlers of its own. Were that to happen while a fork waits here, logging
# would release in the parent a lock that it had not taken; so logging comes first.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def load_kernels() -> None:
    """Make everything ready that `scan` and `decode` use. Idempotent."""
    kernels()


def kernels() -> Any:
    """What has the functions of the module `kernels`."""
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

    place = _place(image.processor())
    kept = _kept(place)
    if kept is None:
        with _compiler_on():
            kept = importlib.import_module("multilane.wire.records.compiling").compile_kernels()
        _keep(place, kept.pack())
    return NativeKernels(image.addresses(kept))


@contextlib.contextmanager
def _compiler_on() -> Iterator[None]:
    config: Any = importlib.import_module("numba.core.config")
    told, config.DISABLE_JIT = config.DISABLE_JIT, 0
    try:
        yield
    finally:
        config.DISABLE_JIT = told


# --- the file --------------------------------------------------------------------------------------------------------


def _place(processor: str) -> Path:
    facts = hashlib.sha256()
    settings = sorted(f"{k}={v}" for k, v in os.environ.items() if k.startswith("NUMBA_") and k not in _HARMLESS)
    for part in (processor, version("numba"), version("llvmlite"), *settings):
        facts.update(os.fsencode(part) + b"\n")
    for source in _SOURCES:
        facts.update(Path(__file__).with_name(source).read_bytes())
    return user_cache() / "kernels" / f"{facts.hexdigest()[:32]}.image"


def _kept(place: Path) -> Any | None:
    """The code that was kept, if it is whole and nobody else could have written it."""
    from multilane.wire.records import image

    try:
        data = _read_trusted(place)
        if data is None:
            log.warning("the kernels in %s can be written by others: they are not used", place)
            return None
        return image.unpack(data)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("the kernels in %s cannot be used and are made anew: %s", place, error)
        return None


def _read_trusted(place: Path) -> bytes | None:
    """What is in the file; None where others may have put it there.

    Each thing is opened once and judged when it is open: between a look by name and the opening it could be exchanged.
    """
    folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if not is_trusted(os.fstat(folder)):
            return None
        handle = os.open(place.name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=folder)
    finally:
        os.close(folder)
    with os.fdopen(handle, "rb") as file:
        return file.read() if is_trusted(os.fstat(handle)) else None


def _keep(place: Path, data: bytes) -> None:
    """Whole or not at all: other processes may look at the same time."""
    try:
        make_private(place.parent)
        if not is_trusted(place.parent.stat()):
            raise PermissionError("others can write there")
        handle, name = tempfile.mkstemp(dir=place.parent, prefix=".kernels-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            os.replace(name, place)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as error:
        log.warning("the compiled kernels cannot be kept in %s, so each process compiles them: %s", place.parent, error)
