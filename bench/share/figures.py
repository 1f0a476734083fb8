"""The measurements, rows and bars of `bench.sharing`, and the table of its page.

Thread: none (pure).

A row is the median of its rounds. Bars compare medians; CPU and memory of one consumer are those of the same app with
one trigger.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final, TypeAlias

from bench.report import Bar, Report
from bench.share.measuring import FlatOut, Resources
from bench.share.order import AIOKAFKA, BATCH, COLUMNS, CONFLUENT, SEPARATE, SHARED, SINGLE, SYSTEMS

TRIGGERS: Final = 31
SEED_THREADS: Final = 775  # 31 triggers of the seed, at 25 threads each
ONE: Final = "one"  # an app with one trigger

RESOURCES: Final = "resources"
HUNG: Final = "single-one-hangs"
UNHUNG: Final = "single-30"  # the others of those, without it


@dataclass(frozen=True, slots=True)
class Measurement:
    """Of one system in one scenario."""

    scenario: str
    system: str
    shape: str = SINGLE
    triggers: int = TRIGGERS
    hangs: bool = False

    @property
    def row_system(self) -> str:
        return ONE if self.triggers == 1 else self.system


MEASUREMENTS: Final = (
    *(Measurement(RESOURCES, system) for system in SYSTEMS),
    Measurement(RESOURCES, SHARED, triggers=1),
    Measurement(SINGLE, SHARED),
    Measurement(SINGLE, CONFLUENT[1]),
    Measurement(BATCH, SHARED, BATCH),
    Measurement(SINGLE, CONFLUENT[0]),
    Measurement(COLUMNS, SHARED, COLUMNS),
    Measurement(SINGLE, SEPARATE),
    Measurement(UNHUNG, SHARED, triggers=TRIGGERS - 1),
    Measurement(HUNG, SHARED, triggers=TRIGGERS - 1, hangs=True),
    Measurement(BATCH, SEPARATE, BATCH),
    Measurement(COLUMNS, SEPARATE, COLUMNS),
    Measurement(SINGLE, AIOKAFKA),
)

Figures: TypeAlias = Resources | FlatOut
_MB: Final = 1e6
UNITS: Final[dict[str, tuple[str, float]]] = {
    "threads": ("threads", 1.0),
    "network_threads": ("threads", 1.0),
    "connections": ("per broker", 1.0),
    "resident_bytes": ("MB", 1 / _MB),
    "idle_cpu": ("% of a core", 100.0),
    "load_cpu": ("% of a core", 100.0),
    "load_rate": ("deliveries/s", 1.0),
    "rate": ("deliveries/s", 1.0),
    "cpu": ("% of a core", 100.0),
    "start": ("s", 1.0),
    "stop": ("s", 1.0),
}


def add_rows(report: Report, found: Mapping[Measurement, Sequence[Figures]]) -> None:
    for measurement, rounds in found.items():
        told = [asdict(figures) for figures in rounds]
        for metric, (unit, scale) in UNITS.items():
            if metric in told[0]:
                value = statistics.median(one[metric] for one in told) * scale
                report.add(measurement.row_system, measurement.scenario, metric, value, unit)


def add_bars(report: Report) -> None:
    """Adds the bars for which every compared figure was measured."""
    _add_resource_bars(report)
    best = report.best(CONFLUENT, SINGLE, "rate")
    report.bar_ratio("single:shared/confluent", report.find(SHARED, SINGLE, "rate"), best, 1.2)
    report.bar_ratio("batch:shared/confluent", report.find(SHARED, BATCH, "rate"), best, 5.0)
    report.bar_ratio("columns:shared/confluent", report.find(SHARED, COLUMNS, "rate"), best, 5.0)
    hung, unhung = report.find(SHARED, HUNG, "rate"), report.find(SHARED, UNHUNG, "rate")
    report.bar_ratio("hung:others with/without", hung, unhung, 0.95)
    report.bar_ratio("single:separate/confluent", report.find(SEPARATE, SINGLE, "rate"), best, 1.0)


def _add_resource_bars(report: Report) -> None:
    def figure(system: str, metric: str) -> float | None:
        return report.find(system, RESOURCES, metric)

    def at_most(name: str, value: float | None, limit: float | None) -> None:
        if value is not None and limit is not None:
            report.bars.append(Bar(name, value, limit, at_most=True))

    threads, memory, alone = figure(SHARED, "threads"), figure(SHARED, "resident_bytes"), figure(ONE, "resident_bytes")
    at_most("threads:shared", threads, 6)
    at_most("threads:shared/seed", None if threads is None else threads / SEED_THREADS, 0.03)
    at_most("connections:shared", figure(SHARED, "connections"), 3)
    if memory is not None and alone is not None:
        at_most("memory:shared, MB for each added trigger", (memory - alone) / (TRIGGERS - 1), 1)
    idle, one = figure(SHARED, "idle_cpu"), figure(ONE, "idle_cpu")
    at_most("idle cpu:shared/one consumer", idle / one if idle is not None and one else None, 1.1)
    theirs = [cpu for system in CONFLUENT if (cpu := figure(system, "load_cpu")) is not None]
    ours = figure(SHARED, "load_cpu")
    if ours is not None and len(theirs) == len(CONFLUENT):
        at_most("cpu at 20,000/s:shared/confluent", ours / min(theirs), 0.7)
    at_most("network threads:separate", figure(SEPARATE, "network_threads"), 1)
    at_most("stop:separate", figure(SEPARATE, "stop"), 3)


# --- the page --------------------------------------------------------------------------------------------------------

_COLUMNS: Final = (
    ("threads", RESOURCES, "threads"),
    ("connections", RESOURCES, "connections"),
    ("MB", RESOURCES, "resident_bytes"),
    ("idle CPU", RESOURCES, "idle_cpu"),
    ("CPU at 20,000/s", RESOURCES, "load_cpu"),
    ("start (s)", RESOURCES, "start"),
    ("stop (s)", RESOURCES, "stop"),
    ("single /s", SINGLE, "rate"),
    ("batch /s", BATCH, "rate"),
    ("columns /s", COLUMNS, "rate"),
)


def page_table(report: Report) -> str:
    """For bench/README.md: the systems, and the bars."""
    heads = ["system", *(head for head, _, _ in _COLUMNS)]
    lines = [heads, ["---"] * len(heads)]
    for system in (SHARED, SEPARATE, ONE, *CONFLUENT, AIOKAFKA):
        cells = [(metric, report.find(system, scenario, metric)) for _, scenario, metric in _COLUMNS]
        lines.append([system, *(_cell(metric, value) for metric, value in cells)])
    bars = [["bar", "value", "limit", ""], ["---"] * 4]
    bars += [[b.name, f"{b.value:.2f}", f"{b.limit:g}", "holds" if b.holds else "**falls short**"] for b in report.bars]
    return _rows(lines) + "\n" + _rows(bars)


def _cell(metric: str, value: float | None) -> str:
    if value is None:
        return "-"
    if metric.endswith("_cpu"):
        return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %"
    return f"{value:.2f}" if metric in ("start", "stop") else f"{value:,.0f}"


def _rows(lines: Sequence[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
