"""Options that several commands have, declared once.

Thread: none (types).
"""

from __future__ import annotations

from typing import Annotated

import typer

from multilane.cli.option_values import Output

Profile = Annotated[str | None, typer.Option(help="Active profile of --config.")]
Last = Annotated[str | None, typer.Option(help="Only the most recent part, such as 24h.")]
Since = Annotated[str | None, typer.Option(help="Only records from this time on (ISO 8601, UTC).")]
Until = Annotated[str | None, typer.Option(help="Only records before this time (ISO 8601, UTC).")]
Master = Annotated[str, typer.Option(help="Spark master: local[*], spark://HOST:PORT, k8s://..., yarn.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="Output format.")]
