"""Whether rows are still where the source has put them: all of a Kafka partition in one task, in the order of the log.

Thread: application.

Found out from the plan, which names each operation. Those that keep rows where they are, are known here; whatever else
there is may move them, so that only what is known counts. Where there is no plan to look at (Spark Connect) nothing is
known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from multilane.logs import logger

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logger(__name__)

# Each takes the rows of a task in their order, and gives them on in it.
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
_CUTS: Final = frozenset({"minpartitions", "maxrecordsperpartition"})  # one Kafka partition, several tasks


@dataclass(frozen=True, slots=True)
class Step:
    """One operation of a plan."""

    name: str
    inputs: tuple[Step, ...] = ()
    source: str = ""  # the format that is read, where it is known
    options: frozenset[str] = frozenset()  # names, in lower case


def keeps_order(step: Step) -> bool:
    if not step.inputs:
        return step.source in _SOURCES and not step.options & _CUTS
    return len(step.inputs) == 1 and step.name in _NARROW and keeps_order(step.inputs[0])


def plan_of(frame: DataFrame) -> Step | None:
    """The plan as it was written down; None where it cannot be seen."""
    try:
        return _step(frame._jdf.queryExecution().analyzed())  # noqa: SLF001 - Spark has no other way to ask
    except Exception as error:  # noqa: BLE001 - in whatever way it is not there
        log.debug("the plan cannot be seen: %s", error)
        return None


def _step(plan: Any) -> Step:
    name, children = str(plan.getClass().getSimpleName()), plan.children()
    inputs = tuple(_step(children.apply(at)) for at in range(children.size()))
    if inputs:
        return Step(name, inputs)
    if name == "StreamingRelationV2":
        return Step(name, (), str(plan.sourceName()).lower(), _names(plan.extraOptions()))
    if name == "DataSourceV2Relation":
        return Step(name, (), str(plan.table().name()).lower(), _names(plan.options()))
    return Step(name)


def _names(options: Any) -> frozenset[str]:
    return frozenset(str(name).lower() for name in options.keySet())
