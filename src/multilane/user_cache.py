"""Where this user's machine keeps what is costly to make again (Kafka's jars, compiled kernels), and what outlives a
process (begun tables).

Owns: who may have written there. What is run from a cache must come from this user or from root.

Thread: any.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path


def user_cache(environ: Mapping[str, str] | None = None) -> Path:
    """`MULTILANE_CACHE`, `XDG_CACHE_HOME/multilane` or `~/.cache/multilane`; for a user without a home, a directory of
    his own among the temporary ones."""
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
    """What has to outlive a process but not a machine: `MULTILANE_STATE`, `XDG_STATE_HOME/multilane` or
    `~/.local/state/multilane`; for a user without a home, a directory of his own among the temporary ones."""
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
    """Make it and what is missing above it, for this user alone."""
    for level in (*reversed(directory.parents), directory):  # mkdir's `parents` gives those above what the umask says
        level.mkdir(mode=0o700, exist_ok=True)


def is_trusted(facts: os.stat_result) -> bool:
    """Whether nobody but this user and root can have written it."""
    return facts.st_uid in (os.getuid(), 0) and not facts.st_mode & 0o022
