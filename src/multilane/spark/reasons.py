"""Why something failed on Spark, in one line.

Thread: any.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from multilane.errors import MultilaneError, NoHistory
from multilane.secret import without_credentials

_PYTHONS: Final = re.compile(
    r"multilane\.errors\.\w+: |[A-Za-z_][\w.]*(Error|Exception|Lost|Failed|Exit|Interrupt)\b(: |$)"
)
_OURS: Final = re.compile(r"multilane\.errors\.\w+: ")
_MOST_TEXT: Final = 4_000  # characters
_SPARKS: Final = ("org.", "java.", "py4j.", "pyspark.errors.")


def reason(error: Exception) -> str:
    """The line that says what happened: of a failure in a worker the last of its traceback, which Spark has somewhere
    in the middle of its own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if _PYTHONS.match(line) and not line.startswith(_SPARKS)]
    return without_credentials(told[-1] if told else first_cause(error))


def first_cause(error: Exception) -> str:
    """Of what the JVM says the first line tells only that it has said something."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    java = next((line for line in lines[1:] if line.startswith(": ")), "")
    return java.removeprefix(": ") or lines[0]


def in_short(error: BaseException) -> str:
    """What a worker tells of it. Our own errors are sentences that say all."""
    told = str(error) if isinstance(error, MultilaneError) else f"{type(error).__name__}: {error}"
    return without_credentials(told[:_MOST_TEXT])


@contextmanager
def told_plainly(what: str) -> Iterator[None]:
    """Spark tells what went wrong in a worker with both tracebacks: one sentence is enough."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise NoHistory(f"{what} cannot be read: {_OURS.sub('', reason(error), count=1)}") from error
