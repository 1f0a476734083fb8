"""The Kafka properties of a consumer that several triggers share.

Thread: none (pure).

Where triggers disagree, the safer value is used and the disagreement is reported. Settings that decide whether they
may share at all are equal here: see `config.sharing_key`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

_SAFER: Final[Mapping[str, Callable[[list[Any]], object]]] = {
    "auto.offset.reset": lambda values: "earliest" if "earliest" in values else values[0],  # skips nothing
    "fetch.buffer.bytes": max,
    "group.protocol": lambda values: "classic" if "classic" in values else next(v for v in values if v != "auto"),
    "heartbeat.interval.ms": min,
    "max.partition.fetch.bytes": max,
    "max.poll.interval.ms": max,
    "session.timeout.ms": max,
}
_ASSIGNORS: Final = frozenset(
    {"group.remote.assignor", "partition.assignment.strategy"}
)  # `range`, if one trigger needs it
_ABSENT: Final = object()


def merged(of_triggers: Mapping[str, Mapping[str, object]]) -> tuple[dict[str, object], list[str]]:
    """The properties for all, and a sentence for each disagreement."""
    properties: dict[str, object] = {}
    differences: list[str] = []
    for name in dict.fromkeys(name for given in of_triggers.values() for name in given):
        values = [given.get(name, _ABSENT) for given in of_triggers.values()]
        known = [value for value in values if value is not _ABSENT]
        properties[name] = _chosen(name, known)
        if len(known) < len(values) or any(value != known[0] for value in known):
            differences += _difference(name, of_triggers, properties[name])
    return properties, differences


def _chosen(name: str, values: list[Any]) -> object:
    if all(value == values[0] for value in values):
        return values[0]
    safer = _SAFER.get(name)
    if safer is not None:
        return safer(values)
    if name in _ASSIGNORS:
        return "range" if "range" in values else values[0]
    return values[0]


def _difference(name: str, of_triggers: Mapping[str, Mapping[str, object]], chosen: object) -> list[str]:
    if name in _ASSIGNORS:
        return []
    given = ", ".join(f"{trigger}: {_shown(properties.get(name))}" for trigger, properties in of_triggers.items())
    return [f"their {name} differs ({given}); {_shown(chosen)} is used"]


def _shown(value: object) -> str:
    return "not set" if value is None else str(value) if isinstance(value, int | float) else repr(value)
