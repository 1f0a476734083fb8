"""Runs of pytest beside each other, and one line about all."""

from __future__ import annotations

from pathlib import Path

import pytest

from side_by_side import GROUPS_AND_SPARK, ROOT, WITHOUT_BROKERS, closing_of, summed, worst


def test_what_runs_beside_the_rest_exists():
    assert [path for path in (*GROUPS_AND_SPARK, *WITHOUT_BROKERS) if not (ROOT / path).exists()] == []
    assert Path(ROOT / "Makefile").exists()


def test_one_closing_line_for_both():
    lines = [
        "======================= 4423 passed in 965.51s (0:16:05) =======================",
        "=== 1 failed, 20 passed, 2 skipped in 12.00s ===",
    ]
    assert summed(lines) == "===== 4443 passed, 1 failed, 2 skipped in 965.51s ====="


@pytest.mark.parametrize("line", ["", "Killed", "E   AssertionError"])
def test_a_run_that_broke_off_is_reported(line):
    assert "without its closing line" in summed(["=== 3 passed in 1.00s ===", line])


def test_what_a_library_says_at_the_end_is_not_the_closing_line():
    closing = "======= 20 passed in 12.00s ======="
    assert closing_of([closing, "%3|1794778387.137|FAIL|rdkafka#producer-6| Connect failed", ""]) == closing
    assert closing_of(["Killed", ""]) == "Killed"
    assert closing_of([]) == ""


@pytest.mark.parametrize(
    ("codes", "code"),
    [([0, 0, 0], 0), ([0, 1, 0], 1), ([5, 0, 5], 0), ([5, 5, 5], 5), ([0, -9, 1], -9), ([0, 5, 2], 2)],
)
def test_the_exit_code_is_that_of_the_worst(codes, code):
    assert worst(codes) == code
