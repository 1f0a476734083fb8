"""`multilane triggers`: the positions of triggers that share a consumer group, as its commits name them.

Thread: application.

Exit codes: 0 success, 1 failure (no such trigger, or the group has members), 2 usage error, 3 cluster unreachable.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from multilane.cli.brokers import Bootstrap, CommandConfig, Timeout, connected
from multilane.cli.command_config import client_properties
from multilane.cli.foreign_text import as_json
from multilane.cli.option_values import Output
from multilane.cli.shared_options import OutputOption

if TYPE_CHECKING:
    from multilane.commit.trigger_positions import Position
    from multilane.types import OffsetAndMetadata, TopicPartition

app = typer.Typer(help="List, rename and forget the triggers of a consumer group.", no_args_is_help=True)

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The group.id.")]
TriggerArgument = Annotated[str, typer.Argument(metavar="NAME", help="The trigger: the name of its consumer.")]


@app.command("list")
def list_(
    group: GroupArgument,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 15.0,
    output: OutputOption = Output.table,
) -> None:
    """Show how far each trigger is in each partition. The lowest position is the group's committed offset."""
    from multilane.commit.trigger_changes import positions_of

    found = _committed(group, client_properties(bootstrap_server, command_config, timeout), timeout)
    facts = [
        _facts(partition, committed.offset, name, position)
        for partition, committed in sorted(found.items())
        for name, position in sorted(positions_of(committed).items())
    ]
    if output is Output.json:
        typer.echo(as_json(facts))
    else:
        _show(group, facts)


@app.command("rename")
def rename(
    group: GroupArgument,
    old: TriggerArgument,
    new: Annotated[str, typer.Argument(metavar="NEW_NAME", help="The new name.")],
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 15.0,
) -> None:
    """Carry the position of a trigger over to a new name. Stop the app first."""
    from multilane.commit.trigger_changes import renamed

    properties = client_properties(bootstrap_server, command_config, timeout)
    changed = _change(group, old, properties, timeout, lambda committed: renamed(committed, old, new))
    typer.echo(f"{old} is {new} now, in {changed} partitions")


@app.command("forget")
def forget(
    group: GroupArgument,
    name: TriggerArgument,
    bootstrap_server: Bootstrap = None,
    command_config: CommandConfig = None,
    timeout: Timeout = 15.0,
) -> None:
    """Remove a trigger, so that commits no longer wait for it. Stop the app first.

    If it runs again later, it begins at the group's position.
    """
    from multilane.commit.trigger_changes import forgotten

    properties = client_properties(bootstrap_server, command_config, timeout)
    changed = _change(group, name, properties, timeout, lambda committed: forgotten(committed, name))
    typer.echo(f"{name} is forgotten, in {changed} partitions")


def _committed(group: str, properties: dict[str, object], timeout: float) -> dict[TopicPartition, OffsetAndMetadata]:
    from multilane.client.admin.admin import Admin
    from multilane.types import OffsetAndMetadata

    with connected(), Admin(properties) as admin:
        found = admin.group_offsets(group, timeout)
    return {p: OffsetAndMetadata(at.offset, at.leader_epoch, at.metadata) for p, at in found.items()}


def _change(
    group: str,
    name: str,
    properties: dict[str, object],
    timeout: float,
    change: Callable[[OffsetAndMetadata], OffsetAndMetadata | None],
) -> int:
    from multilane.client.consumer import Consumer
    from multilane.errors import CommitRefused

    found = _committed(group, properties, timeout)
    try:
        changes = {p: changed for p, committed in found.items() if (changed := change(committed)) is not None}
    except ValueError as error:
        raise _failed(str(error)) from None
    if not changes:
        raise _failed(f"no commit of group {group} names a trigger {name!r}; see `multilane triggers list {group}`")
    try:
        with connected(), Consumer(properties | {"group.id": group, "enable.auto.commit": False}) as consumer:
            consumer.assign(list(changes))
            consumer.commit(changes, timeout=timeout)
    except CommitRefused as error:
        raise _failed(f"group {group} cannot be changed while it has members, stop the app first: {error}") from None
    return len(changes)


def _failed(text: str) -> typer.Exit:
    typer.echo(f"error: {text}", err=True)
    return typer.Exit(1)


def _facts(partition: TopicPartition, committed: int, name: str, position: Position) -> dict[str, Any]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "committed": committed,
        "trigger": name,
        "position": position.offset,
        "settled_beyond": sum(last - first + 1 for first, last in position.runs),
        "absent_since": None
        if position.absent_since is None
        else datetime.fromtimestamp(position.absent_since, UTC).isoformat(),
    }


def _show(group: str, facts: list[dict[str, Any]]) -> None:
    from rich.table import Table
    from rich.text import Text

    from multilane.cli.foreign_text import escaped
    from multilane.cli.tables import output, show_table

    if not facts:
        typer.echo(f"no commit of group {group} names triggers")
        return
    table = Table(title=f"Triggers of group {group}")
    for heading in ("partition", "trigger", "position", "ahead", "settled beyond", "absent since"):
        table.add_column(heading, justify="left" if heading in ("partition", "trigger") else "right")
    for fact in facts:
        table.add_row(
            Text(f"{fact['topic']}-{fact['partition']}"),
            Text(escaped(fact["trigger"])),
            str(fact["position"]),
            str(fact["position"] - fact["committed"]),
            str(fact["settled_beyond"]),
            fact["absent_since"] or "",
        )
    show_table(output(), table)
