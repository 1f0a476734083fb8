"""Spark's own servers, as processes on this machine."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from multilane.dev.ports import ReservedPorts
from multilane.errors import SparkStartError
from multilane.spark.session import check_reachable


@contextmanager
def standalone_cluster(directory: Path, workers: int) -> Iterator[str]:
    """A master and workers of one slot each; gives the master's address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    reserved = ReservedPorts(1)
    [port] = reserved.ports
    master = f"spark://127.0.0.1:{port}"
    environ = dict(os.environ) | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    room = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory)]
    commands = [["master.Master", *common, "--port", str(port)]]
    commands += [["worker.Worker", *common, *room, master]] * workers
    with (directory / "cluster.log").open("wb") as out:
        processes = [
            subprocess.Popen(
                [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{program}", *options],
                env=environ,
                stdout=out,
                stderr=out,
            )
            for program, *options in commands
        ]
    try:
        while not is_reachable(master):
            assert processes[0].poll() is None, (directory / "cluster.log").read_text()[-4_000:]
            threading.Event().wait(0.2)
        yield master
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()
        reserved.close()


@contextmanager
def connect_server(directory: Path) -> Iterator[str]:
    """A server for Spark Connect, with three slots; gives its address."""
    import pyspark

    home = Path(pyspark.__file__).parent
    reserved = ReservedPorts(1)
    [port] = reserved.ports
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin/spark-submit"), "--master", "local[3,4]"]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environ = dict(os.environ) | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environ |= {"PYSPARK_PYTHON": sys.executable}
    with (directory / "connect.log").open("wb") as out:
        process = subprocess.Popen(command, env=environ, stdout=out, stderr=out)
    try:
        while not is_reachable(f"sc://127.0.0.1:{port}"):
            assert process.poll() is None, (directory / "connect.log").read_text()[-4_000:]
            threading.Event().wait(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()
        reserved.close()


def executors(directory: Path) -> list[int]:
    """The processes of a standalone cluster's executors, which work in its directory."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it ended meanwhile
            words = (process / "cmdline").read_bytes()
            if b"CoarseGrainedExecutorBackend" in words and (process / "cwd").readlink().is_relative_to(directory):
                found.append(int(process.name))
    return found


def is_reachable(master: str) -> bool:
    try:
        check_reachable(master)
    except SparkStartError:
        return False
    return True
