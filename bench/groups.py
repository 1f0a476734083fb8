"""Compares consumer groups with other clients: `make bench-groups`, or `python -m bench.groups --help`.

Thread: application.

Three real brokers, one run: many consumers in one process, a thousand idle consumers, the time to the first record, and
the pauses of a rebalance. Every measurement has processes of its own; rounds are interleaved; medians count.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

if not __package__:  # started as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.group import rebalance
from bench.group.crowd import Setting, measure_crowd
from bench.group.figures import (
    ONE_TOPIC,
    OWN_TOPICS,
    REBALANCE,
    SCENARIOS,
    STARTUP,
    THOUSAND,
    Figures,
    Scenario,
    add_bars,
    add_rows,
    tables,
)
from bench.group.startup import measure_startup
from bench.group.systems import SYSTEMS, System
from bench.group.traffic import Order, traffic
from bench.java import JVM_OPTIONS, JavaProgram
from bench.report import RESULTS, Report, load_average, machine_facts
from multilane.dev import jars
from multilane.dev.kafka import KafkaCluster
from multilane.java import find_java

PACKAGES: Final = ("aiokafka", "confluent-kafka", "multilane", "numba", "numpy", "py4j")
GROUPS: Final = 31
MANY: Final = 1_000
DELIVERED_RATE: Final = 20_000
_SEED_SECONDS: Final = 2.0
_SEED_RATE: Final = 2_000
# Kafka's defaults, except the delay before the first rebalance of a classic group: 0, as in the server.properties that
# Kafka ships; its built-in 3 s would hide every client's own time. A mistyped name must not create a topic.
BROKER_PROPERTIES: Final = {"auto.create.topics.enable": "false", "group.initial.rebalance.delay.ms": "0"}
_BROKER_OPTIONS: Final = ("-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_TOPICS: Final[dict[str, tuple[int, int]]] = {  # scenario -> (topics, partitions of each)
    OWN_TOPICS: (GROUPS, 3),
    ONE_TOPIC: (1, 6),
    THOUSAND: (1, 3),
    STARTUP: (1, 6),
    REBALANCE: (1, rebalance.PARTITIONS),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """`quick`: a smoke test with short waits and few consumers; its figures mean nothing."""

    scenarios: tuple[Scenario, ...]
    quick: bool

    @property
    def is_whole(self) -> bool:
        return self.scenarios == SCENARIOS and not self.quick


@dataclass(frozen=True, slots=True)
class GroupBench:
    """The brokers and the topics of a scenario; every topic has records."""

    bootstrap: str
    topics: tuple[str, ...]
    partitions: int
    java: JavaProgram
    quick: bool


def plan_of(options: argparse.Namespace) -> Plan:
    chosen = []
    for scenario in SCENARIOS:
        if scenario.name not in options.scenario:
            continue
        systems = tuple(system for system in scenario.systems if system.name in options.system)
        rounds = options.rounds or (1 if options.quick else scenario.rounds)
        if systems:
            chosen.append(Scenario(scenario.name, systems, rounds))
    if not chosen:
        raise SystemExit("error: none of the chosen systems is measured in the chosen scenarios")
    return Plan(tuple(chosen), options.quick)


def setting_of(scenario: str, environment: GroupBench) -> Setting:
    """Times in seconds: between polls, to settle, of the quiet and of the busy measurement."""
    many = scenario == THOUSAND
    # Every record of the one topic is delivered to every group.
    rate = 0.0 if many else DELIVERED_RATE / (GROUPS if scenario == ONE_TOPIC else 1)
    consumers = (MANY // 20 if environment.quick else MANY) if many else GROUPS
    times = (1.0, 1.0, 2.0, 2.0) if environment.quick else (5.0 if many else 1.0, 15.0, 30.0 if many else 20.0, 20.0)
    busy = 0.0 if many else times[3]
    return Setting(consumers, environment.topics, environment.partitions, times[0], times[1], times[2], busy, rate)


def measure(scenario: Scenario, system: System, turn: int, environment: GroupBench) -> Figures:
    if scenario.name == STARTUP:
        return measure_startup(system, environment.bootstrap, environment.topics[0], environment.java)
    if scenario.name == REBALANCE:
        stage = rebalance.Stage(environment.bootstrap, environment.topics[0], environment.java)
        return rebalance.measure_rebalance(system, stage, rebalance.phase_of(turn, scenario.rounds))
    return measure_crowd(system, environment.bootstrap, setting_of(scenario.name, environment))


def measure_all(plan: Plan, bootstrap: str, java: JavaProgram) -> dict[tuple[str, str], list[Figures]]:
    found: dict[tuple[str, str], list[Figures]] = {}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for scenario in plan.scenarios:
        for turn in range(scenario.rounds):
            for system in scenario.systems:
                with prepared(admin, scenario.name, GroupBench(bootstrap, (), 0, java, plan.quick)) as environment:
                    figures = measure(scenario, system, turn, environment)
                found.setdefault((scenario.name, system.name), []).append(figures)
                load = load_average()[0]
                print(f"{scenario.name} round {turn + 1} {system.name}: {figures} (load {load})", flush=True)
    return found


@contextmanager
def prepared(admin: AdminClient, scenario: str, bare: GroupBench) -> Iterator[GroupBench]:
    """Topics for this measurement alone, with some records in every partition: systems do not share records. During a
    rebalance records are produced all the time, one per partition and tick."""
    count, partitions = _TOPICS[scenario]
    topics = tuple(f"bench-{scenario}-{time.time_ns():x}-{number}" for number in range(count))
    for future in admin.create_topics([NewTopic(topic, partitions, 1) for topic in topics]).values():
        future.result(30)
    with traffic(Order(bare.bootstrap, topics, partitions, _SEED_RATE, 0.02)):
        time.sleep(_SEED_SECONDS)
    steady = Order(bare.bootstrap, topics, partitions, partitions / rebalance.TICK_SECONDS, rebalance.TICK_SECONDS)
    with traffic(steady) if scenario == REBALANCE else nullcontext():
        yield replace(bare, topics=topics, partitions=partitions)
    for future in admin.delete_topics(list(topics), operation_timeout=30).values():
        future.result(30)


@contextmanager
def brokers(given: str | None) -> Iterator[str]:
    if given is not None:
        yield given
        return
    with KafkaCluster(
        nodes=3, profile="stock", properties=BROKER_PROPERTIES, heap="1g", java_options=_BROKER_OPTIONS
    ) as cluster:
        yield cluster.bootstrap()


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.groups", description="Compare Kafka clients in consumer groups.")
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--scenario", nargs="+", choices=names, default=names, help="only these scenarios")
    parser.add_argument("--system", nargs="+", choices=list(SYSTEMS), default=list(SYSTEMS), help="only these clients")
    parser.add_argument("--rounds", type=int, default=0, help="measurements of each (default: by scenario, 1 to 5)")
    parser.add_argument("--quick", action="store_true", help="smoke test: short, one round, no bars")
    parser.add_argument("--bootstrap", help="use these brokers (list every node) instead of starting three")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the results file")
    return parser.parse_args(arguments)


def notes_of(plan: Plan, given: str | None) -> dict[str, Any]:
    return {
        "rounds": {scenario.name: scenario.rounds for scenario in plan.scenarios},
        "topics": {name: {"topics": _TOPICS[name][0], "partitions": _TOPICS[name][1]} for name in _TOPICS},
        "broker_profile": "stock" if given is None else "given",
        "broker_properties": BROKER_PROPERTIES if given is None else None,
        "heartbeat_seconds": rebalance.HEARTBEAT_SECONDS,
        "java_options": JVM_OPTIONS,
        "delivered_rate": DELIVERED_RATE,
        "groups_of_1000": "one each",
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    plan = plan_of(options)
    found = find_java()
    java = JavaProgram(found.program, jars.installed(found, progress=jars.silent).classpath)
    facts = machine_facts(PACKAGES, found.program)
    report = Report("groups" if plan.is_whole else "groups-partial", facts, notes_of(plan, options.bootstrap))
    with brokers(options.bootstrap) as bootstrap:
        add_rows(report, measure_all(plan, bootstrap, java))
    facts["load_after"] = load_average()
    if not options.quick:
        add_bars(report)
    print(tables(report))
    for bar in report.bars:
        print(bar)
    print(f"results: {report.write(options.results)}")
    return report.exit_code


if __name__ == "__main__":
    sys.exit(main())
