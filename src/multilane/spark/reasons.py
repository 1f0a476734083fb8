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

_PYTHON_ERROR: Final = re.compile(
    r"multilane\.errors\.\w+: |[A-Za-z_][\w.]*(Error|Exception|Lost|Failed|Exit|Interrupt)\b(: |$)"
)
_OUR_ERROR: Final = re.compile(r"multilane\.errors\.\w+: ")
_MOST_TEXT: Final = 4_000  # characters
_SPARK_PREFIXES: Final = ("org.", "java.", "py4j.", "pyspark.errors.")


def reason(error: Exception) -> str:
    """The line that states the cause. For a failure in a worker that is the last line of its traceback, which Spark
    puts in the middle of its own."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own_lines = [line for line in lines if _PYTHON_ERROR.match(line) and not line.startswith(_SPARK_PREFIXES)]
    return without_credentials(own_lines[-1] if own_lines else first_cause(error))


def first_cause(error: Exception) -> str:
    """The first line of a JVM error only says that there was an error; the cause follows."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    java = next((line for line in lines[1:] if line.startswith(": ")), "")
    return java.removeprefix(": ") or lines[0]


def in_short(error: BaseException) -> str:
    """An error as a worker reports it. Our own errors are complete sentences and need no class name."""
    text = str(error) if isinstance(error, MultilaneError) else f"{type(error).__name__}: {error}"
    return without_credentials(text[:_MOST_TEXT])


@contextmanager
def plain_errors(what: str) -> Iterator[None]:
    """Replaces Spark's error about a worker, which has both tracebacks, with one sentence."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        raise NoHistory(f"{what} cannot be read: {_OUR_ERROR.sub('', reason(error), count=1)}") from error
