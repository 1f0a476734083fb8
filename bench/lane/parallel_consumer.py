"""parallel-consumer: its jars, and the command that runs our small class on them.

Thread: application.

Java compiles the class at start, so it needs a JDK.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from bench.java import JVM_OPTIONS, JavaProgram
from bench.lane.order import Order
from bench.rival_jars import Dependency, RivalJars
from multilane.java import Java

VERSION: Final = "0.5.3.3"
PROGRAM: Final = Path(__file__).with_name("ParallelLanes.java")
JARS: Final = RivalJars(
    f"parallel-consumer-{VERSION}",
    (Dependency("io.confluent.parallelconsumer", "parallel-consumer-core", VERSION),),
    Path(__file__).with_name(f"parallel-consumer-{VERSION}.sha256"),
)
# Java keeps 5 connections per host by default: lanes would open a new one for almost every call.
_CONNECTIONS: Final = 1_000
_SERIAL_BUFFER: Final = 200_000


def installed(java: Java, directory: Path | None = None) -> JavaProgram:
    return JavaProgram(java.program, f"{JARS.installed(java, directory)}/*")


def command(java: JavaProgram, order: Order) -> list[str]:
    options = [*JVM_OPTIONS, f"-Dhttp.maxConnections={_CONNECTIONS}", "-cp", java.classpath]
    return [str(java.program), *options, str(PROGRAM), *order.settings(), *tuning(order)]


def tuning(order: Order) -> list[str]:
    """The defaults, except for the serial consumer: its buffer would hold records of only one or two partitions."""
    return [f"buffer={_SERIAL_BUFFER}"] if order.lanes == 0 else []
