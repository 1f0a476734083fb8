"""`multilane pack APP.zip`: what executors of a cluster need of an application.

Thread: application.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def pack(
    archive: Annotated[Path, typer.Argument(metavar="APP.zip", help="The archive to write.", dir_okay=False)],
    directory: Annotated[
        Path, typer.Option(help="Where the application is imported from.", exists=True, file_okay=False)
    ] = Path(),
) -> None:
    """Pack an application's modules and files for the executors of a cluster: multilane run ... --archive APP.zip."""
    from multilane.spark.packing import pack as write_archive

    files = write_archive(directory, archive)
    typer.echo(f"{archive}: {len(files)} files, {archive.stat().st_size:,} bytes")
