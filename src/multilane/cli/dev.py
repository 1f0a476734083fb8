"""`multilane dev`: a real Kafka in the foreground, and its jars.

Thread: application.
"""

from __future__ import annotations

import os
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Run a real Apache Kafka for development.", no_args_is_help=True)


class Sasl(StrEnum):
    """The values of `--sasl`."""

    scram = "scram"
    plain = "plain"


@app.command("fetch-jars")
def fetch_jars() -> None:
    """Download Kafka's jars into the user cache, or verify the cached ones."""
    from multilane.cli.progress import fetching  # commands import when they run
    from multilane.dev import jars
    from multilane.java import find_java

    installation = jars.fetch(find_java(), progress=fetching)
    typer.echo(f"Kafka is in {installation.directory}, {len(jars.pinned())} jars, checksums verified")


@app.command("archive-spark")
def archive_spark() -> None:
    """Halve Spark's start time: archive its loaded classes in this Python environment (Java class data sharing).

    Needed once per Java and Spark version; later runs only check that the archive exists.
    """
    from multilane.cli.progress import progress_steps  # commands import when they run
    from multilane.errors import SparkStartError
    from multilane.java import find_java
    from multilane.spark.class_archive import make

    java = find_java()
    if find_spec("pyspark") is None:
        raise SparkStartError('pyspark is not installed: pip install "multilane[spark]"')
    try:
        with progress_steps() as on_step:
            on_step("archiving Spark's classes (once)")
            archive = make(java, os.environ)
    except SparkStartError as error:  # not every Java can, and everything works without the archive
        typer.echo(f"{error}. Spark keeps its normal start time")
    else:
        size = archive.stat().st_size / 1e6
        typer.echo(f"Spark's classes are in {archive} ({size:.0f} MB): Spark now starts faster")


@app.command("kafka")
def kafka(
    nodes: Annotated[int, typer.Option(help="Number of nodes: 1 or 3.")] = 1,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="First port; other listeners use the next ones. 0 picks free ports.")
    ] = 9092,
    tls: Annotated[bool, typer.Option("--tls", help="Add a TLS listener.")] = False,
    mtls: Annotated[
        bool, typer.Option("--mtls", help="Add a TLS listener that requires a client certificate.")
    ] = False,
    sasl: Annotated[
        Sasl | None, typer.Option(help="Add a SASL listener; with --tls, also one with SASL over TLS.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Keep the data in this directory (default: a temporary one).")
    ] = None,
) -> None:
    """Run Apache Kafka on 127.0.0.1 until Ctrl-C."""
    from multilane.cli import connecting  # commands import when they run
    from multilane.cli.foreground import run_until_signal
    from multilane.cli.progress import fetching
    from multilane.dev.kafka import KafkaCluster

    listeners = ["PLAINTEXT"] + ["SSL"] * tls + ["MTLS"] * mtls
    listeners += (["SASL_PLAINTEXT"] + ["SASL_SSL"] * tls) * (sasl is not None)
    login = connecting.new_login(sasl.value) if sasl else None
    cluster = KafkaCluster(
        nodes=nodes,
        listeners=listeners,
        users={login.user: login.password} if login else {},
        data_dir=data,
        port=port or None,
        progress=fetching,
    )
    with cluster:
        _print(connecting.instructions(cluster, listeners, login))
        run_until_signal(cluster)
        _print(["stopping"])


def _print(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)
