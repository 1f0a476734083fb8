"""Why something failed on Spark, in one line.

Thread: none (pure).
"""

from __future__ import annotations

import re
from typing import Final

_PYTHONS: Final = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Lost|Failed|Exit|Interrupt)\b(: |$)")
_SPARKS: Final = ("org.", "java.", "py4j.", "pyspark.errors.")


def reason(error: Exception) -> str:
    """The line that says what happened: of a failure in a worker the last of its traceback, which Spark has somewhere
    in the middle of its own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if _PYTHONS.match(line) and not line.startswith(_SPARKS)]
    return (told or lines or [type(error).__name__])[-1 if told else 0]
