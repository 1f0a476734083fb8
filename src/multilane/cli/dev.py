"""`multilane dev`: a real Kafka in the foreground, and its jars.

Thread: application.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="A real Apache Kafka for development.", no_args_is_help=True)


class Sasl(StrEnum):
    """What `--sasl` accepts."""

    scram = "scram"
    plain = "plain"


@app.command("fetch-jars")
def fetch_jars() -> None:
    """Fetch Kafka's jars into the user cache, or check those that are there."""
    from multilane.cli.progress import fetching  # commands import when they run
    from multilane.dev import jars
    from multilane.java import find_java

    installation = jars.fetch(find_java(), progress=fetching)
    typer.echo(f"Kafka is in {installation.directory}, {len(jars.pinned())} jars, checksums verified")


@app.command("kafka")
def kafka(
    nodes: Annotated[int, typer.Option(help="Nodes of the cluster: 1 or 3.")] = 1,
    port: Annotated[
        int, typer.Option(min=0, max=65_535, help="First port; the next follow. 0 takes free ones.")
    ] = 9092,
    tls: Annotated[bool, typer.Option("--tls", help="Add a TLS listener.")] = False,
    mtls: Annotated[bool, typer.Option("--mtls", help="Add a TLS listener that asks for a certificate.")] = False,
    sasl: Annotated[Sasl | None, typer.Option(help="Add a SASL listener, over TLS too with --tls.")] = None,
    data: Annotated[Path | None, typer.Option(help="Keep the data in this directory.")] = None,
) -> None:
    """Run Apache Kafka on 127.0.0.1 until Ctrl-C."""
    from multilane.cli import connecting  # commands import when they run
    from multilane.cli.foreground import run_until_told
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
        _say(connecting.instructions(cluster, listeners, login))
        run_until_told(cluster)
        _say(["stopping"])


def _say(lines: list[str]) -> None:
    for line in lines:
        typer.echo(line)
