"""The scenarios, systems, fetch sizes and bars of `bench.consume`.

Thread: none (pure).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from bench.clients import Source
from bench.report import Report
from bench.topics import Filling

RATE: Final = "rate"

JAVA_AS_IT_COMES: Final = ("java-classic", "java-consumer")
JAVA_TUNED: Final = ("java-classic-tuned", "java-consumer-tuned")
JAVA: Final = (*JAVA_AS_IT_COMES, *JAVA_TUNED)
RIVALS: Final = ("confluent", "confluent-no-crc", "aiokafka", "kafka-python")
OURS: Final = ("columns", "arrow", "records", "columns-busy")
SYSTEMS: Final = (*OURS, *RIVALS, *JAVA)
# These create an object per record, or are even slower: they read the smaller topic.
SLOW: Final = frozenset((*RIVALS, "records"))

_SLOWEST: Final = frozenset(("aiokafka", "kafka-python"))
_MB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Scenario:
    """One kind of topic. Java reads `java_records`: more, if its compiler would not be done in the second half."""

    value_bytes: int
    codec: str
    records: int
    slow_records: int
    java_records: int
    passes: int = 1  # passes over the topic, so that a measurement takes seconds
    rounds: int = 5  # measurements of each system; the median counts

    @property
    def name(self) -> str:
        size = f"{self.value_bytes // 1_000}kb" if self.value_bytes >= 1_000 else f"{self.value_bytes}b"
        return f"{size}-{self.codec}"

    def filling(self, system: str) -> Filling:
        records = self.slow_records if system in SLOW else self.java_records if system in JAVA else self.records
        return Filling(self.value_bytes, self.codec, records)

    def passes_of(self, system: str) -> int:
        """A system that takes seconds for one pass needs no more."""
        return 1 if system in _SLOWEST else self.passes

    def shrunk(self, records: int) -> Scenario:
        return replace(self, records=records, slow_records=records, java_records=records)


SCENARIOS: Final = tuple(
    scenario
    for codec in ("none", "lz4")
    for scenario in (
        Scenario(100, codec, records=10_000_000, slow_records=2_000_000, java_records=10_000_000),
        Scenario(1_000, codec, records=500_000, slow_records=500_000, java_records=2_000_000, passes=8, rounds=7),
    )
)

# (bytes of a partition in one fetch, bytes of one fetch, records of one poll): the best of a few tries with each.
_SIZES: Final[dict[str, tuple[int, int, int]]] = {
    "columns": (8 * _MB, 16 * _MB, 1_000_000),
    "arrow": (8 * _MB, 16 * _MB, 1_000_000),
    "records": (16 * _MB, 64 * _MB, 1_000_000),
    "confluent": (4 * _MB, 64 * _MB, 10_000),
    "confluent-no-crc": (4 * _MB, 64 * _MB, 10_000),
    "aiokafka": (_MB, 64 * _MB, 5_000),
    "kafka-python": (_MB, 64 * _MB, 5_000),
    "java-classic": (_MB, 64 * _MB, 500),  # the tool's and the consumer's own defaults
    "java-consumer": (_MB, 64 * _MB, 500),
    "java-classic-tuned": (_MB, 64 * _MB, 20_000),
    "java-consumer-tuned": (_MB, 64 * _MB, 20_000),
}


def source_of(system: str, bootstrap: str, topic: str) -> Source:
    return Source(bootstrap, topic, *_SIZES[system.removesuffix("-busy")])


def add_bars(report: Report, scenarios: tuple[Scenario, ...]) -> None:
    """Ratios of median rates, with checksums on for ours. Java counts with its defaults; the tuned one is reported
    too."""
    for scenario in scenarios:
        name = scenario.name
        small = scenario.value_bytes < 1_000
        columns = report.find("columns", name, RATE)
        records, busy = report.find("records", name, RATE), report.find("columns-busy", name, RATE)
        java, rivals = report.best(JAVA_AS_IT_COMES, name, RATE), report.best(RIVALS, name, RATE)
        report.bar_ratio(f"columns/java:{name}", columns, java, 3.0 if small else 2.0)
        report.bar_ratio(f"columns/best-python:{name}", columns, rivals, 5.0 if small else 2.0)
        if small:
            report.bar_ratio(f"records/best-python:{name}", records, rivals, 1.3)
            report.bar_ratio(f"columns-beside-busy-thread/java:{name}", busy, java, 1.0)
        tuned = report.best(JAVA_TUNED, name, RATE)
        for system, ours in (("columns", columns), ("columns-busy", busy)):
            if ours is not None and tuned is not None:
                report.add(system, name, "over_tuned_java", ours / tuned, "ratio")
        if records is not None and rivals is not None:
            report.add("records", name, "over_best_python", records / rivals, "ratio")
