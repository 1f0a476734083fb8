"""`multilane run`: its usage errors."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from multilane.cli.main import app
from multilane.cli.spark_options import lease_terms
from multilane.engines.batches.lease_table import LeaseTerms


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["no_such_shop:app"], "there is no module"),
        (["shop"], "is not MODULE:APP"),
        (["shop:app", "--conf", "executor.memory=2g"], "is not a Spark setting: write NAME=VALUE"),
        (["shop:app", "--members", "0"], "--members"),
        (["shop:app", "--flow", "rivers"], "--flow"),
        (["shop:app", "--engine", "fast"], "--engine"),
        (["shop:app", "--target-batch-duration", "3"], "a duration needs a unit"),
        (["shop:app", "--target-batch-duration", "200ms"], "use 1s or more"),
        (["shop:app", "--max-batch-duration", "500ms"], "shorter than the target of 1s"),
        (["shop:app", "--max-batch-duration", "5s", "--target-batch-duration", "6s"], "than the target of 6s"),
        (["shop:app", "--max-batch-duration", "20s", "--flow", "continuous"], "are for the batches flow on"),
        (["shop:app", "--target-batch-duration", "3s", "--engine", "process"], "are for the batches flow on"),
        (["no_such_shop:app", "--engine", "process", "--members", "2"], "there is no module"),
    ],
)
def test_the_command_is_used_wrongly(arguments, message):
    result = CliRunner().invoke(app, ["run", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())


@pytest.mark.parametrize(
    ("target", "longest", "terms"),
    [
        (None, None, LeaseTerms()),
        ("3s", None, LeaseTerms(3.0, 0.5)),
        (None, "1m", LeaseTerms(20.0, 40.0)),
        (None, "5s", LeaseTerms(4.5, 0.5)),
        ("3s", "3s", LeaseTerms(3.0, 0.0)),
    ],
)
def test_how_long_batches_last(target, longest, terms):
    assert lease_terms(target, longest) == terms
