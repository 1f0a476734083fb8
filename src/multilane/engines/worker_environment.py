"""Sets up a worker process for an application: its directory, its import path, its modules.

Thread: the worker's own.

A Spark worker may run one task after another, and each member finds the process as if it were new. The application's
home is the current directory, and its modules are imported from there. When the member ends they are forgotten. Else
the next member would get the objects of the last one, with a closed event loop and another member's number. Libraries
are kept, even when the environment or the Python installation lies inside the home: few can be imported twice.
"""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from multilane.config.app.advising import advised_elsewhere
from multilane.config.app.loading import MEMBER_VARIABLE
from multilane.errors import ConfigError

_OURS: Final = Path(__file__).parents[1]  # this library
_INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
_PYTHONS: Final = tuple(Path(os.path.abspath(prefix)) for prefix in {sys.prefix, sys.base_prefix})


def resolve_home(home: str) -> str:
    """A relative home is an archive that Spark has unpacked."""
    return home if os.path.isabs(home) else os.path.join(_unpacked(), home)


@contextmanager
def in_worker_environment(home: str, number: int, *, forgets: bool = True) -> Iterator[None]:
    """With `forgets`, modules imported from the home are forgotten at the end."""
    location = resolve_home(home)
    directory, path, modules = os.getcwd(), list(sys.path), set(sys.modules)
    try:
        os.chdir(location)
    except OSError as error:
        advice = "pack the application (multilane pack APP.zip) and run it with --archive APP.zip"
        raise ConfigError(f"{location} is not on {socket.gethostname()}: {advice}") from error
    sys.path.insert(0, location)
    os.environ[MEMBER_VARIABLE] = str(number)
    importlib.invalidate_caches()
    try:
        with advised_elsewhere():  # by the driver
            yield
    finally:
        os.environ.pop(MEMBER_VARIABLE, None)
        sys.path[:] = path
        os.chdir(directory)
        imported = set(sys.modules) - modules if forgets else set()
        for name in [name for name in imported if _is_of_application(sys.modules[name], Path(location))]:
            del sys.modules[name]


def load(path: str) -> Any:
    """The object at MODULE:NAME."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _unpacked() -> str:
    from pyspark import SparkFiles

    return SparkFiles.getRootDirectory()


def _is_of_application(module: object, home: Path) -> bool:
    """A package without an `__init__.py` has no file, but paths: it is forgotten with its modules."""
    file = getattr(module, "__file__", None)
    paths = [file] if isinstance(file, str) else list(getattr(module, "__path__", None) or ())
    return bool(paths) and all(_is_below(Path(os.path.abspath(path)), home) for path in paths)


def _is_below(path: Path, home: Path) -> bool:
    if not path.is_relative_to(home) or not _INSTALLED.isdisjoint(path.relative_to(home).parts):
        return False
    libraries = [library for library in (_OURS, *_PYTHONS) if library.is_relative_to(home) and library != home]
    return not any(path.is_relative_to(library) for library in libraries)
