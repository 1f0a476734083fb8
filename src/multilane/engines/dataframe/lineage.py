"""Checks that rows are still as the source placed them: a whole Kafka partition in one task, in the order of the log.

Thread: application.

Reads the logical plan, which names each operation. Only operations that are known to keep rows in place count; any
other may move them. Without access to a plan (Spark Connect) nothing is known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from multilane.logs import logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logger(__name__)

# Each keeps the rows of a task in their order.
_NARROW: Final = frozenset(
    {
        "Project",
        "Filter",
        "SubqueryAlias",
        "EventTimeWatermark",
        "MapInArrow",
        "MapInPandas",
    }
)
_SOURCES: Final = frozenset({"multilane", "kafka"})
_CUTS: Final = frozenset({"minpartitions", "maxrecordsperpartition"})  # they split a Kafka partition over several tasks


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a plan."""

    name: str
    inputs: tuple[Step, ...] = ()
    source: str = ""  # the format, where it is known
    options: frozenset[str] = frozenset()  # names, in lower case


def keeps_order(step: Step) -> bool:
    if not step.inputs:
        return step.source in _SOURCES and not step.options & _CUTS
    return len(step.inputs) == 1 and step.name in _NARROW and keeps_order(step.inputs[0])


def moved_by(step: Step) -> str:
    """Why rows may not be where the source has placed them, for people."""
    if not step.inputs:
        if step.source not in _SOURCES:
            return f"its rows do not come straight from a topic, but from {step.source or step.name}"
        return f"the source splits Kafka's partitions ({', '.join(sorted(step.options & _CUTS))})"
    if step.name in _NARROW and len(step.inputs) == 1:
        return moved_by(step.inputs[0])
    return f"{step.name} may have moved rows"


def source_columns(frame: DataFrame) -> frozenset[str]:
    """The columns of records of one topic that are as the source delivers them, under their own names. Only for a plan
    that keeps its order. Of several topics none: rows with the same key may be in several tasks."""
    try:
        plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - Spark has no public API for it
        source = plan
        while source.children().size():
            source = source.children().apply(0)
        is_stream = source.getClass().getSimpleName() == "StreamingRelationV2"
        topic = (source.extraOptions() if is_stream else source.options()).get("subscribe")
        unchanged = _attributes(plan.output()) & _attributes(source.output())
    except Exception as error:  # noqa: BLE001 - many types of errors mean that it is not accessible
        log.debug("cannot read the columns of the plan: %s", error)
        return frozenset()
    return frozenset(name for name, _ in unchanged) if topic is not None and "," not in str(topic) else frozenset()


def _attributes(output: Any) -> set[tuple[str, int]]:
    columns = (output.apply(at) for at in range(output.size()))
    return {(str(column.name()), int(column.exprId().id())) for column in columns}


def plan_of(frame: DataFrame) -> Step | None:
    """The analyzed plan; None if it is not accessible."""
    try:
        return _step(frame._jdf.queryExecution().analyzed())  # noqa: SLF001 - Spark has no public API for it
    except Exception as error:  # noqa: BLE001 - many types of errors mean that it is not accessible
        log.debug("cannot read the plan: %s", error)
        return None


def _step(plan: Any) -> Step:
    name, children = str(plan.getClass().getSimpleName()), plan.children()
    inputs = tuple(_step(children.apply(index)) for index in range(children.size()))
    if inputs:
        return Step(name, inputs)
    if name == "StreamingRelationV2":
        return Step(name, (), str(plan.sourceName()).lower(), _names(plan.extraOptions()))
    if name == "DataSourceV2Relation":
        return Step(name, (), str(plan.table().name()).lower(), _names(plan.options()))
    return Step(name)


def _names(options: Any) -> frozenset[str]:
    return frozenset(str(name).lower() for name in options.keySet())
