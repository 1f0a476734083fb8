"""`multilane audit CONSUMER`: whether every record that a group has settled has an account.

Thread: application.

Exit codes: 0 it is proved, 1 it is not, or could not be judged (the text says what), 2 the command was used wrongly, 3
the cluster cannot be reached. Nothing is written and no group is touched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multilane.cli.brokers import connected
from multilane.cli.foreign_text import as_json
from multilane.cli.option_values import Output, time_span
from multilane.cli.progress import doing
from multilane.cli.spark_options import Conf, conf_pairs, hush_libraries

NOT_PROVED = 1  # the exit code

Config = Annotated[
    Path, typer.Option(exists=True, dir_okay=False, help="multilane.yaml, which has the consumer in it.")
]
Profile = Annotated[str | None, typer.Option(help="The profile of --config that counts.")]
Accounts = Annotated[
    str | None, typer.Option(help="Where the accounts are, if Spark has another name for it than `audit`, as s3a://...")
]
Last = Annotated[str | None, typer.Option(help="Only the last of it, as 24h.")]
Since = Annotated[str | None, typer.Option(help="Only records as late as this (ISO 8601; UTC).")]
Until = Annotated[str | None, typer.Option(help="Only records before this (ISO 8601; UTC).")]
ExactlyOnce = Annotated[
    bool, typer.Option("--exactly-once", help="Fail if a record was, or may have been, handled more than once.")
]
Examples = Annotated[int, typer.Option(min=0, max=10_000, help="Findings of each kind that are named.")]
Master = Annotated[str, typer.Option(help="Where Spark compares: local[*], spark://HOST:PORT, k8s://..., yarn.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="For people or for programs.")]


def audit(  # noqa: PLR0913 - each is an option of the command
    consumer: Annotated[str, typer.Argument(help="The consumer, by its name in the configuration.")],
    *,
    config: Config = Path("multilane.yaml"),
    profile: Profile = None,
    accounts: Accounts = None,
    last: Last = None,
    since: Since = None,
    until: Until = None,
    exactly_once: ExactlyOnce = False,
    examples: Examples = 20,
    master: Master = "local[*]",
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Prove that read = done + skipped + retried + dead, by what a consumer with `audit` has written (with Spark)."""
    from multilane.audit.run import AuditRequest, audit_group
    from multilane.cli import audit_view  # commands import when they run
    from multilane.config.app.loading import load_app

    begin, end = time_span(last, since, until)
    pairs = conf_pairs(conf or [])
    app = load_app(config, profile)
    found = app.consumer(consumer)
    hush_libraries()
    with connected(), doing() as tell:
        request = AuditRequest(found, app.cluster(found.cluster), accounts, begin, end, examples, master, pairs)
        made = audit_group(request, tell)
    if output is Output.json:
        typer.echo(as_json(audit_view.facts(made, exactly_once=exactly_once)))
    else:
        audit_view.show(made, exactly_once=exactly_once)
    if not audit_view.is_proved(made, exactly_once=exactly_once):
        raise typer.Exit(NOT_PROVED)
