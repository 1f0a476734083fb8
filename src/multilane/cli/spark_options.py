"""What the commands that start Spark share: Spark settings as options, and quieter libraries.

Thread: application.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Final

import typer

from multilane.cli.option_values import duration

if TYPE_CHECKING:
    from multilane.engines.batches.lease_table import LeaseTerms

_SHORTEST: Final = 1.0  # seconds; below this Spark plans for as long as the tasks work

Conf = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="Spark setting; may be repeated.")]


def conf_pairs(conf: list[str]) -> dict[str, str]:
    pairs = {}
    for one in conf:
        name, is_set, value = one.partition("=")
        if not is_set or not name.startswith("spark."):
            raise typer.BadParameter(
                f"--conf {one!r} is not a Spark setting: write NAME=VALUE, such as spark.executor.memory=2g"
            )
        pairs[name] = value
    return pairs


def lease_terms(target: str | None, longest: str | None) -> LeaseTerms:
    """How long a batch works, and how long it then waits for calls that are still running."""
    from multilane.engines.batches.lease_table import LeaseTerms

    usual = LeaseTerms()
    most = None if longest is None else duration(longest, "--max-batch-duration")
    seconds = usual.seconds if most is None else min(usual.seconds, max(_SHORTEST, most - usual.patience))
    if target is not None:
        seconds = duration(target, "--target-batch-duration")
    if seconds < _SHORTEST:
        raise typer.BadParameter(
            f"{target!r} is too short: Spark needs up to 0.5s between batches; use 1s or more",
            param_hint="--target-batch-duration",
        )
    patience = usual.patience if most is None else most - seconds
    if patience < 0:
        raise typer.BadParameter(
            f"{longest!r} is shorter than the target of {seconds:g}s (--target-batch-duration)",
            param_hint="--max-batch-duration",
        )
    return LeaseTerms(seconds, patience)


def quiet_libraries() -> None:
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it logs every call
