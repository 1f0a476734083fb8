"""`multilane.spark.lanes`: a function on the rows of any DataFrame. The composition root of the driver.

Thread: application (the driver's).

Checks everything that can be checked before Spark starts a task. Never runs a job.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack

from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from multilane.config.app.units import NotAUnit, parse_duration
from multilane.engines.dataframe.rows.arguments import needed_columns
from multilane.engines.dataframe.rows.function import UNSAID, RowFunction, pack, read_function
from multilane.engines.dataframe.rows.placement import placed
from multilane.engines.dataframe.rows.row_lanes import LaneSettings
from multilane.engines.dataframe.rows.row_store import ADDED
from multilane.engines.dataframe.rows.worker import RowSpec, serve
from multilane.engines.dataframe.task_reports import reports_of
from multilane.errors import ConfigError
from multilane.listeners.signature import ListenerKind
from multilane.logs import logger
from multilane.spark.session import is_speculating

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logger(__name__)

_BATCH: Final = 100
_BREAKERS: Final = ("off", "pause", "stop")


class LaneOptions(TypedDict, total=False):
    """The options of `lanes`. Times are seconds, or texts such as `500ms`."""

    key: str | Sequence[str] | None  # one call at a time for rows with the same (default: rows are independent)
    order_by: str | Sequence[str] | None  # the order of the rows of a key (default: that of Kafka, where it is intact)
    lanes: int  # concurrent calls of each task (default: 20)
    tasks: int | None  # of the shuffle (default: with a key, the cluster's cores)
    returns: Any  # the type of a result (default: the function's annotation)
    batch_size: int  # rows of a call, for a function that takes several (default: 100)
    retries: int  # calls after the first one, for a row whose call has failed (default: 0)
    backoff: float | str  # before the first retry; doubles, up to a minute (default: 1s)
    timeout: float | str  # of one call (default: 30s)
    breaker: str  # if most calls fail alike: off, pause or stop (default: off)
    max_per_second: float | None  # calls, of all tasks together (default: no limit)


def lanes(frame: DataFrame, function: Callable[..., Any], **options: Unpack[LaneOptions]) -> DataFrame:
    """Call a function for each row of a batch or streaming DataFrame, on lanes in Spark's workers: many calls at once,
    but one at a time, and in order, for rows with the same key. The result has all columns of the rows, and `result`
    (what the function returned), `outcome` (done or failed), `error` and `attempts`.

    The function takes a row (`pyspark.sql.Row`, a dict, or a pydantic model or dataclass made of the columns), a list
    of them, or a `pyarrow.RecordBatch`; it may be `async`. Every action on a batch DataFrame calls it again: write the
    result, or persist it."""
    _check_names(options)
    found, returns = read_function(function, options.get("returns", UNSAID))
    _check_frame(frame, found)
    settings = _settings(found, options)
    keys, order, tasks = _names(options.get("key")), _names(options.get("order_by")), options.get("tasks")
    rows = placed(frame, keys, order, tasks, is_paced=settings.max_per_second is not None)
    reports = reports_of(frame)
    spec = RowSpec(
        pack(found),
        found.name,
        returns,
        replace(settings, tasks=rows.tasks or 0),
        columns=len(frame.columns),
        has_key=rows.has_key,
        sorts=rows.sorts,
        log_level=log.getEffectiveLevel(),
        reports=None if reports is None else reports.accumulator,
    )
    result, outcome, error, attempts = ADDED
    added = [
        StructField(result, returns),
        StructField(outcome, StringType(), nullable=False),
        StructField(error, StringType()),
        StructField(attempts, IntegerType(), nullable=False),
    ]
    return rows.rows.mapInArrow(partial(serve, spec), StructType([*frame.schema, *added]))


def _check_names(options: LaneOptions) -> None:
    unknown = sorted(options.keys() - LaneOptions.__annotations__.keys())
    if unknown:
        raise TypeError(f"lanes() has no option {unknown[0]!r}. Options: {', '.join(LaneOptions.__annotations__)}")


def _names(given: str | Sequence[str] | None) -> Sequence[str]:
    names = () if given is None else (given,) if isinstance(given, str) else given
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"{given!r}: pass names of columns; for an expression, add a column with it first")
    return tuple(names)


def _check_frame(frame: DataFrame, function: RowFunction) -> None:
    columns = frame.columns
    taken = [name for name in columns if name.lower() in ADDED]
    if taken:
        raise ConfigError(
            f"the DataFrame has a column {taken[0]} already: lanes adds {', '.join(ADDED)}. Rename it, or drop it: "
            f"withColumnRenamed({taken[0]!r}, ...)"
        )
    missing = [name for name in needed_columns(function.argument) if name not in columns]
    if missing:
        raise ConfigError(
            f"{function} takes {getattr(function.argument, '__name__', function.argument)}, which needs a column "
            f"{missing[0]!r}. The DataFrame has {', '.join(columns)}"
        )
    if is_speculating(frame.sparkSession):
        raise ConfigError("spark.speculation is on: a second copy of a task would handle the same rows. Disable it")


def _settings(function: RowFunction, options: LaneOptions) -> LaneSettings:
    is_single = function.kind is ListenerKind.SINGLE
    if is_single and "batch_size" in options:
        raise ConfigError(f"batch_size: {function} takes one row; annotate its parameter with list[...] for several")
    known = {field.name for field in fields(LaneSettings)} - {"tasks"}
    given: dict[str, Any] = {name: value for name, value in options.items() if name in known}
    for name in ("backoff", "timeout"):
        if name in given:
            given[name] = _seconds(name, given[name])
    if not is_single:
        given.setdefault("batch_size", _BATCH)
    _check_whole("lanes", given.get("lanes", 1), 1)
    _check_whole("tasks", 1 if options.get("tasks") is None else options["tasks"], 1)
    _check_whole("retries", given.get("retries", 0), 0)
    _check_whole("batch_size", given.get("batch_size", 1), 1 if is_single else 2)
    if given.get("timeout") == 0:
        raise ConfigError("timeout=0: pass how long a call may take")
    pace = given.get("max_per_second")
    if pace is not None and (not isinstance(pace, int | float) or not 0 < pace < float("inf")):
        raise ConfigError(f"max_per_second={pace!r}: pass a number above 0")
    if given.get("breaker", "off") not in _BREAKERS:
        raise ConfigError(f"breaker={given['breaker']!r}: one of {', '.join(_BREAKERS)}")
    return LaneSettings(**given)


def _check_whole(name: str, value: object, lowest: int) -> None:
    if not isinstance(value, int) or value < lowest:
        raise ConfigError(f"{name}={value!r}: pass a whole number, {lowest} or more")


def _seconds(name: str, value: float | str) -> float:
    try:
        seconds = parse_duration(value) if isinstance(value, str) else float(value)
    except (NotAUnit, TypeError, ValueError) as error:
        raise ConfigError(f"{name}={value!r}: {error}. Pass seconds, or a text such as '500ms' or '2m'") from None
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"{name}={value!r}: pass seconds, 0 or more")
    return seconds
