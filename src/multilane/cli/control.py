"""`multilane control SOCKET`: pauses consumers of a running application, lets them go on, changes their lanes.

Thread: application.

Exit codes: 0 it is so now, 1 it could not be done (the text says what), 2 the command was used wrongly.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from multilane.cli.option_values import Output


class ControlCommand(StrEnum):
    """What is to be done."""

    show = "show"
    pause = "pause"
    resume = "resume"
    lanes = "lanes"


def control(
    socket: Annotated[Path, typer.Argument(help="What `multilane run --control` was given.")],
    do: Annotated[ControlCommand, typer.Argument(help="What to do.")] = ControlCommand.show,
    consumer: Annotated[str | None, typer.Argument(help="The consumer, by its name in the configuration.")] = None,
    lanes: Annotated[int | None, typer.Argument(help="Lanes for each partition; left out: as configured.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="For people or for programs.")] = Output.table,
) -> None:
    """Pause a consumer of a running app, resume it, or change its lanes, until the run ends."""
    from multilane.app.control import ask

    if do is not ControlCommand.show and consumer is None:
        raise typer.BadParameter(f"say which consumer: multilane control {socket} {do} CONSUMER", param_hint="consumer")
    if lanes is not None and do is not ControlCommand.lanes:
        raise typer.BadParameter(f"{do} takes no number", param_hint="lanes")
    answer = ask(socket, {"do": do.value, "consumer": consumer, "lanes": lanes})
    if output is Output.json:
        typer.echo(json.dumps(answer["consumers"], indent=2))
    else:
        _show(answer["consumers"])


def _show(consumers: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from multilane.cli.foreign_text import escaped
    from multilane.cli.tables import output, show_table

    table = Table()
    for name in ("consumer", "state", "lanes", "configured"):
        table.add_column(name, justify="right" if name in ("lanes", "configured") else "left", no_wrap=True)
    for name, told in consumers.items():
        state = "paused" if told["paused"] else "running"
        table.add_row(*map(Text, (escaped(name, 100), state, str(told["lanes"]), str(told["configured"]))))
    show_table(output(), table)
