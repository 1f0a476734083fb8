"""Compares our data source for Kafka with Spark's own: `make bench-spark`, or `python -m bench.spark --help`.

Thread: application.

One real broker, one Spark on two cores of this machine, one run: each system reads the same topic into a no-op sink and
into a function over Arrow batches, and writes the same rows, alternating, after a warm-up round. Ours also runs lanes
in its read, with a columnar handler that does nothing. Figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

if not __package__:  # started as a file
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench import topics
from bench.lane.in_source import rate_in_lanes
from bench.lane.members import PLACE
from bench.report import RESULTS, Report, conclude, load_average, machine_facts
from bench.rival_jars import Dependency, RivalJars
from multilane.client.admin.admin import Admin
from multilane.dev import jars
from multilane.dev.kafka import KafkaCluster
from multilane.java import find_java
from multilane.spark.session import start_session

RATE: Final = "rate"
OURS: Final = "multilane"
RIVAL: Final = "connector"
SYSTEMS: Final = (OURS, RIVAL)
FORMATS: Final = {OURS: "multilane", RIVAL: "kafka"}
NOOP, ARROW, LANES, SINK = "source-noop", "source-mapinarrow", "source-lanes", "sink"
SCENARIOS: Final = (NOOP, ARROW, LANES, SINK)
RECORDS: Final = 2_000_000
QUICK_RECORDS: Final = 40_000
WRITTEN: Final = 4  # the sinks write one in so many of them
SOURCE_BAR: Final = 1.7
LANES_BAR: Final = 2.0  # over the connector and a function over Arrow batches
SINK_BAR: Final = 1.0
# The newest published connector; the newer Spark accepts it with a token provider of an earlier version.
CONNECTOR: Final = RivalJars(
    "spark-connector-4.2.0",
    (
        Dependency("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", transitive=False),
        Dependency("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1", transitive=False),
        Dependency("org.apache.kafka", "kafka-clients", "3.9.2", transitive=False),
        Dependency("org.apache.commons", "commons-pool2", "2.13.1", transitive=False),
    ),
    Path(__file__).with_name("spark-connector-4.2.0.sha256"),
)
_PACKAGES: Final = ("multilane", "pyspark", "pyarrow", "numpy", "confluent-kafka")


class SparkBench:
    """A Spark session, a broker, and the topic to read."""

    def __init__(self, spark: Any, bootstrap: str, filling: topics.Filling, orders: Path) -> None:
        self.spark = spark
        self.orders = orders
        self.bootstrap = bootstrap
        self.filling = filling

    def read(self, system: str) -> Any:
        options = {"kafka.bootstrap.servers": self.bootstrap, "subscribe": self.filling.topic}
        options |= {"startingOffsets": "earliest", "endingOffsets": "latest"}
        return self.spark.read.format(FORMATS[system]).options(**options).load()

    def run(self, scenario: str, system: str) -> float:
        """Records per second."""
        if scenario == LANES:
            return rate_in_lanes(self.spark, self.bootstrap, self.filling, self.orders)
        work = {NOOP: self._to_nowhere, ARROW: self._through_a_function, SINK: self._write}[scenario]
        began = time.perf_counter()
        records = work(system)
        return records / (time.perf_counter() - began)

    def _to_nowhere(self, system: str) -> int:
        self.read(system).write.format("noop").mode("overwrite").save()
        return self.filling.records

    def _through_a_function(self, system: str) -> int:
        counted = self.read(system).mapInArrow(count_rows, "rows long").groupBy().sum("rows").collect()[0][0]
        if counted != self.filling.records:
            raise RuntimeError(f"{system} read {counted} of {self.filling.records} records")
        return int(counted)

    def _write(self, system: str) -> int:
        records = self.filling.records // WRITTEN
        target = f"bench-spark-{system}"
        before = self._size(target)
        frame = self.spark.range(records).selectExpr(
            "cast(concat('user-', id % 100000) as binary) as key", "cast(rpad(id, 100, 'x') as binary) as value"
        )
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": target}
        frame.write.format(FORMATS[system]).options(**options).mode("append").save()
        written = self._size(target) - before
        if written != records:
            raise RuntimeError(f"{system} wrote {written} of {records} records")
        return records

    def _size(self, topic: str) -> int:
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            return sum(end.offset for end in admin.offsets([(topic, n) for n in range(topics.PARTITIONS)]).values())


def count_rows(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa

    rows = sum(batch.num_rows for batch in batches)
    yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


@contextlib.contextmanager
def spark_bench(records: int) -> Iterator[SparkBench]:
    java = find_java()
    jars.installed(java, progress=jars.silent)
    connector = CONNECTOR.installed(java)
    filling = topics.Filling(100, "none", records)
    with KafkaCluster(heap="1g") as cluster, tempfile.TemporaryDirectory(prefix="multilane-bench-") as orders:
        bootstrap = cluster.bootstrap()
        os.environ[PLACE] = orders  # before Spark starts: its workers inherit it
        topics.fill_apart(bootstrap, filling)
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics({f"bench-spark-{system}": topics.PARTITIONS for system in SYSTEMS})
        settings = {
            "spark.jars": ",".join(map(str, sorted(connector.iterdir()))),
            "spark.ui.enabled": "false",
            "spark.driver.memory": "2g",
        }
        spark = start_session("local[2]", "bench", settings)
        try:
            yield SparkBench(spark, bootstrap, filling, Path(orders))
        finally:
            spark.stop()


def measure(environment: SparkBench, scenarios: Sequence[str], rounds: int) -> dict[tuple[str, str], list[float]]:
    rates: dict[tuple[str, str], list[float]] = {}
    for scenario in scenarios:
        for turn in range(rounds + 1):  # the first round warms up
            for system in SYSTEMS if scenario != LANES else (OURS,):
                rate = environment.run(scenario, system)
                print(f"{scenario} round {turn} {system}: {rate:,.0f} records/s (load {load_average()[0]})", flush=True)
                if turn:
                    rates.setdefault((scenario, system), []).append(rate)
    return rates


def add_rows(report: Report, rates: dict[tuple[str, str], list[float]]) -> None:
    for (scenario, system), found in rates.items():
        report.add(system, scenario, RATE, statistics.median(found), "records/s")
        report.add(system, scenario, "slowest", min(found), "records/s")
        report.add(system, scenario, "fastest", max(found), "records/s")


def add_bars(report: Report, scenarios: Sequence[str]) -> None:
    for scenario in scenarios:
        ours, theirs = (report.find(system, scenario, RATE) for system in SYSTEMS)
        if scenario == ARROW and ours is not None and theirs is not None:
            report.add(OURS, scenario, "over_connector", ours / theirs, "ratio")
        elif scenario == LANES:
            report.bar_ratio("source-lanes/connector-mapinarrow", ours, report.find(RIVAL, ARROW, RATE), LANES_BAR)
        elif scenario != ARROW:
            limit = SINK_BAR if scenario == SINK else SOURCE_BAR
            report.bar_ratio(f"{scenario}/connector", ours, theirs, limit)


def parse_options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench.spark", description="Compare Spark's data sources for Kafka.")
    parser.add_argument("--scenario", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--rounds", type=int, default=3, help="measurements of each; the median counts")
    parser.add_argument("--quick", action="store_true", help="smoke test: few records, one round, no bars")
    parser.add_argument("--results", type=Path, default=RESULTS, help="directory for the results file")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    options = parse_options(arguments)
    scenarios = tuple(name for name in SCENARIOS if name in options.scenario)
    whole = scenarios == SCENARIOS and not options.quick
    facts = machine_facts(_PACKAGES, find_java().program)
    facts["load_before"] = load_average()
    report = Report("spark" if whole else "spark-partial", facts)
    records = QUICK_RECORDS if options.quick else RECORDS
    rounds = 1 if options.quick else options.rounds
    report.notes = {"rounds": rounds, "records": records, "partitions": topics.PARTITIONS, "master": "local[2]"}
    report.notes["connector"] = [f"{d.name} {d.rev}" for d in CONNECTOR.dependencies]
    with spark_bench(records) as environment:
        add_rows(report, measure(environment, scenarios, rounds))
    facts["load_after"] = load_average()
    if not options.quick:
        add_bars(report, scenarios)
    return conclude(report, (RATE, "slowest", "fastest"), options.results)


if __name__ == "__main__":
    sys.exit(main())
