"""Finds an assignor by its short name or Java class name, or accepts a custom one.

Thread: none (pure).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, cast

from multilane.client.group.assignors.cooperative import CooperativeStickyAssignor
from multilane.client.group.assignors.ranged import RangeAssignor
from multilane.client.group.assignors.round_robin import RoundRobinAssignor
from multilane.client.group.assignors.sticky import StickyAssignor
from multilane.client.group.assignors.values import Assignor
from multilane.errors import ConfigError, printable

_JAVA_PACKAGE: Final = "org.apache.kafka.clients.consumer."
_BUILT_IN: Final[tuple[Assignor, ...]] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)
_BY_NAME: Final = {assignor.name: assignor for assignor in _BUILT_IN} | {
    _JAVA_PACKAGE + type(assignor).__name__: assignor for assignor in _BUILT_IN
}
_PARTS: Final = {"name": str, "cooperative": bool}
_CALLS: Final = ("assign", "user_data")


def find_assignor(wanted: object) -> Assignor:
    """By name, or a custom object that implements Assignor."""
    if isinstance(wanted, str):
        found = _BY_NAME.get(wanted)
        if found is None:
            known = ", ".join(assignor.name for assignor in _BUILT_IN)
            raise ConfigError(
                f"partition.assignment.strategy: {printable(wanted, 80)!r} is unknown; write one of {known}, "
                "or pass an object that implements Assignor"
            )
        return found
    own = cast("Assignor", wanted)
    missing = [part for part, kind in _PARTS.items() if not isinstance(getattr(wanted, part, None), kind)]
    missing += [call for call in _CALLS if not callable(getattr(wanted, call, None))]
    if missing or not own.name:
        raise ConfigError(
            f"partition.assignment.strategy: {type(wanted).__name__} is not an assignor, it lacks "
            f"{', '.join(missing) or 'a name'}; see multilane.client.group.assignors.Assignor"
        )
    return own


def all_cooperative(assignors: Iterable[Assignor]) -> bool:
    """Whether a member that offers these may keep its partitions while it rebalances: the group may choose any."""
    return all(assignor.cooperative for assignor in assignors)
