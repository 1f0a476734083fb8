"""Measures lanes on Spark, as a share of the bare loop: `make bench-spark`, or `python -m bench.spark_lanes --help`.

Thread: application.

The load test of `bench.lanes` (15 partitions, a handler that takes 20 ms), with the app on Spark, in both flows. One
broker, one run; the bare loop (the same sleep without Kafka and without Spark), the process engine and Spark in direct
succession, so that a slow minute of the machine affects all.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

if not __package__:  # started as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lane.figures import BARE, OF_BARE, OURS, RATE
from bench.lane.logs import Log
from bench.lane.order import Order, order_of
from bench.lane.sampling import Figures, Span, measure_steady
from bench.lane.scenarios import BATCH, COLUMNAR, LATENCY, SINGLE_20, Scenario
from bench.lanes import WARM_SECONDS, broker
from bench.report import RESULTS, Bar, Report, conclude, load_average, machine_facts
from multilane.java import find_java

CONTINUOUS: Final = "spark-continuous"
BATCHES: Final = "spark-batches"
SYSTEMS: Final = (BARE, OURS, CONTINUOUS, BATCHES)
SCENARIOS: Final = (SINGLE_20, COLUMNAR)
STEADY_SECONDS: Final = 20.0
# flow, scenario -> the lowest share of the bare loop's rate
BARS: Final[Mapping[tuple[str, str], float]] = {
    (CONTINUOUS, SINGLE_20.name): 0.95,
    (CONTINUOUS, COLUMNAR.name): 0.90,
    (BATCHES, SINGLE_20.name): 0.85,
    (BATCHES, COLUMNAR.name): 0.80,
}
METRICS: Final = (RATE, OF_BARE, "cpu", "driver_rss", "jvm_rss", "workers_rss")
_MODULES: Final = {BARE: "bench.lane.bare", OURS: "bench.lane.ours"}
_FLOWS: Final = {CONTINUOUS: "continuous", BATCHES: "batches"}
_PACKAGES: Final = ("multilane", "pyspark", "pyarrow", "numpy", "uvloop")
_MEGABYTE: Final = 1e6


def log_for(scenarios: Sequence[Scenario], seconds: float) -> Log:
    most = max(scenario.most for scenario in scenarios)
    return Log(SINGLE_20.partitions, int(most * (WARM_SECONDS + seconds + 3)))


def command_of(system: str, order: Order) -> list[str]:
    module = _MODULES.get(system, "bench.lane.members")
    flow = [_FLOWS[system]] if system in _FLOWS else []
    return [sys.executable, "-m", module, order.text(), *flow]


def measure(
    log: Log, scenarios: Sequence[Scenario], systems: Sequence[str], rounds: int, span: Span, bootstrap: str
) -> dict[tuple[str, str], list[Figures]]:
    found: dict[tuple[str, str], list[Figures]] = {}
    for turn in range(rounds):
        for scenario in scenarios:
            for system in systems:
                reads = scenario if system != BARE or scenario is not COLUMNAR else BATCH
                order = order_of(reads, log, bootstrap, 0)
                figures = measure_steady(command_of(system, order), span)
                found.setdefault((scenario.name, system), []).append(figures)
                summary = f"{figures.rate:,.0f} records/s, {figures.cpu:.2f} cores"
                print(f"{scenario.name} round {turn + 1} {system}: {summary} (load {load_average()[0]})", flush=True)
    return found


def add_rows(report: Report, found: Mapping[tuple[str, str], Sequence[Figures]]) -> None:
    for (scenario, system), rounds in found.items():
        report.add(system, scenario, RATE, statistics.median(f.rate for f in rounds), "records/s")
        report.add(system, scenario, "cpu", statistics.median(f.cpu for f in rounds), "cores")
        for role in ("driver", "jvm", "workers"):
            peak = max(f.rss_by_role.get(role, 0) for f in rounds)
            if peak:
                report.add(system, scenario, f"{role}_rss", peak / _MEGABYTE, "MB")
    for scenario, system in found:
        bare, rate = report.find(BARE, scenario, RATE), report.find(system, scenario, RATE)
        if system != BARE and bare and rate:
            report.add(system, scenario, OF_BARE, rate / bare, "ratio")


def add_bars(report: Report) -> None:
    for (system, scenario), limit in BARS.items():
        share = report.find(system, scenario, OF_BARE)
        if share is not None:
            report.bars.append(Bar(f"{scenario}/{system}/bare-loop", share, limit))


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.spark_lanes", description="Measure lanes on Spark.")
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--scenario", nargs="+", choices=names, default=names, help="only these scenarios")
    parser.add_argument("--system", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="only these systems")
    parser.add_argument("--seconds", type=float, default=STEADY_SECONDS, help="seconds of steady state per measurement")
    parser.add_argument("--rounds", type=int, default=1, help="measurements of each; the median counts")
    parser.add_argument("--quick", action="store_true", help="smoke test: short, no bars")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the results file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    scenarios = tuple(s for s in SCENARIOS if s.name in options.scenario)
    warm, seconds = (1.0, 2.0) if options.quick else (WARM_SECONDS, options.seconds)
    systems = tuple(s for s in SYSTEMS if s in options.system)
    whole = (scenarios, systems) == (SCENARIOS, SYSTEMS) and not options.quick and seconds >= STEADY_SECONDS
    facts = machine_facts(_PACKAGES, find_java().program)
    facts["load_before"] = load_average()
    notes = {"latency_seconds": LATENCY, "steady_seconds": seconds, "warm_seconds": warm, "rounds": options.rounds}
    report = Report("spark-lanes" if whole else "spark-lanes-partial", facts, notes)
    log = log_for(scenarios, seconds)
    with broker(None, [log]) as bootstrap:
        span = Span(warm, seconds, log.records)
        add_rows(report, measure(log, scenarios, systems, options.rounds, span, bootstrap))
    facts["load_after"] = load_average()
    if not options.quick:
        add_bars(report)
    return conclude(report, METRICS, options.results)


if __name__ == "__main__":
    sys.exit(main())
