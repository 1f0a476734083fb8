"""`multilane audit CONSUMER`: checks that every record that a group has settled has an audit record.

Thread: application.

Exit codes: 0 proved, 1 not proved or not judged (the message says why), 2 usage error, 3 cluster unreachable. The
command writes nothing and touches no group.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from multilane.cli.brokers import connected
from multilane.cli.foreign_text import as_json
from multilane.cli.option_values import Output, time_span
from multilane.cli.progress import progress_steps
from multilane.cli.shared_options import Last, Master, OutputOption, Profile, Since, Until
from multilane.cli.spark_options import Conf, conf_pairs, quiet_libraries

NOT_PROVED = 1  # the exit code

AuditConfigFile = Annotated[
    Path, typer.Option(exists=True, dir_okay=False, help="The multilane.yaml that has the consumer.")
]
RecordsPath = Annotated[
    str | None,
    typer.Option("--accounts", help="Path of the audit records for Spark (default: `audit`), such as s3a://..."),
]
ExactlyOnce = Annotated[
    bool, typer.Option("--exactly-once", help="Fail if a record was, or may have been, handled more than once.")
]
Examples = Annotated[int, typer.Option(min=0, max=10_000, help="How many findings of each kind to list.")]


def audit(  # noqa: PLR0913 - each is an option of the command
    consumer: Annotated[str, typer.Argument(metavar="CONSUMER", help="Name of the consumer in the configuration.")],
    *,
    config: AuditConfigFile = Path("multilane.yaml"),
    profile: Profile = None,
    records_path: RecordsPath = None,
    last: Last = None,
    since: Since = None,
    until: Until = None,
    exactly_once: ExactlyOnce = False,
    examples: Examples = 20,
    master: Master = "local[*]",
    conf: Conf = None,
    output: OutputOption = Output.table,
) -> None:
    """Prove that read = done + skipped + retried + dead, from the audit records of a consumer (uses Spark)."""
    from multilane.audit.run import AuditRequest, audit_group
    from multilane.cli import audit_view  # commands import when they run
    from multilane.config.app.loading import load_app

    begin, end = time_span(last, since, until)
    pairs = conf_pairs(conf or [])
    app = load_app(config, profile)
    found = app.consumer(consumer)
    quiet_libraries()
    with connected(), progress_steps() as on_step:
        request = AuditRequest(found, app.cluster(found.cluster), records_path, begin, end, examples, master, pairs)
        made = audit_group(request, on_step)
    if output is Output.json:
        typer.echo(as_json(audit_view.facts(made, exactly_once=exactly_once)))
    else:
        audit_view.show(made, exactly_once=exactly_once)
    if not audit_view.is_proved(made, exactly_once=exactly_once):
        raise typer.Exit(NOT_PROVED)
