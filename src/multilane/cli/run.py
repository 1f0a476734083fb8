"""`multilane run MODULE:APP`: runs an application until it is told to end.

Thread: application.

Exit codes: 0 ended in order, 1 something failed (the text says what), 2 the command was used wrongly.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from multilane.cli.spark_options import Conf, conf_pairs, hush_libraries, loan_terms
from multilane.errors import TargetNotFound


class EngineChoice(StrEnum):
    """What runs the lanes."""

    spark = "spark"
    process = "process"


class FlowChoice(StrEnum):
    """How they run on Spark."""

    batches = "batches"
    continuous = "continuous"


class Level(StrEnum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def run(  # noqa: PLR0913, PLR0917 - each is an option of the command
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the App is, as in shop.consumers:app.")],
    engine: Annotated[
        EngineChoice, typer.Option(help="What runs the lanes: Spark, or this process.")
    ] = EngineChoice.spark,
    flow: Annotated[
        FlowChoice, typer.Option(help="On Spark: a streaming query; or long-lived tasks, each a member of the groups.")
    ] = FlowChoice.batches,
    master: Annotated[str, typer.Option(help="On Spark: local[*], spark://HOST:PORT, k8s://..., yarn.")] = "local[*]",
    members: Annotated[
        int | None,
        typer.Option(min=1, help="How many members; else one for each slot of Spark, or one process."),
    ] = None,
    host: Annotated[
        str | None, typer.Option(help="On Spark: this machine's address as executors reach it; else spark.driver.host.")
    ] = None,
    archive: Annotated[
        Path | None, typer.Option(help="On Spark: what `multilane pack` made, for executors of a cluster.")
    ] = None,
    target_batch_duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="In batches: how long each batch runs (default: 20s).")
    ] = None,
    max_batch_duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="In batches: what is in work then goes on without its batch; else half a second beyond its end.",
        ),
    ] = None,
    conf: Conf = None,
    control: Annotated[
        Path | None, typer.Option(help="A socket to be made here, over which `multilane control` steers the run.")
    ] = None,
    log_level: Annotated[Level, typer.Option(help="How much is logged, to the error stream.")] = Level.info,
) -> None:
    """Run an app's consumers until SIGTERM or Ctrl-C; then settle what is in work, commit and leave the groups."""
    logging.basicConfig(level=log_level.value.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    pairs = conf_pairs(conf or [])
    is_told_lengths = not (target_batch_duration is None and max_batch_duration is None)
    if is_told_lengths and (engine is not EngineChoice.spark or flow is not FlowChoice.batches):
        raise typer.BadParameter("--target-batch-duration and --max-batch-duration are for batches on Spark alone")
    try:
        if engine is EngineChoice.process:
            _run_here(target, members or 1, control)
        else:
            terms = loan_terms(target_batch_duration, max_batch_duration)
            settings = {"flow": flow.value, "master": master, "members": members, "conf": pairs, "archive": archive}
            _run_on_spark(target, host=host, control=control, terms=terms, **settings)
    except TargetNotFound as error:
        raise typer.BadParameter(str(error)) from None


def _run_here(target: str, members: int, control: Path | None) -> None:
    from multilane.app.control import controlled_at
    from multilane.app.member_processes import run_member_processes
    from multilane.app.targets import find_app

    if members > 1:
        if control is not None:
            raise typer.BadParameter("--control steers one process: leave it out with several --members, or use Spark")
        run_member_processes(target, members, logging.getLevelName(logging.getLogger().level))
        return
    app = find_app(target)
    with controlled_at(app, control):
        app.run()


def _run_on_spark(target: str, **settings: Any) -> None:
    from multilane.engines.spark_run import SparkSettings, run_on_spark

    hush_libraries()
    run_on_spark(target, SparkSettings(log_level=logging.getLevelName(logging.getLogger().level), **settings))
