"""`multilane control SOCKET`: pauses and resumes consumers of a running app, and changes their lanes.

Thread: application.

Exit codes: 0 done, 1 failure (the message says what failed), 2 usage error.
"""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from multilane.cli.option_values import Output


class ControlCommand(StrEnum):
    """The action of the command."""

    show = "show"
    pause = "pause"
    resume = "resume"
    lanes = "lanes"


def control(
    socket: Annotated[Path, typer.Argument(metavar="SOCKET", help="The socket of `multilane run --control`.")],
    do: Annotated[ControlCommand, typer.Argument(metavar="ACTION", help="The action.")] = ControlCommand.show,
    consumer: Annotated[
        str | None, typer.Argument(metavar="CONSUMER", help="Name of the consumer in the configuration.")
    ] = None,
    lanes: Annotated[
        int | None, typer.Argument(metavar="LANES", help="Lanes per partition (default: as configured).")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = (Output.table),
) -> None:
    """Pause or resume a consumer of a running app, or change its lanes, for the rest of the run."""
    from multilane.app.control import ask

    if do is not ControlCommand.show and consumer is None:
        raise typer.BadParameter(f"name the consumer: multilane control {socket} {do} CONSUMER", param_hint="CONSUMER")
    if lanes is not None and do is not ControlCommand.lanes:
        raise typer.BadParameter(f"{do} takes no number", param_hint="LANES")
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
    for name, status in consumers.items():
        state = "paused" if status["paused"] else "running"
        table.add_row(*map(Text, (escaped(name, 100), state, str(status["lanes"]), str(status["configured"]))))
    show_table(output(), table)
