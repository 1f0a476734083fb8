"""The `multilane` program: commands, version and error output.

Thread: application.

Commands import what they need when they run, so that `multilane --help` is fast. Multilane's own errors print one line
to stderr and exit with code 1; any other exception is a defect and keeps its traceback.
"""

from __future__ import annotations

import sys
from typing import Annotated, Final

import typer

from multilane.cli import (
    audit,
    backfill,
    config,
    control,
    demo,
    dev,
    errors,
    offsets_partition,
    pack,
    plan,
    run,
    top,
    triggers,
)
from multilane.cli.foreign_text import error_text
from multilane.errors import MultilaneError
from multilane.escaping import text_of

_NO_WRAPPING: Final = 1_000_000  # columns

app = typer.Typer(
    name="multilane",
    help="Kafka consumption with many ordered lanes per partition.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(dev.app, name="dev")
app.add_typer(config.app, name="config")
app.add_typer(errors.app, name="errors")
app.add_typer(triggers.app, name="triggers")
app.command("demo")(demo.demo)
app.command("run")(run.run)
app.command("control")(control.control)
app.command("pack")(pack.pack)
app.command("plan")(plan.plan)
app.command("audit")(audit.audit)
app.command("top")(top.top)
app.command("offsets-partition")(offsets_partition.offsets_partition)
app.command("backfill")(backfill.backfill)


def _show_version(requested: bool) -> None:
    if requested:
        from importlib.metadata import version  # costs 20 ms, which other commands need not pay

        typer.echo(f"multilane {version('multilane')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of the program itself."""
    del version


def main() -> None:
    """The entry point."""
    is_piped = not (sys.stdout.isatty() and sys.stderr.isatty())
    if is_piped:  # no boxes, and lines as long as they are: a path must not be cut, nor an option
        app.rich_markup_mode = None
    try:
        app(**({"terminal_width": _NO_WRAPPING} if is_piped else {}))
    except (MultilaneError, OSError) as error:  # OSError: a file or port of the user's, which the text names
        typer.echo(error_text(text_of(error)), err=True)
        sys.exit(1)
