"""`multilane offsets-partition`: finds the partition that stores a group's offsets.

Thread: application.
"""

from __future__ import annotations

from typing import Annotated

import typer

from multilane.cli.brokers import Bootstrap, CommandConfig, Timeout, connected
from multilane.cli.command_config import client_properties


def offsets_partition(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP", help="Values of group.id.")],
    partitions: Annotated[
        int | None, typer.Option(min=1, help="offsets.topic.num.partitions (default: ask the brokers).")
    ] = None,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 15.0,
) -> None:
    """Show which partition of __consumer_offsets stores the offsets of each group: abs(hash(group.id)) % partitions.

    The leader of that partition coordinates the group.
    """
    from multilane.client.admin import offsets_partition as placing  # commands import when they run

    if partitions is None:
        from multilane.client.admin.admin import Admin

        with connected(), Admin(client_properties(bootstrap_server, command_config, timeout)) as admin:
            partitions = admin.offsets_topic_partitions(timeout)
    for group in groups:
        typer.echo(f"{placing.offsets_partition(group, partitions)}\t{group}")
