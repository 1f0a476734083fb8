"""Loads the compiled kernels once, on first use: in milliseconds where their machine code is kept, else by compiling.

Thread: any (the lock is here).
Owns: the only lock of `wire`, the fork handlers around it, and the file in the user's cache that keeps the code: one
for each version of the kernels, of the compiler and of the processor. Never: imports numba where the file is there.

numba is a second of imports and ninety megabytes, which every process would pay for code that never changes. So what it
makes is kept, and without a place to keep it the process compiles for itself alone. With NUMBA_BOUNDSCHECK set
numba runs the kernels itself: they could not raise through machine code.

A fork while another thread loads would leave the child with numba's compiler lock and the import system's module lock
held by a thread that does not exist there: its first decode would wait for ever. So a fork waits for the loading to
end. The lock is re-entrant because the thread that loads may itself fork.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import tempfile
import threading
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from multilane.user_cache import user_cache

log = logging.getLogger(__name__)

_lock = threading.RLock()
_loaded: list[Any] = []  # the module `kernels`, or the same functions as machine code
_SOURCES: Final = ("kernels.py", "header_kernels.py", "layout.py", "compiling.py", "image.py", "native.py")

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
        return importlib.import_module("multilane.wire.records.checked")
    from multilane.wire.records import image
    from multilane.wire.records.native import NativeKernels

    place = _place(image.processor())
    kept = _kept(place)
    if kept is None:
        kept = importlib.import_module("multilane.wire.records.compiling").compile_kernels()
        _keep(place, kept.pack())
    return NativeKernels(image.addresses(kept))


# --- the file --------------------------------------------------------------------------------------------------------


def _place(processor: str) -> Path:
    facts = hashlib.sha256()
    for part in (processor, version("numba"), version("llvmlite")):
        facts.update(part.encode() + b"\n")
    for source in _SOURCES:
        facts.update(Path(__file__).with_name(source).read_bytes())
    return user_cache() / "kernels" / f"{facts.hexdigest()[:32]}.image"


def _kept(place: Path) -> Any | None:
    """The code that was kept, if it is whole and nobody else could have written it."""
    from multilane.wire.records import image

    try:
        facts = place.stat()
        if facts.st_uid not in (os.getuid(), 0) or facts.st_mode & 0o022:
            log.warning("the kernels in %s can be written by others: they are not used", place)
            return None
        return image.unpack(place.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        log.warning("the kernels in %s cannot be used and are made anew: %s", place, error)
        return None


def _keep(place: Path, data: bytes) -> None:
    """Whole or not at all: other processes may look at the same time."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
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
