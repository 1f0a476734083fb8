"""Measures the latency of records on Spark: `make bench-spark`, or `python -m bench.spark_latency --help`.

Thread: application.

A producer sends 1,000 records per second, evenly in time; a handler takes 20 ms for each. Measures the time from
sending a record to the end of its handler: for lanes in the process engine and in both Spark flows, and for Spark's own
connector with a pool of as many threads as there are lanes. One broker, one run, the systems in direct succession.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

if not __package__:  # started as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.lane.figures import OURS
from bench.lane.logs import CHUNK, VALUE_BYTES, Log
from bench.lane.order import Order, order_of
from bench.lane.sampling import Span
from bench.lane.scenarios import LATENCY, SINGLE_20
from bench.lanes import broker
from bench.latency.samples import BEHIND
from bench.latency.watching import GRACE_SECONDS, Measured, measure
from bench.report import RESULTS, Bar, Report, conclude, load_average, machine_facts
from bench.spark import CONNECTOR
from bench.spark_lanes import BATCHES, CONTINUOUS
from multilane.client.admin.admin import Admin
from multilane.dev import jars
from multilane.java import find_java

RIVAL: Final = "connector-foreachBatch"
SYSTEMS: Final = (OURS, CONTINUOUS, BATCHES, RIVAL)
RATE: Final = 1_000.0
SCENARIO: Final = "1000-a-second"
STEADY_SECONDS: Final = 60.0
WARM_SECONDS: Final = 20.0
P50, P99, HANDLED = "p50", "p99", "handled"
# flow -> the largest share of the connector's latency
BARS: Final[Mapping[str, float]] = {CONTINUOUS: 0.1, BATCHES: 1.0}
METRICS: Final = (P50, P99, "longest", "sent", HANDLED, "missing", "cpu", "driver_rss", "jvm_rss", "workers_rss")
MOST_ABOVE_CONTINUOUS: Final = 3.0  # times the continuous p99, for batches
_CHILDREN: Final[Mapping[str, list[str]]] = {
    OURS: ["members"],
    CONTINUOUS: ["members", "continuous"],
    BATCHES: ["members", "batches"],
    RIVAL: ["connector"],
}
_PACKAGES: Final = ("multilane", "pyspark", "pyarrow", "numpy", "uvloop", "confluent-kafka")
_MEGABYTE: Final = 1e6


def order_for(system: str, bootstrap: str) -> Order:
    """Each system has a topic of its own, which grows while it is read."""
    order = order_of(SINGLE_20, Log(SINGLE_20.partitions, CHUNK), bootstrap, 0)
    return replace(order, topic=f"bench-latency-{system}")


def measure_all(systems: Sequence[str], span: Span, bootstrap: str) -> dict[str, Measured]:
    found: dict[str, Measured] = {}
    for system in systems:
        order = order_for(system, bootstrap)
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics({order.topic: order.partitions})
        found[system] = measure(order, _CHILDREN[system], span, RATE)
        print(f"{summary(system, found[system])} (load {load_average()[0]})", flush=True)
    return found


def summary(system: str, measured: Measured) -> str:
    took = measured.latencies
    behind = "falls behind, " if took.is_behind else ""
    return f"{system}: p50 {took.p50:.0f} ms, p99 {took.p99:.0f} ms, {behind}{took.handled:,} of {took.sent:,} records"


def add_rows(report: Report, found: Mapping[str, Measured]) -> None:
    for system, measured in found.items():
        took, used = measured.latencies, measured.figures
        for metric, value in ((P50, took.p50), (P99, took.p99), ("longest", took.longest)):
            report.add(system, SCENARIO, metric, value, "ms")
        report.add(system, SCENARIO, "sent", took.sent, "records")
        report.add(system, SCENARIO, HANDLED, took.share, "of sent")
        report.add(system, SCENARIO, "missing", took.missing, "records")
        report.add(system, SCENARIO, "cpu", used.cpu, "cores")
        for role, peak in used.rss_by_role.items():
            report.add(system, SCENARIO, f"{role}_rss", peak / _MEGABYTE, "MB")


def add_bars(report: Report, found: Mapping[str, Measured]) -> None:
    """Also requires that no system falls behind: its percentiles would only show how long it was watched."""
    for system, limit in BARS.items():
        for metric in (P50, P99):
            ours, theirs = (report.find(one, SCENARIO, metric) for one in (system, RIVAL))
            if ours is not None and theirs:
                report.bars.append(Bar(f"{metric}/{system}/connector", ours / theirs, limit, at_most=True))
    batches, continuous = (report.find(one, SCENARIO, P99) for one in (BATCHES, CONTINUOUS))
    if batches is not None and continuous:
        name = f"{P99}/{BATCHES}/{CONTINUOUS}"
        report.bars.append(Bar(name, batches / continuous, MOST_ABOVE_CONTINUOUS, at_most=True))
    for system, measured in found.items():
        if measured.latencies.is_behind:
            report.bars.append(Bar(f"handled/{system}/sent", measured.latencies.share, BEHIND))


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.spark_latency", description="Measure how long records take on Spark.")
    parser.add_argument("--system", nargs="+", choices=SYSTEMS, default=list(SYSTEMS), help="only these systems")
    parser.add_argument("--seconds", type=float, default=STEADY_SECONDS, help="seconds of steady state per measurement")
    parser.add_argument("--quick", action="store_true", help="smoke test: short, no bars")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the results file")
    return parser.parse_args(arguments)


def notes_of(span: Span) -> dict[str, Any]:
    return {
        "rate": RATE,
        "partitions": SINGLE_20.partitions,
        "lanes": SINGLE_20.lanes,
        "latency_seconds": LATENCY,
        "value_bytes": VALUE_BYTES,
        "steady_seconds": span.seconds,
        "warm_seconds": span.warm,
        "grace_seconds": GRACE_SECONDS,
        "master": "local[2]",
        "connector": [f"{d.name} {d.rev}" for d in CONNECTOR.dependencies],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    span = Span(1.0, min(options.seconds, 2.0)) if options.quick else Span(WARM_SECONDS, options.seconds)
    systems = tuple(s for s in SYSTEMS if s in options.system)
    whole = systems == SYSTEMS and not options.quick and span.seconds >= STEADY_SECONDS
    java = find_java()
    jars.installed(java, progress=jars.silent)
    CONNECTOR.installed(java)
    facts = machine_facts(_PACKAGES, java.program)
    facts["load_before"] = load_average()
    report = Report("spark-latency" if whole else "spark-latency-partial", facts, notes_of(span))
    with broker(None, []) as bootstrap:
        found = measure_all(systems, span, bootstrap)
    add_rows(report, found)
    facts["load_after"] = load_average()
    if not options.quick:
        add_bars(report, found)
    return conclude(report, METRICS, options.results)


if __name__ == "__main__":
    sys.exit(main())
