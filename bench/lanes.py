"""Compares lanes with parallel-consumer and a bare event loop: `make bench-lanes`, or `python -m bench.lanes --help`.

Thread: application.

One real broker, one run: writes the logs, then measures one scenario after the other, each system in a process of its
own: the bare loop, ours and parallel-consumer in direct succession, so that a slow minute of the machine affects all.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

if not __package__:  # started as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.java import JVM_OPTIONS, JavaProgram
from bench.lane import parallel_consumer
from bench.lane.figures import BARE, METRICS, OURS, OURS_TWICE, RIVAL, SYSTEMS, add_bars, add_rows
from bench.lane.filling import delete, fill_apart
from bench.lane.logs import KEYS, VALUE_BYTES, Log, drain_seconds, loads, records_lasting
from bench.lane.members import PROCESSES
from bench.lane.order import Order, order_of
from bench.lane.sampling import Figures, Span, measure_drain, measure_steady
from bench.lane.scenarios import LATENCY, SCENARIOS, Scenario
from bench.lane.service import service
from bench.report import RESULTS, Report, conclude, load_average, machine_facts
from multilane.dev.kafka import KafkaCluster
from multilane.java import find_java

PACKAGES: Final = ("aiohttp", "confluent-kafka", "multilane", "numba", "numpy", "pyarrow", "uvloop")
STEADY_SECONDS: Final = 20.0
WARM_SECONDS: Final = 10.0
_SPARE_SECONDS: Final = 3.0
_BROKER_OPTIONS: Final = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@dataclass(frozen=True, slots=True)
class Plan:
    scenarios: tuple[Scenario, ...]
    systems: tuple[str, ...]
    rounds: int
    warm: float
    seconds: float

    @property
    def is_whole(self) -> bool:
        chosen_all = self.scenarios == SCENARIOS and self.systems == SYSTEMS
        return chosen_all and self.seconds >= STEADY_SECONDS and self.warm >= WARM_SECONDS

    def log_of(self, scenario: Scenario) -> Log:
        """Scenarios with the same partitions and keys share a log, long enough for the fastest of them."""
        if scenario.skew:
            records = records_lasting(self.seconds, LATENCY, scenario.skew)
            return Log(scenario.partitions, records, scenario.skew)
        most = max(s.most for s in self.scenarios if (s.partitions, s.skew) == (scenario.partitions, scenario.skew))
        return Log(scenario.partitions, int(most * (self.warm + self.seconds + _SPARE_SECONDS)))

    def logs(self) -> list[Log]:
        return list(dict.fromkeys(self.log_of(scenario) for scenario in self.scenarios))

    def systems_of(self, scenario: Scenario) -> list[str]:
        """The systems without those that are measured in another scenario, or in none."""
        measured_here = {
            BARE: scenario.bare == scenario.name,
            OURS: True,
            OURS_TWICE: scenario.spreads,
            RIVAL: scenario.rival == scenario.name,
        }
        return [system for system in self.systems if measured_here[system]]

    def limits(self) -> dict[str, float]:
        found = {}
        for scenario in self.scenarios:
            if scenario.limit is not None:
                found[scenario.name] = scenario.limit
            elif scenario.skew:
                log = self.log_of(scenario)
                found[scenario.name] = log.records / drain_seconds(loads(log), scenario.lanes, LATENCY)
        return found


def command_of(system: str, order: Order, java: JavaProgram) -> list[str]:
    if system == RIVAL:
        return parallel_consumer.command(java, order)
    if system == OURS_TWICE:
        return [sys.executable, "-m", "bench.lane.members", order.text(), PROCESSES]
    module = "bench.lane.bare" if system == BARE else "bench.lane.ours"
    return [sys.executable, "-m", module, order.text()]


def measure(plan: Plan, scenario: Scenario, command: Sequence[str], reads: bool) -> Figures:
    log = plan.log_of(scenario)
    span = Span(plan.warm, plan.seconds, log.records if reads else None)
    if scenario.drains:
        return measure_drain(command, span, log.records)
    return measure_steady(command, span)


def measure_all(plan: Plan, bootstrap: str, java: JavaProgram) -> dict[tuple[str, str], list[Figures]]:
    found: dict[tuple[str, str], list[Figures]] = {}
    with service(LATENCY) as port:
        for turn in range(plan.rounds):
            for scenario in plan.scenarios:
                for system in plan.systems_of(scenario):
                    order = order_of(scenario, plan.log_of(scenario), bootstrap, port)
                    figures = measure(plan, scenario, command_of(system, order, java), system != BARE)
                    found.setdefault((scenario.name, system), []).append(figures)
                    summary = f"{figures.rate:,.0f} records/s, {figures.cpu:.2f} cores"
                    print(
                        f"{scenario.name} round {turn + 1} {system}: {summary} (load {load_average()[0]})", flush=True
                    )
    return found


@contextmanager
def broker(given: str | None, logs: Sequence[Log]) -> Iterator[str]:
    """A new broker, removed with its data afterwards; or a given one, whose topics are deleted afterwards."""
    if given is not None:
        try:
            _fill(given, logs)
            yield given
        finally:
            delete(given, logs)
        return
    with KafkaCluster(heap="1g", java_options=_BROKER_OPTIONS) as cluster:
        _fill(cluster.bootstrap(), logs)
        yield cluster.bootstrap()


def _fill(bootstrap: str, logs: Sequence[Log]) -> None:
    for log in logs:
        began = time.monotonic()
        fill_apart(bootstrap, log)
        print(f"filled {log.topic} in {time.monotonic() - began:.0f} s", flush=True)
    os.sync()  # else the first measurement shares the machine with pending writes


def plan_of(options: argparse.Namespace) -> Plan:
    scenarios = tuple(s for s in SCENARIOS if s.name in options.scenario)
    systems = tuple(s for s in SYSTEMS if s in options.system)
    if options.quick:
        return Plan(scenarios, systems, 1, 1.0, min(options.seconds, 2.0))
    return Plan(scenarios, systems, options.rounds, options.warm, options.seconds)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.lanes", description="Measure lanes, and compare them.")
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--scenario", nargs="+", choices=names, default=names, help="only these scenarios")
    parser.add_argument("--system", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="only these systems")
    parser.add_argument("--seconds", type=float, default=STEADY_SECONDS, help="seconds of steady state per measurement")
    parser.add_argument("--warm", type=float, default=WARM_SECONDS, help="seconds of warm-up, which do not count")
    parser.add_argument("--rounds", type=int, default=1, help="measurements of each; the median counts")
    parser.add_argument("--quick", action="store_true", help="smoke test: short, one round, no bars")
    parser.add_argument("--bootstrap", help="use this broker instead of starting one (its bench topics are deleted)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the results file")
    return parser.parse_args(arguments)


def notes_of(plan: Plan) -> dict[str, Any]:
    return {
        "parallel_consumer": parallel_consumer.VERSION,
        "java_options": JVM_OPTIONS,
        "latency_seconds": LATENCY,
        "steady_seconds": plan.seconds,
        "warm_seconds": plan.warm,
        "rounds": plan.rounds,
        "keys": KEYS,
        "value_bytes": VALUE_BYTES,
        "logs": [log.topic for log in plan.logs()],
        "seed_published": "from the seed's README: other hardware, an HTTP call and an index; no bar counts on them",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    plan = plan_of(options)
    found_java = find_java()
    java = parallel_consumer.installed(found_java)
    facts = machine_facts(PACKAGES, found_java.program)
    report = Report("lanes" if plan.is_whole else "lanes-partial", facts, notes_of(plan))
    limits = plan.limits()
    with broker(options.bootstrap, plan.logs()) as bootstrap:
        add_rows(report, plan.scenarios, measure_all(plan, bootstrap, java), limits)
    facts["load_after"] = load_average()
    if not options.quick:
        add_bars(report, plan.scenarios, limits)
    return conclude(report, METRICS, options.results)


if __name__ == "__main__":
    sys.exit(main())
