"""Imports kio without hypothesis, which kio imports wherever it is installed.

Thread: none (once, at import).

kio registers its types with hypothesis at import. That is welcome in a test; in an application with hypothesis
installed it would delay the start of each process by seconds, and on Spark every worker is a process.
"""

from __future__ import annotations

import sys
from typing import Final

_UNWANTED: Final = "hypothesis"

if _UNWANTED not in sys.modules:
    sys.modules[_UNWANTED] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401 - imports hypothesis
    finally:
        sys.modules.pop(_UNWANTED, None)
