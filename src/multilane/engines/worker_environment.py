"""Where an application lives in a worker, for as long as its member does.

Thread: the worker's own.

A Spark worker may serve one task after the other. A member finds a process as if it were new: its directory is the
current one, its modules are imported from there, and when it ends they are forgotten. Else the next life would be given
the objects of the last one, with a closed event loop and another member's number. Libraries stay, also where the
environment or the whole Python lies in the application's directory: few can be imported twice.
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


def placed(home: str) -> str:
    """A relative home is something that Spark has unpacked."""
    return home if os.path.isabs(home) else os.path.join(_unpacked(), home)


@contextmanager
def in_worker_environment(home: str, number: int, *, forgets: bool = True) -> Iterator[None]:
    """With `forgets` the modules from there are forgotten at the end."""
    place = placed(home)
    directory, path, modules = os.getcwd(), list(sys.path), set(sys.modules)
    try:
        os.chdir(place)
    except OSError as error:
        advice = "pack the application (multilane pack APP.zip) and run it with --archive APP.zip"
        raise ConfigError(f"{place} is not on {socket.gethostname()}: {advice}") from error
    sys.path.insert(0, place)
    os.environ[MEMBER_VARIABLE] = str(number)
    importlib.invalidate_caches()
    try:
        with advised_elsewhere():  # by the driver
            yield
    finally:
        os.environ.pop(MEMBER_VARIABLE, None)
        sys.path[:] = path
        os.chdir(directory)
        came = set(sys.modules) - modules if forgets else set()
        for name in [name for name in came if _is_of_application(sys.modules[name], Path(place))]:
            del sys.modules[name]


def found(path: str) -> Any:
    """What MODULE:NAME leads to."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _unpacked() -> str:
    from pyspark import SparkFiles

    return SparkFiles.getRootDirectory()


def _is_of_application(module: object, place: Path) -> bool:
    """A package without an `__init__.py` has no file, but places: with its modules it goes."""
    file = getattr(module, "__file__", None)
    paths = [file] if isinstance(file, str) else list(getattr(module, "__path__", None) or ())
    return bool(paths) and all(_is_below(Path(os.path.abspath(path)), place) for path in paths)


def _is_below(path: Path, place: Path) -> bool:
    if not path.is_relative_to(place) or not _INSTALLED.isdisjoint(path.relative_to(place).parts):
        return False
    libraries = [one for one in (_OURS, *_PYTHONS) if one.is_relative_to(place) and one != place]
    return not any(path.is_relative_to(one) for one in libraries)
