"""Where the rows of a key are handled, and in which order: what is added to the plan before the lanes.

Thread: application (the driver's).

One call at a time per key, in order, needs all rows of a key in one task, in their order. They are there already only
if the plan shows rows as a Kafka partition has them, and the key is the record's own. Else they are shuffled by the
key, which loses their order: then the caller has to name the columns that have it. Never runs a job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from multilane.engines.dataframe.lineage import Step, keeps_order, moved_by, plan_of, source_columns
from multilane.errors import ConfigError
from multilane.logs import logger

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logger(__name__)

_KEY: Final = "__multilane_key"
_ORDER: Final = "__multilane_order_{}"
_RECORD_KEY: Final = "key"
_OFFSET: Final = "offset"
_PACED: Final = "max_per_second is shared by a known number of tasks, so the rows are shuffled by key"


@dataclass(frozen=True, slots=True)
class Placed:
    """The rows, with the key's column behind the caller's, and then those that the worker has to sort by."""

    rows: DataFrame
    has_key: bool
    sorts: bool = False
    tasks: int | None = None  # how many there are, where that is known


def placed(
    frame: DataFrame, keys: Sequence[str], order: Sequence[str], tasks: int | None, *, is_paced: bool = False
) -> Placed:
    """`is_paced`: the number of tasks has to be known."""
    if not keys:
        return _without_key(frame, order, tasks, is_paced=is_paced)
    _check_columns(frame, keys, "key")
    _check_columns(frame, order, "order_by")
    moved = _moved(frame, keys) or (_PACED if is_paced else "")
    if moved and not order:
        raise ConfigError(
            f"the order of the rows of a key is not known here: {moved}. Pass order_by=, the columns that have it "
            "(such as a timestamp or an offset), or key=None if rows do not depend on each other"
        )
    columns = [F.col(name) for name in keys]
    has_one = reduce(or_, [column.isNotNull() for column in columns])
    rows = frame.select("*", F.when(has_one, F.xxhash64(*columns)).alias(_KEY))
    if not moved and (not order or (tuple(order) == (_OFFSET,) and _OFFSET in source_columns(frame))):
        return Placed(rows, has_key=True)
    many = (tasks or _tasks(frame)) if moved else None
    if many is not None:
        rows = rows.repartition(many, _spread(frame))
    if not frame.isStreaming:
        return Placed(rows.sortWithinPartitions(*(F.col(name) for name in order)), has_key=True, tasks=many)
    sorted_by = [F.col(name).alias(_ORDER.format(at)) for at, name in enumerate(order)]
    return Placed(rows.select("*", *sorted_by), has_key=True, sorts=True, tasks=many)


def _without_key(frame: DataFrame, order: Sequence[str], tasks: int | None, *, is_paced: bool) -> Placed:
    if order:
        raise ConfigError("order_by orders the rows of a key: pass key= as well, or leave order_by out")
    if tasks is None and is_paced:
        raise ConfigError("max_per_second is shared by all tasks, and their number is not known: pass tasks=")
    return Placed(frame if tasks is None else frame.repartition(tasks), has_key=False, tasks=tasks)


def _check_columns(frame: DataFrame, names: Sequence[str], option: str) -> None:
    known = {name.lower() for name in frame.columns}
    for name in names:
        if name.strip("`").lower() not in known and "." not in name:
            raise ConfigError(
                f"{option}={name!r}: the DataFrame has no such column. Its columns are {', '.join(frame.columns)}"
            )
        try:
            kind = frame.select(F.xxhash64(F.col(name)) if option == "key" else F.col(name)).schema[0].dataType
        except Exception as error:
            raise ConfigError(f"{option}={name!r}: {str(error).splitlines()[0]}") from error
        if isinstance(kind, StructType | ArrayType | MapType):
            raise ConfigError(f"{option}={name!r} is {kind.simpleString()}, which has no order: name a field of it")


def _moved(frame: DataFrame, keys: Sequence[str]) -> str:
    """Why rows of a key may be in several tasks or in another order; empty if they are not."""
    plan: Step | None = plan_of(frame)
    if plan is None:
        return "Spark shows no plan (Spark Connect)"
    if not keeps_order(plan):
        return moved_by(plan)
    if len(keys) > 1 or keys[0] != _RECORD_KEY or _RECORD_KEY not in source_columns(frame):
        return f"{' and '.join(keys)} is not the column `key` as the source delivers it, of one topic"
    return ""


def _spread(frame: DataFrame) -> Column:
    """Rows without a key wait for nobody: they go to any task, and to the same one each time."""
    columns = [F.col(f"`{field.name}`") for field in frame.schema if _is_hashable(field.dataType)]
    unique = len({field.name.lower() for field in frame.schema}) == len(frame.schema)
    return F.coalesce(F.col(_KEY), F.xxhash64(*columns)) if columns and unique else F.col(_KEY)


def _is_hashable(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_hashable(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return _is_hashable(kind.elementType)
    return not isinstance(kind, MapType) and kind.typeName() not in {"variant", "geometry", "geography"}


def _tasks(frame: DataFrame) -> int:
    """Not left to Spark, which would make few tasks of small rows, however long their calls take. With dynamic
    allocation the cores of this moment say nothing."""
    session: Any = frame.sparkSession
    try:
        if session.conf.get("spark.dynamicAllocation.enabled", "false").strip().lower() != "true":
            return int(session.sparkContext.defaultParallelism)
    except Exception as error:  # noqa: BLE001 - Spark Connect raises errors of several types
        log.debug("no Spark context: %s", error)
    return int(session.conf.get("spark.sql.shuffle.partitions"))
