"""Progress on a terminal: the steps of a command, and the one-time download (two plain lines elsewhere).

Thread: application.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import typer

_TITLE = "fetching Apache Kafka (45 MB, once)"


@contextmanager
def fetching(total: int) -> Iterator[Callable[[], None]]:
    """Shows a bar of `total` steps; call the yielded function after each step."""
    if not sys.stderr.isatty():
        typer.echo(f"{_TITLE} ...", err=True)
        yield lambda: None
        typer.echo("fetched", err=True)
        return
    from rich.console import Console  # only a terminal needs it
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        task = bar.add_task(_TITLE, total=total)
        yield lambda: bar.advance(task)
        bar.update(task, completed=total)


@contextmanager
def progress_steps() -> Iterator[Callable[[str], object]]:
    """Shows the current step on a terminal; call the yielded function with each step."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda step: None
        return
    with console.status("") as status:
        yield lambda step: status.update(f"{step} ...")
