"""The book of a backfill: what is to be done, how far it is, what failed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.engines.backfill.progress import (
    BackfillPlan,
    BackfillProgress,
    ProgressReport,
    new_progress,
    plan_from,
    progress_from,
    report_from,
)
from multilane.errors import ConfigError
from multilane.outcome.in_place import ExhaustedRecord

PLAN = BackfillPlan(
    "orders", "shop.orders", "orders", "id-1", "earliest", "latest", {0: (5, 15), 1: (0, 100), 2: (7, 7)}
)


def given_up(partition: int, offset: int) -> ExhaustedRecord:
    return ExhaustedRecord(partition, offset, 2, "ValueError", "never")


def through_json(value):
    return json.loads(json.dumps(value))


def test_a_new_one_has_all_to_do():
    progress = new_progress(PLAN)
    assert (progress.remaining, progress.open_partitions, progress.is_through) == (110, [0, 1], False)


def test_reports_move_it_on_and_nothing_beyond_the_end_counts():
    progress = new_progress(PLAN)
    assert progress.note(ProgressReport({0: (9, ((11, 30),))}, settled=12)) == ()
    assert progress.positions[0] == (9, ((11, 14),))
    assert (progress.remaining_of(0), progress.records) == (2, 12)
    assert [progress.is_settled(0, offset) for offset in (8, 9, 10, 11, 14)] == [True, False, False, True, True]
    progress.note(ProgressReport({0: (40, ()), 1: (100, ())}, settled=90))
    assert (progress.is_through, progress.records, progress.positions[0]) == (True, 102, (15, ()))


def test_a_failed_record_is_listed_once():
    progress = new_progress(PLAN)
    twice = ProgressReport({}, 2, (given_up(0, 6), given_up(0, 6)))
    assert progress.note(twice) == (given_up(0, 6),)
    assert progress.note(twice) == ()
    assert progress.failed == {(0, 6)}


def test_what_is_written_is_what_is_read():
    progress = new_progress(PLAN)
    report = ProgressReport({1: (3, ((5, 6), (9, 9)))}, 4, (given_up(1, 2),), {1: 7})
    assert report_from(through_json(report.to_json())) == report
    progress.note(report)
    progress.seconds = 1.5
    again = progress_from(plan_from(through_json(PLAN.to_json())), through_json(progress.to_json()))
    assert again == BackfillProgress(PLAN, progress.positions, 4, 1.5, 1, epochs={1: 7})
    assert (again.settled_until(0), again.settled_until(1)) == (None, 10)
    before = {name: value for name, value in through_json(progress.to_json()).items() if name != "epochs"}
    assert progress_from(PLAN, before).epochs == {}, "by a version that did not write them"


@pytest.mark.parametrize(
    "change",
    [
        {"places": None},
        {"places": []},
        {"epochs": {"0": "x"}},
        {"epochs": []},
        {"records": "1"},
        {"round": None},
    ],
    ids=str,
)
def test_progress_that_was_edited_is_damaged(change):
    """It says so, and nothing of it is believed."""
    told = through_json(new_progress(PLAN).to_json()) | change
    with pytest.raises(ConfigError, match=r"progress\.json are damaged"):
        progress_from(PLAN, {name: value for name, value in told.items() if value is not None})


def test_a_plan_that_was_edited_is_damaged():
    told = through_json(PLAN.to_json())
    for wrong in ({**told, "stretches": {"0": 5}}, {name: told[name] for name in told.keys() - {"group"}}):
        with pytest.raises(ConfigError, match=r"plan\.json is damaged"):
            plan_from(wrong)


def test_another_version_wrote_it():
    with pytest.raises(ConfigError, match="another version of multilane"):
        plan_from({"format": 2})


def test_what_differs():
    assert PLAN.difference(consumer="orders", group="shop.orders", begin=None, end="latest") is None
    assert PLAN.difference(group="other") == "of group shop.orders, not other"
    assert PLAN.difference(begin="latest", end="earliest") == "from earliest, not latest"
    assert "deleted since" in PLAN.difference(topic_id="id-2")


@pytest.mark.parametrize(
    ("place", "first", "after", "passed"),
    [
        ((5, ()), 9, (9, ()), 4),
        ((5, ((7, 8),)), 9, (9, ()), 2),
        ((5, ((7, 10),)), 9, (11, ()), 2),
        ((5, ((7, 7), (12, 12))), 9, (9, ((12, 12),)), 3),
        ((5, ()), 50, (15, ()), 10),
    ],
)
def test_records_that_are_gone_are_passed_over(place, first, after, passed):
    progress = new_progress(PLAN)
    progress.positions[0] = place
    assert progress.skip_to(0, first) == passed
    assert progress.positions[0] == after


@given(st.sets(st.integers(0, 99)), st.sets(st.integers(5, 14)))
def test_a_round_of_failed_ones_has_exactly_those_to_do(many, few):
    progress = new_progress(PLAN)
    progress.note(ProgressReport({0: (15, ()), 1: (100, ())}))
    progress.failed = {(1, offset) for offset in many} | {(0, offset) for offset in few}
    progress.begin_pass_over_failed()
    assert (progress.pass_number, progress.failed) == (2, set())
    assert {offset for offset in range(100) if not progress.is_settled(1, offset)} == many
    assert {offset for offset in range(5, 15) if not progress.is_settled(0, offset)} == few
    assert progress.remaining == len(many) + len(few)
    assert all(first > offset for offset, runs in progress.positions.values() for first, _ in runs)


@given(st.lists(st.integers(0, 50), max_size=12), st.integers(1, 15))
def test_shares(sizes, tasks):
    plan = BackfillPlan("c", "g", "t", None, "earliest", "latest", {n: (0, size) for n, size in enumerate(sizes)})
    shares = new_progress(plan).shares(tasks)
    open_ = [n for n, size in enumerate(sizes) if size]
    assert sorted(n for share in shares for n in share) == open_
    assert len(shares) == min(tasks, len(open_))
    assert all(shares)
    loads = sorted(sum(sizes[n] for n in share) for share in shares)
    assert not loads or loads[-1] - loads[0] <= max(sizes)
