"""The user's cache directory, for files that are costly to recreate (Kafka's jars, compiled kernels), and the state
directory, for files that outlive a process (begun tables).

Thread: any.

Owns the check of who wrote a file: code that is run from a cache must come from this user or from root.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def user_cache(environ: Mapping[str, str] | None = None) -> Path:
    """`MULTILANE_CACHE`, `XDG_CACHE_HOME/multilane` or `~/.cache/multilane`; for a user without a home directory, a
    private directory below the temporary one."""
    environ = os.environ if environ is None else environ
    if own := environ.get("MULTILANE_CACHE"):
        return Path(own)
    xdg = environ.get("XDG_CACHE_HOME", "")
    if Path(xdg).is_absolute():
        return Path(xdg) / "multilane"
    try:
        return Path.home() / ".cache" / "multilane"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"multilane-{os.getuid()}"


def user_state(environ: Mapping[str, str] | None = None) -> Path:
    """For files that outlive a process but not the machine: `MULTILANE_STATE`, `XDG_STATE_HOME/multilane` or
    `~/.local/state/multilane`; for a user without a home directory, a private directory below the temporary one."""
    environ = os.environ if environ is None else environ
    if own := environ.get("MULTILANE_STATE"):
        return Path(own)
    xdg = environ.get("XDG_STATE_HOME", "")
    if Path(xdg).is_absolute():
        return Path(xdg) / "multilane"
    try:
        return Path.home() / ".local" / "state" / "multilane"
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"multilane-{os.getuid()}" / "state"


def make_private(directory: Path) -> None:
    """Creates the directory and its missing parents, for this user alone."""
    for level in (
        *reversed(directory.parents),
        directory,
    ):  # mkdir(parents=True) creates the parents with the umask's mode
        level.mkdir(mode=0o700, exist_ok=True)


def is_trusted(facts: os.stat_result) -> bool:
    """Whether only this user and root can have written it."""
    return facts.st_uid in (os.getuid(), 0) and not facts.st_mode & 0o022
