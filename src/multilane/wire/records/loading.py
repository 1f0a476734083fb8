"""Loads the compiled kernels once, on first use.

Thread: any (the lock is here).
Owns: the only lock of `wire`, and the fork handlers around it. Never: imports numba before somebody asks.

A fork while another thread loads would leave the child with numba's compiler lock and the import system's module lock
held by a thread that does not exist there: its first decode would wait for ever. So a fork waits for the loading to
end. The lock is re-entrant because the thread that loads may itself fork.
"""

from __future__ import annotations

import importlib
import logging  # noqa: F401 - see below
import os
import threading
from types import ModuleType

_lock = threading.RLock()
_loaded: list[ModuleType] = []

# numba imports logging, which registers fork handlers of its own. Were that to happen while a fork waits here, logging
# would release in the parent a lock that it had not taken; so logging comes first.
os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_lock.release)


def load_kernels() -> None:
    """Compile everything `scan` and `decode` use, or load it from numba's on-disk cache. Idempotent."""
    kernels()


def kernels() -> ModuleType:
    """The module of compiled functions."""
    if _loaded:
        return _loaded[0]
    with _lock:
        if not _loaded:
            _loaded.append(importlib.import_module("multilane.wire.records.kernels"))
    return _loaded[0]
