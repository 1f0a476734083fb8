"""`App.handle`: runs rows of a DataFrame on the lanes of a consumer. The composition root of the driver.

Thread: application (the driver's).

Checks everything that can be checked before Spark starts a task. Never serializes the application: workers import it by
`module:name`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypedDict

from multilane.app.targets import find_app, target_of
from multilane.engines.dataframe.worker_app import check_stageable
from multilane.errors import ConfigError
from multilane.logs import logger
from multilane.spark.session import is_speculating

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from multilane.app.app import App

log = logger(__name__)

_FACTORY: Final = "multilane.engines.dataframe.worker_app:DataFrameWorkerApp"


class StageOptions(TypedDict, total=False):
    """The options of `App.handle`."""

    target: str  # module:name of the application for workers (default: searched in the loaded modules)
    home: str  # the directory on workers that it is imported from (default: the current one)
    in_order: bool  # whether rows are in the order of the source, by partition (default: derived from the plan)
    tasks: int  # number of tasks, where rows must be put in order (default: chosen by Spark)


def staged(app: App, frame: DataFrame, name: str, options: StageOptions) -> DataFrame:
    from multilane.engines.dataframe.frames import outcomes_of
    from multilane.engines.dataframe.task_reports import reports_of
    from multilane.engines.dataframe.worker import StageSpec

    observer, target = app.observer, options.get("target")
    if target is None:
        target = target_of(app)
    else:
        app = find_app(target)
    config = app.registration(name).config
    check_stageable(config)
    if is_speculating(frame.sparkSession):
        raise ConfigError("spark.speculation is on: a second copy of a task would handle the same records. Disable it")
    reports = reports_of(frame)
    if reports is not None:
        reports.observe(target, observer)
    spec = StageSpec(
        _FACTORY,
        target,
        config.name,
        options.get("home", os.getcwd()),
        log_level=log.getEffectiveLevel(),
        reports=None if reports is None else reports.accumulator,
    )
    return outcomes_of(frame, spec, in_order=options.get("in_order"), tasks=options.get("tasks"))
