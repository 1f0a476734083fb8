"""The options that name the brokers, and the exit code when they do not answer.

Thread: application.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

import typer

from multilane.cli.foreign_text import error_text
from multilane.errors import AuthenticationError, NetworkError, OperationTimeout
from multilane.escaping import text_of

CANNOT_CONNECT: Final = 3  # the exit code

Bootstrap = Annotated[
    str | None, typer.Option("--bootstrap-server", "--brokers", help="HOST:PORT of one or more brokers.")
]
CommandConfig = Annotated[
    Path | None,
    typer.Option("--command-config", exists=True, dir_okay=False, help="Java properties file for the connection."),
]
Timeout = Annotated[float, typer.Option(min=1.0, help="Seconds to wait for the brokers.")]


@contextmanager
def connected() -> Iterator[None]:
    try:
        yield
    except (NetworkError, AuthenticationError, OperationTimeout) as error:
        typer.echo(error_text(text_of(error)), err=True)
        raise typer.Exit(CANNOT_CONNECT) from None
