"""Rows of a DataFrame on the lanes of a consumer, as the application asks for it: the composition root of the driver.

Thread: application (the driver's).

Whatever can be known to be wrong is refused here, before Spark has started anything. The application itself does not
travel: workers find it by `module:name`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, TypedDict

from multilane.app.targets import find_app, target_of
from multilane.engines.dataframe.worker_app import check_stageable
from multilane.errors import ConfigError
from multilane.spark.session import is_speculating

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from multilane.app.app import App

_FACTORY: Final = "multilane.engines.dataframe.worker_app:DataFrameWorkerApp"


class StageOptions(TypedDict, total=False):
    """What can be said of a stage."""

    target: str  # module:name where workers find the application; else it is looked for in the modules loaded here
    home: str  # the directory on workers that it is imported from; else the current one
    in_order: bool  # whether rows are as the source gave them, partition by partition; else the plan tells
    tasks: int  # where rows have to be brought in order: in so many tasks; else as many as Spark chooses


def staged(app: App, frame: DataFrame, name: str, options: StageOptions) -> DataFrame:
    from multilane.engines.dataframe.frames import outcomes_of
    from multilane.engines.dataframe.worker import StagePlan

    target = options.get("target")
    if target is None:
        target = target_of(app)
    else:
        app = find_app(target)
    config = app.registration(name).config
    check_stageable(config)
    if is_speculating(frame.sparkSession):
        raise ConfigError("spark.speculation is on: a second copy of a task would handle the same records. Turn it off")
    plan = StagePlan(_FACTORY, target, config.name, options.get("home", os.getcwd()))
    return outcomes_of(frame, plan, in_order=options.get("in_order"), tasks=options.get("tasks"))
