"""Formats data directories as `kafka-storage format` does, without a JVM for each.

Thread: any.

A formatted directory holds two files: `meta.properties` (which cluster, which node, which directory) and
`bootstrap.checkpoint` (the cluster's initial feature levels). The second is the same for every cluster of a Kafka
version, so Kafka's own tool writes it once, when the jars are installed, and each start copies it.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from pathlib import Path
from typing import Final

from multilane.errors import DevKafkaError
from multilane.java import Java

_META: Final = "meta.properties"
_PROPERTIES: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs={data}
"""


def random_uuid() -> str:
    """A UUID in Kafka's format. It never starts with a dash, which tools would take for an option."""
    while (text := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        pass
    return text


def make_checkpoint(java: Java, jars: Path, work: Path, target: Path) -> None:
    """Runs Kafka's storage tool on a scratch directory and keeps its `bootstrap.checkpoint`."""
    data = work / "formatted"
    properties = work / "format.properties"
    properties.write_text(_PROPERTIES.format(data=data))
    command = [str(java.program), "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
    command += ["kafka.tools.StorageTool", "format", "-t", random_uuid(), "-c", str(properties)]
    formatted = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)  # noqa: S603
    if formatted.returncode != 0:
        raise DevKafkaError(f"Kafka's storage tool failed (exit {formatted.returncode}):\n{formatted.stderr[-2000:]}")
    shutil.copyfile(data / target.name, target)


def format_directory(data: Path, checkpoint: Path, *, cluster_id: str, node_id: int) -> None:
    """Formats an empty data directory for a broker. The metadata file comes last: it marks the directory as
    formatted."""
    data.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(checkpoint, data / checkpoint.name)
    lines = ["version=1", f"cluster.id={cluster_id}", f"node.id={node_id}", f"directory.id={random_uuid()}"]
    (data / _META).write_text("\n".join(lines) + "\n")


def cluster_id_of(data: Path) -> str | None:
    """The id of the cluster that a formatted directory belongs to; None if it is not formatted."""
    path = data / _META
    if not path.is_file():
        return None
    for line in path.read_text().splitlines():
        key, _, value = line.partition("=")
        if key == "cluster.id":
            return value
    raise DevKafkaError(f"{path} has no cluster.id")
