"""`multilane backfill` without a broker: its usage errors and its output."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from multilane.cli import backfill_view, main
from multilane.cli.backfill import bound
from multilane.engines.backfill.driver import BackfillStatus
from multilane.engines.backfill.progress import BackfillPlan
from multilane.engines.backfill.run import BackfillOutcome

WIDE = {"COLUMNS": "200", "TERM": "dumb"}
PLAN = BackfillPlan("orders", "shop.orders", "orders", None, "earliest", "latest", {0: (0, 10)})
DONE = BackfillOutcome(PLAN, BackfillStatus(1_000, 0, 0, 2.0, 0.0), 3_000, 4.0, is_through=True, failed_list=None)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["shop:app", "orders"], "--state"),
        (["shop:app", "--state", "s"], "Missing argument"),
        (["shop:app", "orders", "--state", "s", "--from", "yesterday"], "is not a time"),
        (["shop:app", "orders", "--state", "s", "--from", "{"], "invalid JSON"),
        (["shop:app", "orders", "--state", "s", "--to", '{"x": 1}'], "is not a partition and an offset"),
        (["shop:app", "orders", "--state", "s", "--tasks", "0"], "--tasks"),
        (["shop:app", "orders", "--state", "s", "--conf", "memory=2g"], "is not a Spark setting: write NAME=VALUE"),
        (["no_such_module:app", "orders", "--state", "s"], "there is no module"),
    ],
)
def test_the_command_is_used_wrongly(arguments, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main.app, ["backfill", *arguments], env=WIDE)
    assert result.exit_code == 2
    assert expected in result.output
    assert list(tmp_path.iterdir()) == []


def test_bounds():
    assert bound(None, "from") is None
    assert bound("earliest", "from") == "earliest"
    assert bound("1970-01-01T00:00:01", "from") == 1_000
    assert bound('{"3": 7}', "to") == {3: 7}
    with pytest.raises(typer.BadParameter):
        bound("later", "to")


def test_the_progress_line():
    assert backfill_view.line(BackfillStatus(0, 0, 10, 0.0, 0.0)) == "0 records (0/s); 10 left"
    line = backfill_view.line(BackfillStatus(5_000, 3, 720_000, 2.0, 100.0))
    assert line == "5,000 records (100/s), 3 failed; 720,000 left, about 2 h 0 min"
    assert backfill_view.line(BackfillStatus(1, 0, 75, 1.0, 1.0)).endswith("75 left, about 1 min 15 s")


def test_the_result(capsys, tmp_path):
    backfill_view.show(DONE)
    backfill_view.report_unfinished(DONE, tmp_path)
    result = capsys.readouterr()
    assert "1,000" in result.out
    assert "3,000" in result.out
    assert result.err == ""
    facts = json.loads(json.dumps(backfill_view.facts(DONE, tmp_path)))
    assert facts["this_run"] == {"records": 1_000, "seconds": 2.0, "records_per_second": 500.0}
    assert facts["all_runs"]["records"] == 3_000
    assert (facts["through"], facts["failed_list"]) == (True, None)


def test_unfinished_and_failed_records_are_reported(capsys, tmp_path):
    left = BackfillStatus(1_000, 2, 50, 2.0, 0.0)
    outcome = replace(DONE, status=left, is_through=False, failed_list=tmp_path / "failed.jsonl")
    backfill_view.report_unfinished(outcome, tmp_path)
    first, second = capsys.readouterr().err.splitlines()
    assert first == f"stopped with 50 offsets left: start it again with --state {tmp_path}"
    assert second == f"2 records failed: listed in {tmp_path}/failed.jsonl"
