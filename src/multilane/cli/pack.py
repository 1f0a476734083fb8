"""`multilane pack APP.zip`: packs an app for the executors of a cluster.

Thread: application.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multilane.cli.termination import cleaned_up

Allow = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATTERN", help="Pack matching files although they look like keys or hold secrets; may be repeated."
    ),
]
Exclude = Annotated[
    list[str] | None,
    typer.Option(metavar="PATTERN", help="Leave out matching names or paths; may be repeated."),
]


def pack(
    archive: Annotated[Path, typer.Argument(metavar="APP.zip", help="The archive to write.", dir_okay=False)],
    directory: Annotated[
        Path, typer.Option(help="The directory that the app is imported from.", exists=True, file_okay=False)
    ] = Path(),
    allow: Allow = None,
    exclude: Exclude = None,
) -> None:
    """Pack an app's modules and files for the executors of a cluster: multilane run ... --archive APP.zip."""
    from multilane.spark.packing import pack as write_archive

    with cleaned_up():  # an unfinished archive is removed
        files = write_archive(directory, archive, allow or (), exclude or ())
    typer.echo(f"{archive}: {len(files)} files, {archive.stat().st_size:,} bytes")
