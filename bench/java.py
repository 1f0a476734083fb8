"""Measures Kafka's Java consumer with Kafka's own tool (`ConsumerPerformance` of kafka-tools).

Thread: application.

The JVM compiles while it runs, so the rate is that of the second half of the records, from the tool's detailed
statistics: lines of (time, records so far). The tool joins a fresh group, reads from the beginning and touches every
key and value; checksums are on, its default.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from bench.clients import WAIT_MS, Source

INTERVAL_MS: Final = 50
TOOL: Final = "org.apache.kafka.tools.ConsumerPerformance"
# The options of Kafka's own start scripts for a consumer.
JVM_OPTIONS: Final = (
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
)
LOGGING: Final = """\
rootLogger.level=ERROR
rootLogger.appenderRefs=out
rootLogger.appenderRef.out.ref=OUT
appender.out.type=Console
appender.out.name=OUT
appender.out.target=SYSTEM_ERR
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """One line of the tool's output."""

    at: float
    records: int


@dataclass(frozen=True, slots=True)
class JavaProgram:
    program: Path
    classpath: str


def command(java: JavaProgram, source: Source, records: int, protocol: str, logging: Path) -> list[str]:
    properties: Mapping[str, str] = {
        "group.protocol": protocol,
        "max.poll.records": str(source.poll_records),
        "fetch.max.bytes": str(source.fetch_bytes),
        "enable.auto.commit": "false",
        "fetch.max.wait.ms": str(WAIT_MS),
    }
    jvm = [str(java.program), *JVM_OPTIONS, f"-Dlog4j2.configurationFile={logging}", "-cp", java.classpath, TOOL]
    given = [f"--command-property={name}={value}" for name, value in properties.items()]
    return [
        *jvm,
        f"--bootstrap-server={source.bootstrap}",
        f"--topic={source.topic}",
        f"--num-records={records}",
        f"--group=bench-{uuid.uuid4().hex[:12]}",
        f"--fetch-size={source.partition_bytes}",
        f"--reporting-interval={INTERVAL_MS}",
        "--show-detailed-stats",
        "--hide-header",
        "--timeout=60000",
        *given,
    ]


def run(java: JavaProgram, source: Source, records: int, protocol: str) -> tuple[float, resource.struct_rusage]:
    """(records per second over the second half, resources of the process)."""
    with tempfile.TemporaryDirectory(prefix="multilane-bench-") as directory:
        logging = Path(directory, "log4j2.properties")
        logging.write_text(LOGGING)
        arguments = command(java, source, records, protocol, logging)
        out = Path(directory, "out")
        with out.open("wb") as stream:
            process = subprocess.Popen(arguments, stdout=stream, stderr=subprocess.STDOUT)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        text = out.read_text()
    if process.returncode != 0:
        raise RuntimeError(f"{TOOL} failed (exit {process.returncode}):\n{text}")
    return second_half_rate(parse(text), records), usage


def parse(text: str) -> list[Sample]:
    """The tool's lines: `time, thread, MB, MB/s, records so far, records/s, ...`. Others are ignored."""
    samples = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 10 and cells[4].isdigit():
            samples.append(Sample(_seconds(cells[0]), int(cells[4])))
    return samples


def _seconds(text: str) -> float:
    """`2026-01-31 10:00:00:250`"""
    clock, _, millis = text.rpartition(":")
    return datetime.strptime(clock, "%Y-%m-%d %H:%M:%S").timestamp() + int(millis) / 1_000


def second_half_rate(samples: list[Sample], records: int) -> float:
    half = [sample for sample in samples if sample.records >= records / 2]
    if len(half) < 2 or half[-1].at <= half[0].at:
        raise ValueError(f"{len(half)} samples of the second half are not enough for a rate")
    return (half[-1].records - half[0].records) / (half[-1].at - half[0].at)
