"""A real schema registry for tests: Apicurio, fetched as the jars of Kafka are, in memory, on loopback.

Thread: any.

Speaks Confluent's API under /apis/ccompat/v7 and its own under /apis/registry/v3. Fetched once into the user's cache,
and used only if its checksum matches.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import tarfile
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from multilane.clock import SystemClock
from multilane.dev import ivy
from multilane.dev.ports import ReservedPorts
from multilane.java import Java, find_java
from multilane.user_cache import user_cache

VERSION = "3.0.9"  # the last that Java 17 runs
SHA256 = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
NAME = "apicurio-registry-app"
MODULES = f"""\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="multilane" module="test-registry"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.apicurio" name="{NAME}" rev="{VERSION}" conf="default->default" transitive="false">
      <artifact name="{NAME}" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""
# Its POM names a parent that is not published, and nothing else of it is needed.
SETTINGS = """\
<ivysettings>
  <settings defaultResolver="public"/>
  <resolvers><ibiblio name="public" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""
START_SECONDS = 90


def installed() -> Path:
    """The unpacked program."""
    directory = user_cache() / f"apicurio-{VERSION}"
    if not directory.exists():
        directory.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=directory.parent) as temporary:
            archive = _fetched(find_java(), Path(temporary))
            assert hashlib.sha256(archive.read_bytes()).hexdigest() == SHA256, f"{archive} is not the pinned one"
            with tarfile.open(archive) as opened:
                opened.extractall(Path(temporary, "new"), filter="data")
            Path(temporary, "new").rename(directory)
    return directory


def _fetched(java: Java, work: Path) -> Path:
    modules = work / "ivy.xml"
    modules.write_text(MODULES)
    command = [str(java.program), *ivy.proxy_flags(os.environ), f"-Divy.default.ivy.user.dir={work / 'user'}"]
    command += ["-jar", str(ivy.ivy_jar()), "-cache", str(work / "cache"), "-ivy", str(modules), "-confs", "default"]
    settings = work / "settings.xml"
    settings.write_text(SETTINGS)
    command += ["-settings", os.environ.get("MULTILANE_IVY_SETTINGS") or str(settings)]
    command += ["-retrieve", f"{work}/[artifact]-[revision](-[classifier]).[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    assert not done.returncode, done.stdout[-2_000:]
    return work / f"{NAME}-{VERSION}-all.tar.gz"


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """Its address."""
    program, reserved = installed(), ReservedPorts(1)
    (port,) = reserved.ports
    environment = os.environ | {"QUARKUS_HTTP_PORT": str(port), "QUARKUS_HTTP_HOST": "127.0.0.1"}
    flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    command = [str(find_java().program), *flags, "-jar", str(program / f"{NAME}-{VERSION}-runner.jar")]
    with (folder / "apicurio.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        address = f"http://127.0.0.1:{port}"
        _wait_until_up(address, process)
        yield address
    finally:
        process.kill()
        process.wait()
        reserved.close()


def _wait_until_up(address: str, process: subprocess.Popen[bytes]) -> None:
    clock, look = SystemClock(), threading.Event()
    deadline = clock.monotonic() + START_SECONDS
    while True:
        try:
            with urllib.request.urlopen(f"{address}/apis/ccompat/v7/subjects", timeout=5):  # noqa: S310
                return
        except OSError:
            assert process.poll() is None, "it has ended: see apicurio.log"
            assert clock.monotonic() < deadline, f"not up within {START_SECONDS} s"
        look.wait(0.1)


def register(address: str, subject: str, schema: object, kind: str = "AVRO", references: Sequence[object] = ()) -> int:
    """The id by Confluent's API, which is the content id of Apicurio's."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    body = json.dumps({"schema": text, "schemaType": kind, "references": list(references)}).encode()
    answer = _json(f"{address}/apis/ccompat/v7/subjects/{subject}/versions", body)
    return int(answer["id"])


def global_id(address: str, artifact: str) -> int:
    return int(_json(f"{address}/apis/registry/v2/groups/default/artifacts/{artifact}/meta")["globalId"])


def _json(url: str, body: bytes | None = None) -> dict[str, Any]:
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
        found: dict[str, Any] = json.load(answer)
        return found
