"""parallel-consumer: its jars, fetched once, and the command that runs our small class on them.

Thread: application.

Ivy fetches the jars as it does for the embedded Kafka; they are kept in the user's cache, and used only when every one
of them is what the list of sums beside this file says. Java compiles the class when it starts it, so it takes a JDK.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Final

from bench.java import JVM_OPTIONS, JavaProgram
from bench.lane.order import Order
from multilane.dev import ivy
from multilane.dev.java import Java
from multilane.user_cache import user_cache

VERSION: Final = "0.5.3.3"
PROGRAM: Final = Path(__file__).with_name("ParallelLanes.java")
SUMS: Final = Path(__file__).with_name(f"parallel-consumer-{VERSION}.sha256")
# Java keeps 5 connections to a host unless it is told otherwise: lanes would open a new one for almost every call.
_CONNECTIONS: Final = 1_000
_FETCH_SECONDS: Final = 600
_SERIAL_BUFFER: Final = 200_000
_MODULES: Final = f"""\
<ivy-module version="2.0">
  <info organisation="multilane" module="bench-lanes"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.confluent.parallelconsumer" name="parallel-consumer-core" rev="{VERSION}"
                conf="default->default"/>
  </dependencies>
</ivy-module>
"""


def installed(java: Java, directory: Path | None = None) -> JavaProgram:
    """Fetches what is not there; refuses what is not as expected."""
    directory = user_cache() / f"parallel-consumer-{VERSION}" if directory is None else directory
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=directory.parent) as work:
            fetch(java, Path(work, "new"), Path(work))
            Path(work, "new").rename(directory)
    check(directory)
    return JavaProgram(java.program, f"{directory}/*")


def fetch(java: Java, target: Path, work: Path) -> None:
    modules = work / "ivy.xml"
    modules.write_text(_MODULES)
    command = [str(java.program), *ivy.proxy_flags(os.environ), f"-Divy.default.ivy.user.dir={work / 'user'}"]
    command += ["-jar", str(ivy.ivy_jar()), "-cache", str(work / "cache"), "-ivy", str(modules), "-confs", "default"]
    if settings := os.environ.get("MULTILANE_IVY_SETTINGS"):
        command += ["-settings", settings]
    command += ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS)
    if told.returncode:
        raise RuntimeError(f"Ivy could not fetch parallel-consumer {VERSION}:\n{told.stdout[-2_000:]}")


def check(directory: Path) -> None:
    pairs = (line.split() for line in SUMS.read_text().splitlines())
    expected = {name: digest for digest, name in pairs}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}
    if found != expected:
        wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        raise RuntimeError(f"{directory} is not what {SUMS.name} says ({', '.join(wrong)}): remove it to fetch it anew")


def command(java: JavaProgram, order: Order) -> list[str]:
    options = [*JVM_OPTIONS, f"-Dhttp.maxConnections={_CONNECTIONS}", "-cp", java.classpath]
    return [str(java.program), *options, str(PROGRAM), *order.settings(), *tuning(order)]


def tuning(order: Order) -> list[str]:
    """Its defaults, but for the serial consumer: its buffer would hold records of one partition or two."""
    return [f"buffer={_SERIAL_BUFFER}"] if order.lanes == 0 else []
