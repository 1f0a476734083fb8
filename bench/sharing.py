"""Compares many triggers on one topic: `make bench-sharing`, or `python -m bench.sharing --help`.

Thread: application.

One real broker, one run: 31 triggers of one app that share a consumer, the same with a group each, and as many
consumers of other clients. Every measurement has a process and groups of its own; rounds are interleaved; medians
count.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

if not __package__:  # started as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.group.traffic import Order as Traffic
from bench.group.traffic import traffic
from bench.lane.filling import fill_apart
from bench.lane.logs import KEYS, VALUE_BYTES, Log
from bench.report import RESULTS, Bar, Report, Row, load_average, machine_facts
from bench.share.figures import (
    MEASUREMENTS,
    RESOURCES,
    TRIGGERS,
    Figures,
    Measurement,
    add_bars,
    add_rows,
    page_table,
)
from bench.share.measuring import Times, measure_flat_out, measure_resources
from bench.share.order import WINDOW, Order, new_group
from multilane.dev.kafka import KafkaCluster

PACKAGES: Final = ("aiokafka", "confluent-kafka", "multilane", "numba", "numpy", "pyarrow", "uvloop")
PARTITIONS: Final = 6
DELIVERED_RATE: Final = 20_000
RECORDS: Final = 12_000_000
ROUNDS: Final = 3
RESOURCE_ROUNDS: Final = 2
PAGE: Final = Path(__file__).parent / "README.md"
BEGIN: Final = "<!-- sharing: python -m bench.sharing --page -->\n"
END: Final = "<!-- end of sharing -->\n"
_TIMES: Final = Times(settle=8.0, idle=10.0, load=10.0, warm=3.0, flat=8.0)
_QUICK: Final = Times(settle=1.0, idle=1.0, load=1.0, warm=1.0, flat=1.5)
_QUICK_RECORDS: Final = 3_000_000
_SEED_RATE: Final = 2_000
_SEED_SECONDS: Final = 1.0
_BROKER_OPTIONS: Final = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


@dataclass(frozen=True, slots=True)
class Plan:
    measurements: tuple[Measurement, ...]
    rounds: int
    times: Times
    log: Log

    @property
    def is_whole(self) -> bool:
        return self.measurements == MEASUREMENTS and self.times == _TIMES and self.rounds >= ROUNDS

    def rounds_of(self, measurement: Measurement) -> int:
        return min(self.rounds, RESOURCE_ROUNDS) if measurement.scenario == RESOURCES else self.rounds


def plan_of(options: argparse.Namespace) -> Plan:
    chosen = tuple(m for m in MEASUREMENTS if m.scenario in options.scenario and m.row_system in options.system)
    if not chosen:
        raise SystemExit("error: none of the chosen systems is measured in the chosen scenarios")
    if options.quick:
        return Plan(chosen, 1, _QUICK, Log(PARTITIONS, _QUICK_RECORDS))
    return Plan(chosen, options.rounds, _TIMES, Log(PARTITIONS, RECORDS))


def measure(plan: Plan, measurement: Measurement, bootstrap: str) -> Figures:
    group = new_group()
    triggers, shape, hangs = measurement.triggers, measurement.shape, measurement.hangs
    if measurement.scenario != RESOURCES:
        order = Order(measurement.system, bootstrap, plan.log.topic, group, triggers, shape, hangs)
        return measure_flat_out(order, plan.log.records, plan.times)
    topic = f"bench-sharing-{time.time_ns():x}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(30)
    with traffic(Traffic(bootstrap, (topic,), PARTITIONS, _SEED_RATE, 0.02)):
        time.sleep(_SEED_SECONDS)
    order = Order(measurement.system, bootstrap, topic, group, triggers, shape, hangs)
    found = measure_resources(order, PARTITIONS, DELIVERED_RATE * triggers / TRIGGERS, plan.times)
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    return found


def measure_all(plan: Plan, bootstrap: str) -> dict[Measurement, list[Figures]]:
    found: dict[Measurement, list[Figures]] = {}
    for turn in range(plan.rounds):
        for measurement in plan.measurements:
            if turn < plan.rounds_of(measurement):
                figures = measure(plan, measurement, bootstrap)
                found.setdefault(measurement, []).append(figures)
                name = f"{measurement.scenario} round {turn + 1} {measurement.row_system}"
                print(f"{name}: {figures} (load {load_average()[0]})", flush=True)
    return found


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.sharing", description="Measure many triggers on one topic.")
    scenarios = list(dict.fromkeys(m.scenario for m in MEASUREMENTS))
    systems = list(dict.fromkeys(m.row_system for m in MEASUREMENTS))
    parser.add_argument("--scenario", nargs="+", choices=scenarios, default=scenarios, help="only these scenarios")
    parser.add_argument("--system", nargs="+", choices=systems, default=systems, help="only these systems")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="measurements of each; the median counts")
    parser.add_argument("--quick", action="store_true", help="smoke test: short, one round, no bars")
    parser.add_argument("--page", action="store_true", help="only write the table of the last whole run to the page")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the results file")
    return parser.parse_args(arguments)


def notes_of(plan: Plan) -> dict[str, Any]:
    return {
        "triggers": TRIGGERS,
        "partitions": PARTITIONS,
        "delivered_rate": DELIVERED_RATE,
        "window": WINDOW,
        "rounds": {m.scenario: plan.rounds_of(m) for m in plan.measurements},
        "log": plan.log.topic,
        "keys": KEYS,
        "value_bytes": VALUE_BYTES,
    }


def written_report(path: Path) -> Report:
    """A report as its file has it."""
    content = json.loads(path.read_text())
    bars = [Bar(b["name"], b["value"], b["limit"], b["at_most"]) for b in content["bars"]]
    return Report(content["name"], content["machine"], content["notes"], [Row(**row) for row in content["rows"]], bars)


def with_table(page: str, report: Report) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for the table: {BEGIN.strip()} ... {END.strip()}")
    return before + BEGIN + page_table(report) + END + after


def write_page(results: Path) -> None:
    PAGE.write_text(with_table(PAGE.read_text(), written_report(results)))


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    if options.page:
        write_page(options.results / "sharing.json")
        return 0
    plan = plan_of(options)
    facts = machine_facts(PACKAGES)
    report = Report("sharing" if plan.is_whole else "sharing-partial", facts, notes_of(plan))
    with KafkaCluster(heap="1g", java_options=_BROKER_OPTIONS) as cluster:
        if any(m.scenario != RESOURCES for m in plan.measurements):
            fill_apart(cluster.bootstrap(), plan.log)
        add_rows(report, measure_all(plan, cluster.bootstrap()))
    facts["load_after"] = load_average()
    if not options.quick:
        add_bars(report)
    print(page_table(report))
    for bar in report.bars:
        print(bar)
    path = report.write(options.results)
    print(f"results: {path}")
    if path == RESULTS / "sharing.json":
        write_page(path)
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
