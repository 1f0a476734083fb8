"""Compares consuming with other clients: `make bench-consume`, or `python -m bench.consume --help`.

Thread: application.

One real broker, one run: fills the topics, then measures one system after the other, each in a process of its own, in
several rounds, so that a slow minute of the machine affects all alike. Figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

if not __package__:  # started as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import java, topics
from bench.child import Order
from bench.report import RESULTS, Report, conclude, load_average, machine_facts
from bench.scenarios import JAVA, RATE, SCENARIOS, SYSTEMS, Scenario, add_bars, source_of
from multilane.dev import jars
from multilane.dev.kafka import KafkaCluster
from multilane.java import find_java

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGES: Final = ("aiokafka", "confluent-kafka", "kafka-python", "multilane", "numba", "numpy", "pyarrow", "cramjam")
PACKAGES_OF_RIVALS: Final = ("crc32c", "lz4")  # without them kafka-python has slow checksums and cannot read lz4
QUICK_RECORDS: Final = 40_000
_WARM_SHARE: Final = 5
_CHILD_SECONDS: Final = 600
# The JVM options of Kafka's start scripts, not the quick ones of the tests.
_BROKER_OPTIONS: Final = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One measurement: the rate and the resources of the measured pass (for Java, of the whole process)."""

    rate: float
    cpu_us_per_record: float
    peak_rss_bytes: int
    content_bytes_per_record: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    scenarios: tuple[Scenario, ...]
    systems: tuple[str, ...]
    rounds: int | None = None  # None: the scenario's own number

    def fillings(self) -> list[topics.Filling]:
        return list(dict.fromkeys(s.filling(system) for s in self.scenarios for system in self.systems))


def measure_python(system: str, bootstrap: str, filling: topics.Filling, passes: int) -> Outcome:
    source = source_of(system, bootstrap, filling.topic)
    busy = system.endswith("-busy")
    warm = filling.records // _WARM_SHARE
    order = Order(system.removesuffix("-busy"), asdict(source), filling.records, warm, busy, passes)
    arguments = [sys.executable, "-m", "bench.child", json.dumps(asdict(order))]
    reported = subprocess.run(
        arguments, stdout=subprocess.PIPE, text=True, cwd=ROOT, timeout=_CHILD_SECONDS, check=True
    )
    return outcome_of(json.loads(reported.stdout), filling, passes)


def outcome_of(reported: dict[str, Any], filling: topics.Filling, passes: int = 1) -> Outcome:
    """Rejects figures of a reader that did not read every record exactly once in each pass."""
    each = filling.per_partition
    expected = passes * topics.PARTITIONS * (each * (each - 1) // 2)
    if reported["records"] != passes * filling.records or reported["offset_sum"] != expected:
        raise RuntimeError(
            f"{filling.topic}: read {reported['records']} records, offsets add up to {reported['offset_sum']}"
        )
    return Outcome(
        rate=reported["records"] / reported["seconds"],
        cpu_us_per_record=reported["cpu_seconds"] / reported["records"] * 1e6,
        peak_rss_bytes=reported["peak_rss_bytes"],
        content_bytes_per_record=reported["content_bytes"] / reported["records"],
    )


def measure_java(system: str, bootstrap: str, filling: topics.Filling, program: java.JavaProgram) -> Outcome:
    source = source_of(system, bootstrap, filling.topic)
    protocol = system.removeprefix("java-").removesuffix("-tuned")
    rate, usage = java.run(program, source, filling.records, protocol)
    cpu = usage.ru_utime + usage.ru_stime
    return Outcome(rate, cpu / filling.records * 1e6, usage.ru_maxrss * 1024, None)


def measure_all(plan: Plan, bootstrap: str, program: java.JavaProgram) -> dict[tuple[str, str], list[Outcome]]:
    outcomes: dict[tuple[str, str], list[Outcome]] = {}
    for scenario in plan.scenarios:
        rounds = plan.rounds or scenario.rounds
        for turn in range(rounds):
            for system in rotated(plan.systems, turn, rounds):
                filling = scenario.filling(system)
                if system in JAVA:
                    outcome = measure_java(system, bootstrap, filling, program)
                else:
                    outcome = measure_python(system, bootstrap, filling, scenario.passes_of(system))
                outcomes.setdefault((scenario.name, system), []).append(outcome)
                load = load_average()[0]
                print(
                    f"{scenario.name} round {turn + 1} {system}: {outcome.rate:,.0f} records/s (load {load})",
                    flush=True,
                )
    return outcomes


def rotated(systems: tuple[str, ...], turn: int, rounds: int) -> tuple[str, ...]:
    """The systems in a rotated order: the first one in a round is affected by the system before it."""
    first = turn * len(systems) // rounds
    return systems[first:] + systems[:first]


def add_rows(report: Report, outcomes: dict[tuple[str, str], list[Outcome]]) -> None:
    for (scenario, system), found in outcomes.items():
        rates = [outcome.rate for outcome in found]
        report.add(system, scenario, RATE, statistics.median(rates), "records/s")
        report.add(system, scenario, "slowest", min(rates), "records/s")
        report.add(system, scenario, "fastest", max(rates), "records/s")
        report.add(system, scenario, "cpu", statistics.median(o.cpu_us_per_record for o in found), "us/record")
        report.add(system, scenario, "peak_rss", max(o.peak_rss_bytes for o in found) / 1e6, "MB")


def check_agreement(outcomes: dict[tuple[str, str], list[Outcome]], plan: Plan) -> None:
    """Checks that clients of the same topic have read the same number of bytes in keys and values."""
    seen: dict[str, tuple[str, float]] = {}
    for scenario in plan.scenarios:
        for system in plan.systems:
            topic = scenario.filling(system).topic
            for outcome in outcomes[scenario.name, system]:
                if outcome.content_bytes_per_record is None:
                    continue
                first = seen.setdefault(topic, (system, outcome.content_bytes_per_record))
                if first[1] != outcome.content_bytes_per_record:
                    raise RuntimeError(f"{topic}: {system} and {first[0]} read different numbers of bytes")


@contextmanager
def broker(given: str | None, fillings: Sequence[topics.Filling]) -> Iterator[str]:
    """A new broker, removed with its data afterwards; or a given one, whose topics are deleted afterwards."""
    if given is not None:
        try:
            _fill(given, fillings)
            yield given
        finally:
            topics.delete(given, list(fillings))
        return
    with KafkaCluster(heap="1g", java_options=_BROKER_OPTIONS) as cluster:
        _fill(cluster.bootstrap(), fillings)
        yield cluster.bootstrap()


def _fill(bootstrap: str, fillings: Sequence[topics.Filling]) -> None:
    for filling in fillings:
        topics.fill_apart(bootstrap, filling)
        print(f"filled {filling.topic}", flush=True)
    os.sync()  # else the first measurement shares the machine with pending writes


def plan_of(options: argparse.Namespace) -> Plan:
    scenarios = tuple(s for s in SCENARIOS if s.name in options.scenario)
    if options.quick:
        scenarios = tuple(s.shrunk(QUICK_RECORDS) for s in scenarios)
    systems = tuple(s for s in SYSTEMS if s in options.system)
    if options.quick:  # the second half of so few records ends before Java's tool has printed two lines
        systems = tuple(s for s in systems if s not in JAVA)
    return Plan(scenarios, systems, 1 if options.quick else options.rounds)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.consume", description="Compare Kafka clients at consuming.")
    names = [s.name for s in SCENARIOS]
    parser.add_argument("--scenario", nargs="+", choices=names, default=names, help="only these topics")
    parser.add_argument("--system", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="only these clients")
    parser.add_argument("--rounds", type=int, help="measurements of each; the median counts (default: 5; 1 KB: 7)")
    parser.add_argument("--quick", action="store_true", help="smoke test: few records, one round, no Java, no bars")
    parser.add_argument("--bootstrap", help="use this broker instead of starting one (its bench topics are deleted)")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the results file")
    return parser.parse_args(arguments)


def check_packages() -> None:
    missing = [name for name, version in _versions(PACKAGES_OF_RIVALS).items() if version is None]
    if missing:
        raise SystemExit(f"error: the comparison also needs these packages: {', '.join(missing)}")


def _versions(names: Sequence[str]) -> dict[str, str | None]:
    return dict(machine_facts(names)["packages"])


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    check_packages()
    plan = plan_of(options)
    found = find_java()
    program = java.JavaProgram(found.program, jars.installed(found, progress=jars.silent).classpath)
    facts = machine_facts((*PACKAGES, *PACKAGES_OF_RIVALS), found.program)
    whole = plan.systems == SYSTEMS and plan.scenarios == SCENARIOS and not options.quick
    report = Report("consume" if whole else "consume-partial", facts)
    rounds = {s.name: plan.rounds or s.rounds for s in plan.scenarios}
    report.notes = {"rounds": rounds, "partitions": topics.PARTITIONS, "batch_bytes": topics.BATCH_BYTES}
    report.notes["fetch"] = {s: asdict(source_of(s, "-", "-")) for s in plan.systems}
    with broker(options.bootstrap, plan.fillings()) as bootstrap:
        outcomes = measure_all(plan, bootstrap, program)
    check_agreement(outcomes, plan)
    add_rows(report, outcomes)
    facts["load_after"] = load_average()
    if not options.quick:
        add_bars(report, plan.scenarios)
    return conclude(report, (RATE, "slowest", "fastest", "cpu", "peak_rss"), options.results)


if __name__ == "__main__":
    sys.exit(main())
