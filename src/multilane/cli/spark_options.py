"""What commands that start Spark have in common: its settings as options, and libraries that talk too much.

Thread: application.
"""

from __future__ import annotations

import logging
import warnings
from typing import Annotated

import typer

Conf = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark's; may be repeated.")]


def conf_pairs(conf: list[str]) -> dict[str, str]:
    pairs = {}
    for one in conf:
        name, is_set, value = one.partition("=")
        if not is_set or not name.startswith("spark."):
            raise typer.BadParameter(f"--conf {one!r} is not NAME=VALUE of Spark's, as in spark.executor.memory=2g")
        pairs[name] = value
    return pairs


def hush_libraries() -> None:
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every call
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)  # nothing uses it
