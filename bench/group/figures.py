"""The scenarios, rows and bars of `bench.groups`.

Thread: none (pure).

Every scenario is a list of systems; `bench.groups` interleaves their rounds. A row is the median of its rounds; if
rounds differ by intent or by noise, the smallest and the largest are rows too.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, TypeAlias

from bench.group.crowd import Crowded
from bench.group.pauses import Pauses
from bench.group.startup import Startup
from bench.group.systems import (
    AIOKAFKA,
    CONFLUENT,
    CONFLUENT_CLASSIC,
    JAVA,
    JAVA_CLASSIC,
    OURS,
    OURS_CLASSIC,
    PAIRS,
    System,
)
from bench.report import Bar, Report

OWN_TOPICS: Final = "31-groups-own-topics"
ONE_TOPIC: Final = "31-groups-one-topic"
THOUSAND: Final = "1000-idle"
STARTUP: Final = "first-record"
REBALANCE: Final = "rebalance"

Figures: TypeAlias = Crowded | Startup | Pauses
Found: TypeAlias = Mapping[tuple[str, str], Sequence[Figures]]


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    systems: tuple[System, ...]
    rounds: int


_CROWD: Final = (OURS, OURS_CLASSIC, CONFLUENT_CLASSIC, AIOKAFKA)
SCENARIOS: Final = (
    Scenario(OWN_TOPICS, _CROWD, 2),
    Scenario(ONE_TOPIC, _CROWD, 2),
    Scenario(THOUSAND, (OURS,), 1),
    Scenario(STARTUP, (OURS, JAVA, CONFLUENT, OURS_CLASSIC, JAVA_CLASSIC, CONFLUENT_CLASSIC, AIOKAFKA), 5),
    Scenario(REBALANCE, (OURS, JAVA, OURS_CLASSIC, JAVA_CLASSIC, AIOKAFKA), 5),
)

_MB: Final = 1e6
# metric -> (unit, factor from the measured figure)
UNITS: Final[dict[str, tuple[str, float]]] = {
    "threads": ("threads", 1.0),
    "network_threads": ("threads", 1.0),
    "connections": ("per broker", 1.0),
    "above_imports": ("MB", 1 / _MB),
    "above_one": ("MB", 1 / _MB),
    "idle_cpu": ("% of a core", 100.0),
    "load_cpu": ("% of a core", 100.0),
    "load_rate": ("records/s", 1.0),
    **dict.fromkeys(
        ("cold", "warm", "cold_with_constructor", "warm_with_constructor", "from_process_start"), ("ms", 1_000.0)
    ),
    **dict.fromkeys(("kept_at_join", "moved_at_join", "kept_at_leave", "moved_at_leave", "steady"), ("ms", 1_000.0)),
}
_SPREAD: Final = (STARTUP, REBALANCE)
MEMORY_LIMIT: Final = 120.0
CPU_LIMIT: Final = 25.0
CONNECTION_LIMIT: Final = 3


def add_rows(report: Report, found: Found) -> None:
    for (scenario, system), rounds in found.items():
        for metric, (unit, scale) in UNITS.items():
            values = _values(rounds, metric, scale)
            if not values:
                continue
            report.add(system, scenario, metric, statistics.median(values), unit)
            if scenario in _SPREAD:
                report.add(system, scenario, f"{metric}_least", min(values), unit)
                report.add(system, scenario, f"{metric}_most", max(values), unit)


def _values(rounds: Iterable[Figures], metric: str, scale: float) -> list[float]:
    told: list[dict[str, Any]] = [asdict(figures) for figures in rounds]
    return [one[metric] * scale for one in told if one.get(metric) is not None]


def add_bars(report: Report) -> None:
    """Adds the bars for which every compared figure was measured."""
    for scenario in (OWN_TOPICS, ONE_TOPIC):
        for system in (OURS, OURS_CLASSIC):
            _at_most(report, system, scenario, "network_threads", 1)
            _at_most(report, system, scenario, "connections", CONNECTION_LIMIT)
    _at_most(report, OURS, THOUSAND, "above_one", MEMORY_LIMIT)
    _at_most(report, OURS, THOUSAND, "idle_cpu", CPU_LIMIT)
    for ours, java in PAIRS:
        for metric in ("cold", "warm"):
            _no_longer(report, (ours, java), STARTUP, metric)
        for metric in ("kept_at_join", "moved_at_join", "kept_at_leave", "moved_at_leave"):
            _no_longer(report, (ours, java), REBALANCE, metric)


def _at_most(report: Report, system: System, scenario: str, metric: str, limit: float) -> None:
    value = report.find(system.name, scenario, metric)
    if value is not None:
        report.bars.append(Bar(f"{metric}:{system.name}:{scenario}", value, limit, at_most=True))


def _no_longer(report: Report, pair: tuple[System, System], scenario: str, metric: str) -> None:
    ours, theirs = (report.find(system.name, scenario, metric) for system in pair)
    if ours is not None and theirs is not None:
        name = f"{metric}:{pair[0].name}/{pair[1].name}"
        report.bars.append(Bar(name, ours / theirs, 1.0, at_most=True))


def tables(report: Report) -> str:
    """A table for each kind of scenario: their columns have nothing in common."""
    parts = []
    for names in ((OWN_TOPICS, ONE_TOPIC, THOUSAND), (STARTUP,), (REBALANCE,)):
        part = Report(report.name, report.facts, rows=[row for row in report.rows if row.scenario in names])
        if part.rows:
            metrics = dict.fromkeys(row.metric for row in part.rows)
            parts.append(part.table([m for m in metrics if not m.endswith(("_least", "_most"))]))
    return "\n\n".join(parts)
