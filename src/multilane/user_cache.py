"""Where this user's machine keeps what is costly to make again: Kafka's jars, compiled kernels.

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


def make_private(directory: Path) -> None:
    """Make it and what is missing above it, for this user alone."""
    for level in (*reversed(directory.parents), directory):  # mkdir's `parents` gives those above what the umask says
        level.mkdir(mode=0o700, exist_ok=True)


def is_trusted(facts: os.stat_result) -> bool:
    """Whether nobody but this user and root can have written it."""
    return facts.st_uid in (os.getuid(), 0) and not facts.st_mode & 0o022
