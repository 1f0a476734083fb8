"""Where this user's machine keeps what is costly to make again: Kafka's jars, compiled kernels.

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
