"""`multilane backfill MODULE:APP CONSUMER`: runs a listener over history as a batch job, without its group.

Thread: application.

Exit codes: 0 every record was handled, 1 records or the run failed (the message says what), 2 usage error, 3 cluster
unreachable, 4 a signal stopped the run before its end: start it again to resume.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from multilane.cli.brokers import connected
from multilane.cli.foreign_text import as_json
from multilane.cli.option_values import Output, moment
from multilane.cli.run import Level
from multilane.cli.shared_options import Master, OutputOption
from multilane.cli.spark_options import Conf, conf_pairs, quiet_libraries
from multilane.errors import TargetNotFound
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.engines.backfill.bounds import Bound
    from multilane.engines.backfill.driver import BackfillStatus
    from multilane.engines.backfill.run import Listeners

INTERRUPTED: Final = 4  # the exit code
_LOG_EVERY: Final = 10  # seconds
_WORDS: Final[dict[str | None, Literal["earliest", "latest"]]] = {"earliest": "earliest", "latest": "latest"}

TargetArgument = Annotated[
    str, typer.Argument(metavar="MODULE:APP", help="Import path of the App, such as shop.consumers:app.")
]
ConsumerArgument = Annotated[
    str, typer.Argument(metavar="CONSUMER", help="Name of the configured consumer whose listener runs.")
]
State = Annotated[Path, typer.Option(file_okay=False, help="Directory for this backfill's state; reuse it to resume.")]
From = Annotated[
    str | None,
    typer.Option("--from", help='Where to begin: earliest, a time (ISO 8601, UTC), or offsets such as {"0": 10}.'),
]
To = Annotated[
    str | None, typer.Option("--to", help="Where to end, in the same forms (default: latest when it first starts).")
]
Tasks = Annotated[
    int | None,
    typer.Option(min=1, help="Number of Spark tasks (default: one per slot of a local master, else per partition)."),
]
Host = Annotated[
    str | None, typer.Option(help="This machine's address as executors reach it (default: spark.driver.host).")
]
Archive = Annotated[
    Path | None, typer.Option(help="The archive from `multilane pack`, for the executors of a cluster.")
]
ErrorsToTopic = Annotated[bool, typer.Option("--errors-to-topic", help="Also copy failed records to the error topic.")]
SkipDeleted = Annotated[
    bool, typer.Option("--skip-deleted", help="Skip records that were deleted from the log instead of failing.")
]
FailedOnly = Annotated[
    bool, typer.Option("--failed-only", help="Reprocess only the failed records of a finished backfill.")
]
Metrics = Annotated[
    str | None, typer.Option(metavar="HOST:PORT", help="Serve /metrics (for Prometheus), /livez and /readyz.")
]
LogLevel = Annotated[Level, typer.Option(help="Lowest level to log (to stderr).")]


def backfill(  # noqa: PLR0913 - each is an option of the command
    target: TargetArgument,
    consumer: ConsumerArgument,
    *,
    state: State,
    begin: From = None,
    end: To = None,
    master: Master = "local[*]",
    tasks: Tasks = None,
    host: Host = None,
    archive: Archive = None,
    conf: Conf = None,
    errors_to_topic: ErrorsToTopic = False,
    skip_deleted: SkipDeleted = False,
    failed_only: FailedOnly = False,
    metrics: Metrics = None,
    output: OutputOption = Output.table,
    log_level: LogLevel = Level.warning,
) -> None:
    """Run a listener over a topic's history, ordered per key and resumable, without touching its group."""
    from multilane.cli import backfill_view  # commands import when they run
    from multilane.engines.backfill import run as runtime
    from multilane.engines.spark_run import CONTINUOUS, SparkSettings

    level = log_level.value.upper()
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    quiet_libraries()
    request = runtime.BackfillRequest(
        target,
        consumer,
        state,
        bound(begin, "from"),
        bound(end, "to"),
        tasks,
        errors_to_topic,
        skip_deleted,
        failed_only,
        metrics,
        SparkSettings(CONTINUOUS, master, None, conf_pairs(conf or []), None, archive, host, level),
    )
    try:
        with connected(), _progress() as listeners:
            outcome = runtime.backfill(request, listeners)
    except TargetNotFound as error:
        raise typer.BadParameter(str(error)) from None
    if output is Output.json:
        typer.echo(as_json(backfill_view.facts(outcome, state)))
    else:
        backfill_view.show(outcome)
    backfill_view.report_unfinished(outcome, state)
    if not outcome.is_through or outcome.failed_list is not None:
        raise typer.Exit(1 if outcome.is_through else INTERRUPTED)


def bound(text: str | None, name: str) -> Bound | None:
    """The value of `--from` or `--to`."""
    from multilane.engines.backfill.bounds import parse_offsets

    if text in _WORDS:
        return _WORDS[text]
    if text is not None and text.lstrip().startswith("{"):
        try:
            return parse_offsets(text)
        except ValueError as error:
            raise typer.BadParameter(f"{text!r}: {error}", param_hint=name) from None
    return moment(text, name)


@contextmanager
def _progress() -> Iterator[Listeners]:
    """Shows progress on a terminal; elsewhere it goes to the log."""
    from rich.console import Console

    from multilane.cli.backfill_view import line
    from multilane.engines.backfill.run import Listeners

    console = Console(stderr=True)
    if not console.is_terminal:
        log = logger("multilane.backfill")

        calls = count()

        def on_status(status: BackfillStatus) -> None:
            if next(calls) % _LOG_EVERY == 0:
                log.info("%s", line(status))

        yield Listeners(on_status=on_status)
        return
    with console.status("") as spinner:
        yield Listeners(
            lambda step: spinner.update(f"{step} ..."),
            lambda status: spinner.update(line(status)),
        )
