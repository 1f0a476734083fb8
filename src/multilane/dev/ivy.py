"""Fetches Kafka's jars with Apache Ivy, which the PyPI package `pyspark` contains.

Thread: any.

Ivy uses its default repositories; `MULTILANE_IVY_SETTINGS` names a settings file, for a mirror. The usual proxy
variables are passed to Java. The user's own Ivy directory is neither read nor written.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from multilane.errors import DevKafkaError
from multilane.java import Java

KAFKA_VERSION: Final = "4.3.1"
_LOG4J_VERSION: Final = "2.25.4"
_OUTPUT_LINES_SHOWN: Final = 15

# kafka-tools without its dependencies: they are Kafka Connect's web server, and only Connect's tools need them.
_MODULES: Final = f"""\
<ivy-module version="2.0">
  <info organisation="multilane" module="dev-kafka"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="org.apache.kafka" name="kafka_2.13" rev="{KAFKA_VERSION}" conf="default->default"/>
    <dependency org="org.apache.kafka" name="kafka-tools" rev="{KAFKA_VERSION}" conf="default->default"
                transitive="false"/>
    <dependency org="org.apache.logging.log4j" name="log4j-slf4j-impl" rev="{_LOG4J_VERSION}" conf="default->default"/>
  </dependencies>
</ivy-module>
"""

ProgressStep = Callable[[], None]


def ivy_jar() -> Path:
    """The Ivy jar inside the installed pyspark; pyspark itself is not imported."""
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise DevKafkaError("fetching Kafka needs the Ivy jar of pyspark: pip install 'multilane[dev]'")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar"))
    if not found:
        raise DevKafkaError("the installed pyspark has no jars/ivy-*.jar: pip install 'multilane[dev]'")
    return found[-1]


def retrieve(java: Java, target: Path, work: Path, step: ProgressStep) -> None:
    """Writes the jars to `target` and Ivy's own files to `work`. Calls `step` for each module found or fetched."""
    modules = work / "ivy.xml"
    modules.write_text(_MODULES)
    command = [str(java.program), *proxy_flags(os.environ), f"-Divy.default.ivy.user.dir={work / 'user'}"]
    command += ["-jar", str(ivy_jar()), "-cache", str(work / "cache"), "-ivy", str(modules), "-confs", "default"]
    if settings := os.environ.get("MULTILANE_IVY_SETTINGS"):
        command += ["-settings", settings]
    command += ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
    _run(command, step)


def _run(command: list[str], step: ProgressStep) -> None:
    output: list[str] = []
    with subprocess.Popen(  # noqa: S603
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdout is not None  # noqa: S101 (narrows the type: stdout is PIPE)
        for line in process.stdout:
            output.append(line.rstrip())
            if line.startswith(("\tfound ", "\t[SUCCESSFUL ]")):
                step()
    if process.returncode != 0:
        end = "\n".join(line for line in output[-_OUTPUT_LINES_SHOWN:] if line.strip())
        raise DevKafkaError(
            f"Ivy cannot fetch Kafka {KAFKA_VERSION} (exit {process.returncode}); is the network reachable? "
            f"To use a mirror, set MULTILANE_IVY_SETTINGS. The end of Ivy's output:\n{end}"
        )


def proxy_flags(environ: Mapping[str, str]) -> list[str]:
    """Java flags for the usual proxy variables, which Java itself does not read."""
    flags: list[str] = []
    for scheme in ("http", "https"):
        address = environ.get(f"{scheme}_proxy") or environ.get(f"{scheme.upper()}_PROXY")
        if not address:
            continue
        parts = urlsplit(address if "//" in address else f"//{address}")
        if parts.hostname:
            flags.append(f"-D{scheme}.proxyHost={parts.hostname}")
            flags += [f"-D{scheme}.proxyPort={parts.port}"] if parts.port else []
    exempt = environ.get("no_proxy") or environ.get("NO_PROXY")
    if flags and exempt:
        hosts = (host.strip() for host in exempt.split(","))
        flags.append("-Dhttp.nonProxyHosts=" + "|".join(f"*{h}" if h.startswith(".") else h for h in hosts if h))
    return flags
