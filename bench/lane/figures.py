"""Rows and bars of `bench.lanes`.

Thread: none (pure).

Every figure is compared with two others of the same run: the limit of lanes over latency, and the bare loop's rate.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Final

from bench.lane.sampling import Figures
from bench.lane.scenarios import (
    BATCH,
    COLUMNAR,
    HUNG,
    NO_OP,
    PUBLISHED,
    SINGLE_20,
    SINGLE_200,
    SKEWED,
    THREADS,
    UNIQUE,
    Scenario,
)
from bench.report import Bar, Report

BARE: Final = "bare-loop"
OURS: Final = "ours"
OURS_TWICE: Final = "ours-2-processes"
RIVAL: Final = "parallel-consumer"
SYSTEMS: Final = (BARE, OURS, OURS_TWICE, RIVAL)
LIMIT: Final = "limit"
SEED: Final = "seed-published"

RATE: Final = "rate"
OF_LIMIT: Final = "of_limit"
OF_BARE: Final = "of_bare"
CPU: Final = "cpu"
RSS: Final = "peak_rss"
METRICS: Final = (RATE, OF_LIMIT, OF_BARE, CPU, RSS)

# scenario -> the lowest share of its limit
OF_LIMIT_BARS: Final[Mapping[str, float]] = {
    SINGLE_20.name: 0.90,
    SINGLE_200.name: 0.40,
    COLUMNAR.name: 0.85,
    BATCH.name: 0.80,
    UNIQUE.name: 0.80,
    SKEWED.name: 0.85,
    THREADS.name: 0.88,
}
OF_BARE_BAR: Final = 0.95
NO_OP_BAR: Final = 15.0
AHEAD_BAR: Final = 1.0
HUNG_RSS_BAR: Final = 1.25  # times the same without a hung key; a leak exceeds it within seconds

Found = Mapping[tuple[str, str], Sequence[Figures]]
_MEGABYTE: Final = 1e6


def add_rows(report: Report, scenarios: Sequence[Scenario], found: Found, limits: Mapping[str, float]) -> None:
    """`limits` are records per second by scenario; those of a skewed log come from the log."""
    for scenario in scenarios:
        if scenario.name in limits:
            report.add(LIMIT, scenario.name, RATE, limits[scenario.name], "records/s")
        for system in SYSTEMS:
            if rounds := found.get((scenario.name, system)):
                _add_measured(report, scenario.name, system, rounds)
    for scenario in scenarios:
        for system in (OURS, OURS_TWICE, RIVAL):
            rate = report.find(system, scenario.name, RATE)
            _add_share(report, system, scenario.name, OF_LIMIT, (rate, limits.get(scenario.name)))
            _add_share(report, system, scenario.name, OF_BARE, (rate, bare_rate(report, scenario)))
    add_published(report, scenarios)


def _add_measured(report: Report, scenario: str, system: str, rounds: Sequence[Figures]) -> None:
    report.add(system, scenario, RATE, statistics.median(f.rate for f in rounds), "records/s")
    report.add(system, scenario, CPU, statistics.median(f.cpu for f in rounds), "cores")
    report.add(system, scenario, RSS, max(f.peak_rss_bytes for f in rounds) / _MEGABYTE, "MB")
    report.add(system, scenario, "seconds", statistics.median(f.seconds for f in rounds), "s")
    if len(rounds) > 1:
        report.add(system, scenario, "slowest", min(f.rate for f in rounds), "records/s")
        report.add(system, scenario, "fastest", max(f.rate for f in rounds), "records/s")


def _add_share(
    report: Report, system: str, scenario: str, metric: str, pair: tuple[float | None, float | None]
) -> None:
    part, whole = pair
    if part is not None and whole is not None:
        report.add(system, scenario, metric, part / whole * 100, "%")


def add_published(report: Report, scenarios: Sequence[Scenario]) -> None:
    """The figures of the seed's README, for display only."""
    names = {scenario.name for scenario in scenarios}
    for published in PUBLISHED:
        if published.scenario in names:
            report.add(SEED, published.scenario, RATE, published.rate, "records/s")
            report.add(SEED, published.scenario, CPU, published.cpu, "cores")
            report.add(SEED, published.scenario, RSS, published.mebibytes * 1024**2 / _MEGABYTE, "MB")


def bare_rate(report: Report, scenario: Scenario) -> float | None:
    return None if scenario.bare is None else report.find(BARE, scenario.bare, RATE)


def rival_rate(report: Report, scenario: Scenario) -> float | None:
    return None if scenario.rival is None else report.find(RIVAL, scenario.rival, RATE)


def add_bars(report: Report, scenarios: Sequence[Scenario], limits: Mapping[str, float]) -> None:
    """For a machine with two cores: a scenario that needs more than one core gets both, as parallel-consumer does."""
    for scenario in scenarios:
        name = scenario.name
        ours = report.find(OURS_TWICE if scenario.spreads else OURS, name, RATE)
        if scenario == SINGLE_20:
            report.bar_ratio(f"{name}/bare-loop", ours, bare_rate(report, scenario), OF_BARE_BAR)
        if name in OF_LIMIT_BARS:
            report.bar_ratio(f"{name}/limit", ours, limits.get(name), OF_LIMIT_BARS[name])
        rival = rival_rate(report, scenario)
        report.bar_ratio(f"{name}/parallel-consumer", ours, rival, NO_OP_BAR if scenario == NO_OP else AHEAD_BAR)
    _add_memory_bar(report)


def _add_memory_bar(report: Report) -> None:
    hung, free = report.find(OURS, HUNG.name, RSS), report.find(OURS, NO_OP.name, RSS)
    if hung is not None and free is not None:
        report.bars.append(Bar(f"{HUNG.name}/rss", hung / free, HUNG_RSS_BAR, at_most=True))
