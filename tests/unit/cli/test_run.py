"""`multilane run`: what is said when it is used wrongly."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from multilane.cli.main import app


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no_such_shop:app"], "there is no module"),
        (["shop"], "is not MODULE:APP"),
        (["shop:app", "--conf", "executor.memory=2g"], "is not NAME=VALUE"),
        (["shop:app", "--members", "0"], "--members"),
        (["shop:app", "--flow", "rivers"], "--flow"),
        (["shop:app", "--engine", "fast"], "--engine"),
        (["no_such_shop:app", "--engine", "process", "--members", "2"], "there is no module"),
        (["shop:app", "--engine", "process", "--members", "2", "--control", "here"], "--control steers one process"),
    ],
)
def test_the_command_is_used_wrongly(arguments, said):
    result = CliRunner().invoke(app, ["run", *arguments], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 2
    assert said in result.output
