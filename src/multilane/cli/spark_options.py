"""What commands that start Spark have in common: its settings as options, and libraries that talk too much.

Thread: application.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Final

import typer

from multilane.cli.option_values import duration

if TYPE_CHECKING:
    from multilane.engines.batches.lease_table import LeaseTerms

_SHORTEST: Final = 1.0  # below that Spark is at planning for as long as anybody works

Conf = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of Spark's; may be repeated.")]


def conf_pairs(conf: list[str]) -> dict[str, str]:
    pairs = {}
    for one in conf:
        name, is_set, value = one.partition("=")
        if not is_set or not name.startswith("spark."):
            raise typer.BadParameter(f"--conf {one!r} is not NAME=VALUE of Spark's, as in spark.executor.memory=2g")
        pairs[name] = value
    return pairs


def loan_terms(target: str | None, longest: str | None) -> LeaseTerms:
    """How long a batch works, and when it ends without what is still in work."""
    from multilane.engines.batches.lease_table import LeaseTerms

    usual = LeaseTerms()
    most = None if longest is None else duration(longest, "--max-batch-duration")
    seconds = usual.seconds if most is None else min(usual.seconds, max(_SHORTEST, most - usual.patience))
    if target is not None:
        seconds = duration(target, "--target-batch-duration")
    if seconds < _SHORTEST:
        raise typer.BadParameter(
            f"{target!r}: Spark takes up to half a second between two batches; let them last 1s or more",
            param_hint="--target-batch-duration",
        )
    patience = usual.patience if most is None else most - seconds
    if patience < 0:
        raise typer.BadParameter(
            f"{longest!r} is shorter than the {seconds:g}s that a batch works (--target-batch-duration)",
            param_hint="--max-batch-duration",
        )
    return LeaseTerms(seconds, patience)


def hush_libraries() -> None:
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every call
