"""`multilane backfill MODULE:APP CONSUMER`: a listener over history, as a batch job, without its group.

Thread: application.

Exit codes: 0 all of it is handled, 1 records failed or something else did (the text says what), 2 the command was used
wrongly, 3 the cluster cannot be reached, 4 it was ended by a signal before it was through: start it again.
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
from multilane.cli.spark_options import Conf, conf_pairs, hush_libraries
from multilane.errors import TargetNotFound
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.engines.backfill.bounds import Bound
    from multilane.engines.backfill.driver import BackfillStatus
    from multilane.engines.backfill.run import Listeners

NOT_THROUGH: Final = 4  # the exit code
_LOG_EVERY: Final = 10  # seconds
_WORDS: Final[dict[str | None, Literal["earliest", "latest"]]] = {"earliest": "earliest", "latest": "latest"}

Target = Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the App is, as in shop.consumers:app.")]
Consumer = Annotated[str, typer.Argument(help="The consumer of the configuration whose listener runs.")]
State = Annotated[Path, typer.Option(file_okay=False, help="The directory of this backfill; started again it goes on.")]
From = Annotated[
    str | None,
    typer.Option("--from", help='Where it begins: earliest, a time (ISO 8601; UTC), or offsets as {"0": 10}.'),
]
To = Annotated[str | None, typer.Option("--to", help="Where it ends, the same way; else the latest at its beginning.")]
Master = Annotated[str, typer.Option(help="Where Spark runs: local[*], spark://HOST:PORT, k8s://..., yarn.")]
Tasks = Annotated[int | None, typer.Option(min=1, help="How many; else one for each slot, or for each partition.")]
Host = Annotated[str | None, typer.Option(help="This machine's address as executors reach it; else spark.driver.host.")]
Archive = Annotated[Path | None, typer.Option(help="What `multilane pack` made, for executors of a cluster.")]
ErrorsToTopic = Annotated[bool, typer.Option("--errors-to-topic", help="Copy what failed to the error topic, too.")]
SkipDeleted = Annotated[bool, typer.Option("--skip-deleted", help="Go on where a log begins if records are gone.")]
FailedOnly = Annotated[bool, typer.Option("--failed-only", help="Of one that is through: what failed, once more.")]
OutputOption = Annotated[Output, typer.Option("--output", "-o", help="For people or for programs.")]
LogLevel = Annotated[Level, typer.Option(help="How much is logged, to the error stream.")]


def backfill(  # noqa: PLR0913 - each is an option of the command
    target: Target,
    consumer: Consumer,
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
    output: OutputOption = Output.table,
    log_level: LogLevel = Level.warning,
) -> None:
    """Run a listener over a topic's history: ordered per key, resumable, and without touching its group."""
    from multilane.cli import backfill_view  # commands import when they run
    from multilane.engines.backfill import run as runtime
    from multilane.engines.spark_run import CONTINUOUS, SparkSettings

    level = log_level.value.upper()
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    hush_libraries()
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
    backfill_view.tell_what_is_left(outcome, state)
    if not outcome.is_through or outcome.failed_list is not None:
        raise typer.Exit(1 if outcome.is_through else NOT_THROUGH)


def bound(text: str | None, name: str) -> Bound | None:
    """What `--from` and `--to` accept."""
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
    """On a terminal how it goes is shown as long as it does; else it is in the log."""
    from rich.console import Console

    from multilane.cli.backfill_view import line
    from multilane.engines.backfill.run import Listeners

    console = Console(stderr=True)
    if not console.is_terminal:
        log = logger("multilane.backfill")

        calls = count()

        def tell(standing: BackfillStatus) -> None:
            if next(calls) % _LOG_EVERY == 0:
                log.info("%s", line(standing))

        yield Listeners(on_standing=tell)
        return
    with console.status("") as status:
        yield Listeners(
            lambda step: status.update(f"{step} ..."),
            lambda standing: status.update(line(standing)),
        )
