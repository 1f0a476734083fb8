"""`multilane run MODULE:APP`: runs an app until a signal stops it.

Thread: application.

Exit codes: 0 clean shutdown, 1 failure (the message says what failed), 2 usage error.
"""

from __future__ import annotations

import logging
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from multilane.cli.spark_options import Conf, conf_pairs, lease_terms, quiet_libraries
from multilane.errors import TargetNotFound


class EngineChoice(StrEnum):
    """The engine that runs the lanes."""

    spark = "spark"
    process = "process"


class FlowChoice(StrEnum):
    """How the lanes run on Spark."""

    batches = "batches"
    continuous = "continuous"


class Level(StrEnum):
    """The lowest level that is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def run(  # noqa: PLR0913, PLR0917 - each is an option of the command
    target: Annotated[
        str, typer.Argument(metavar="MODULE:APP", help="Import path of the App, such as shop.consumers:app.")
    ],
    engine: Annotated[
        EngineChoice, typer.Option(help="The engine that runs the lanes: Spark, or this process.")
    ] = EngineChoice.spark,
    flow: Annotated[
        FlowChoice,
        typer.Option(help="On Spark: a streaming query (batches), or long-lived group members (continuous)."),
    ] = FlowChoice.batches,
    master: Annotated[
        str, typer.Option(help="Spark master: local[*], spark://HOST:PORT, k8s://..., yarn.")
    ] = "local[*]",
    members: Annotated[
        int | None,
        typer.Option(min=1, help="Number of group members (default: one per Spark slot, or one process)."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(help="On Spark: this machine's address as executors reach it (default: spark.driver.host)."),
    ] = None,
    archive: Annotated[
        Path | None, typer.Option(help="On Spark: the archive from `multilane pack`, for executors of a cluster.")
    ] = None,
    target_batch_duration: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Batches flow: how long each batch runs (default: 20s).")
    ] = None,
    max_batch_duration: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            help="Batches flow: calls still running at this point are carried into the next batch "
            "(default: target + 0.5s).",
        ),
    ] = None,
    conf: Conf = None,
    control: Annotated[
        Path | None, typer.Option(help="Create a control socket here, for `multilane control` and `multilane top`.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Serve /metrics (for Prometheus), /livez and /readyz.")
    ] = None,
    log_level: Annotated[Level, typer.Option(help="Lowest level to log (to stderr).")] = Level.info,
) -> None:
    """Run an app's consumers until SIGTERM or Ctrl-C, then settle what is in flight, commit and leave the groups."""
    logging.basicConfig(level=log_level.value.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    pairs = conf_pairs(conf or [])
    has_durations = not (target_batch_duration is None and max_batch_duration is None)
    if has_durations and (engine is not EngineChoice.spark or flow is not FlowChoice.batches):
        raise typer.BadParameter("--target-batch-duration and --max-batch-duration are for the batches flow on Spark")
    try:
        if engine is EngineChoice.process:
            _run_here(target, members or 1, control, metrics)
        else:
            terms = lease_terms(target_batch_duration, max_batch_duration)
            settings = {"flow": flow.value, "master": master, "members": members, "conf": pairs, "archive": archive}
            _run_on_spark(target, host=host, control=control, metrics=metrics, terms=terms, **settings)
    except TargetNotFound as error:
        raise typer.BadParameter(str(error)) from None


def _run_here(target: str, members: int, control: Path | None, metrics: str | None) -> None:
    from multilane.app.control import controlled_at
    from multilane.app.member_processes import run_member_processes
    from multilane.app.metrics_server import served
    from multilane.app.targets import find_app

    if members > 1:
        log_level = logging.getLevelName(logging.getLogger().level)
        run_member_processes(target, members, log_level, metrics=metrics, control=control)
        return
    app = find_app(target)
    with served(app, metrics), controlled_at(app, control):
        app.run()


def _run_on_spark(target: str, **settings: Any) -> None:
    from multilane.engines.spark_run import SparkSettings, run_on_spark

    quiet_libraries()
    run_on_spark(target, SparkSettings(log_level=logging.getLevelName(logging.getLogger().level), **settings))
