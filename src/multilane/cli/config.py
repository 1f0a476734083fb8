"""`multilane config`: checks an app's configuration files, explains the source of each value, prints the schema.

Thread: application.

Exit codes: 0 no problems, 1 problems found, 2 usage error. The output holds no secret: problems and settings are made
without them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multilane.cli.option_values import Output

if TYPE_CHECKING:
    from multilane.config.app.explain import Setting
    from multilane.config.app.loading import Loaded
    from multilane.config.app.model import AppConfig

app = typer.Typer(help="Check and explain the configuration of an app.", no_args_is_help=True)

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="multilane.yaml, or files with clusters, consumers, producers.",
    ),
]
ActiveProfile = Annotated[str | None, typer.Option(help="Active profile.")]


@app.command("check")
def check(files: Files, profile: ActiveProfile = None) -> None:
    """Print every problem with its file and line, then advice."""
    from multilane.config.app.advice import advice  # commands import when they run

    config = _loaded(files, profile).config
    for sentence in advice(config):
        typer.echo(f"advice: {sentence}")
    typer.echo(f"ok: {_counted(config)}")


@app.command("explain")
def explain(
    files: Files,
    profile: ActiveProfile = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Output format.")] = (Output.table),
) -> None:
    """Print every value and its source: file and line, profile, environment variable, or default."""
    from multilane.config.app.explain import explain as settings_of

    settings = settings_of(_loaded(files, profile))
    if output is Output.json:
        typer.echo(json.dumps([_as_json(setting) for setting in settings], indent=2))
    else:
        _print_table(settings)


@app.command("schema")
def schema() -> None:
    """Print the JSON Schema of multilane.yaml, for editors."""
    from multilane.config.app.schema import schema as made

    typer.echo(json.dumps(made(), indent=2))


def _loaded(files: list[Path], profile: str | None) -> Loaded:
    """The configuration. If it has problems, prints them and exits with code 1."""
    from multilane.config.app.loading import load
    from multilane.errors import ConfigProblems

    try:
        return load(files, profile)
    except ConfigProblems as error:
        for problem in error.problems:
            typer.echo(str(problem))
        count = len(error.problems)
        typer.echo(f"{count} {'problem' if count == 1 else 'problems'} found", err=True)
        raise typer.Exit(1) from None


def _counted(config: AppConfig) -> str:
    counts = {
        "cluster": len(config.clusters),
        "consumer": len(config.consumers),
        "producer": len(config.producers),
        "error consumer": len(config.shovels),
    }
    return ", ".join(f"{count} {kind}{'' if count == 1 else 's'}" for kind, count in counts.items())


def _as_json(setting: Setting) -> dict[str, object]:
    origin = setting.origin
    location = origin.location
    return {
        "path": setting.path,
        "value": setting.value,
        "origin": "default" if location is None else "environment" if origin.variables else "file",
        "file": None if location is None else location.file,
        "line": None if location is None else location.line,
        "column": None if location is None else location.column,
        "profile": origin.profile,
        "variables": list(origin.variables),
    }


def _print_table(settings: tuple[Setting, ...]) -> None:
    from rich.table import Table
    from rich.text import Text

    from multilane.cli.tables import output, show_table

    table = Table(box=None, pad_edge=False)
    for heading in ("setting", "value", "from"):
        table.add_column(heading)
    for setting in settings:
        # As plain text: rich would take a value in brackets for markup.
        table.add_row(Text(setting.path), Text(setting.shown), Text(str(setting.origin)))
    show_table(output(), table)
