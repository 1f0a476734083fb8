"""Imports kio without hypothesis, which kio takes up wherever it is installed.

Thread: none (once, at import).

kio gives its types to hypothesis as it is imported. In a test that is welcome; in an application that has hypothesis
beside it each process would start seconds later, and on Spark every worker is a process.
"""

from __future__ import annotations

import sys
from typing import Final

_UNWANTED: Final = "hypothesis"

if _UNWANTED not in sys.modules:
    sys.modules[_UNWANTED] = None  # type: ignore[assignment]
    try:
        import kio.static.primitive  # noqa: F401 - what asks, and what it needs
    finally:
        sys.modules.pop(_UNWANTED, None)
