"""What a backfill keeps, and whom it refuses."""

from __future__ import annotations

import json

import pytest

from multilane.engines.backfill.progress import BackfillPlan, ProgressReport
from multilane.engines.backfill.state_files import StateFiles
from multilane.errors import ConfigError
from multilane.outcome.in_place import ExhaustedRecord

PLAN = BackfillPlan("orders", "shop.orders", "orders", None, "earliest", "latest", {0: (0, 10)})
FAILED = ExhaustedRecord(0, 3, 2, "ValueError", "never")


def test_begun_and_gone_on_with(tmp_path):
    with StateFiles(tmp_path / "new" / "state") as files:
        assert files.plan() is None
        files.begin(PLAN)
        progress = files.load(PLAN)
        files.list_failed(progress, progress.note(ProgressReport({0: (5, ((7, 8),))}, 7, (FAILED,))))
        files.save(progress)
    with StateFiles(tmp_path / "new" / "state") as files:
        assert files.plan() == PLAN
        again = files.load(PLAN)
        assert again == progress
        line = json.loads(files.failed_path(again).read_text())
        assert line == {
            "topic": "orders", "partition": 0, "offset": 3, "attempts": 2, "error": "ValueError", "text": "never",
        }  # fmt: skip


def test_killed_before_the_first_write(tmp_path):
    with StateFiles(tmp_path) as files:
        files.begin(PLAN)
    (tmp_path / ".progress.json.part").write_text('{"places')
    with StateFiles(tmp_path) as files:
        assert files.load(PLAN).positions == {0: (0, ())}


def test_killed_between_the_list_and_the_places(tmp_path):
    """It is handled again, and is not known to have failed."""
    with StateFiles(tmp_path) as files:
        files.begin(PLAN)
        progress = files.load(PLAN)
        files.list_failed(
            progress, progress.note(ProgressReport({0: (2, ())}, 2, (ExhaustedRecord(0, 1, 1, "E", "e"),)))
        )
        files.save(progress)
        files.list_failed(progress, [FAILED])
    with (tmp_path / "failed.jsonl").open("a") as half:
        half.write('{"topic": "orders", "parti')
    with StateFiles(tmp_path) as files:
        assert files.load(PLAN).failed == {(0, 1)}
        assert [json.loads(line)["offset"] for line in (tmp_path / "failed.jsonl").read_text().splitlines()] == [1]


def test_the_next_round_has_a_list_of_its_own(tmp_path):
    with StateFiles(tmp_path) as files:
        files.begin(PLAN)
        progress = files.load(PLAN)
        files.list_failed(progress, progress.note(ProgressReport({0: (10, ())}, 10, (FAILED,))))
        files.save(progress)
        progress.begin_pass_over_failed()
        files.save(progress)
    with StateFiles(tmp_path) as files:
        progress = files.load(PLAN)
        assert (progress.failed, progress.remaining, progress.positions[0]) == (set(), 1, (3, ((4, 9),)))
        assert files.failed_path(progress).name == "failed-2.jsonl"


def test_a_second_run_is_refused_while_one_is_at_it(tmp_path):
    with StateFiles(tmp_path), pytest.raises(ConfigError, match="this backfill is already running"):
        StateFiles(tmp_path).__enter__()
    with StateFiles(tmp_path):
        pass


def test_a_directory_of_something_else(tmp_path):
    (tmp_path / "multilane.yaml").touch()
    with pytest.raises(ConfigError, match=r"no backfill in it, but multilane.yaml: set --state to a directory"):
        StateFiles(tmp_path).__enter__()


def test_a_damaged_file(tmp_path):
    (tmp_path / "plan.json").write_text("{")
    with StateFiles(tmp_path) as files, pytest.raises(ConfigError, match=r"plan.json is damaged"):
        files.plan()
