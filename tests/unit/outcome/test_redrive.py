"""Grouping, filtering, marking and pacing of replays."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.commit.completion_map import decode, encode
from multilane.outcome.error_patterns import NO_ERROR, pattern_of
from multilane.outcome.headers import ERROR_MESSAGE
from multilane.outcome.redrive import Filter, Groups, ReplayMarks, ReplayPace
from unit.outcome.records import record


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("", NO_ERROR),
        ("\n \n", NO_ERROR),
        ("ValueError: no stock\n  at line 7", "ValueError: no stock"),
        ("\n\n  late", "late"),
        ("order 4711 of 2026-01-02", "order # of #-#-#"),
        ("id 5f0c8e1a-93b2-4c1d-8f6e-0a1b2c3d4e5f", "id #"),
        ("at 0xDEADBEEF", "at #"),
        ("facade", "facade"),
    ],
)
def test_heads(text, head):
    assert pattern_of(text) == head


def test_heads_are_bounded():
    assert len(pattern_of("x " * 10_000_000)) == 120


def failed(text, **fields):
    return record("e", ((ERROR_MESSAGE, text.encode()),), **fields)


def test_groups():
    groups = Groups()
    groups.add(failed("E: order 1", partition=2, offset=5, timestamp=30))
    groups.add(failed("E: order 2", partition=0, offset=9, timestamp=10), is_replayed=True)
    groups.add(record("e", partition=1, offset=1))
    first, second = groups.listed()
    assert (first.pattern, first.count, first.replayed, first.first, first.last) == ("E: order #", 2, 1, 10, 30)
    assert (first.partitions, first.example) == ({0, 2}, "e/0@9")
    assert second.pattern == NO_ERROR


def test_not_more_groups_than_a_person_can_read():
    groups = Groups()
    for n in range(2_000):
        groups.add(failed("E" + "x" * n if n < 100 else "F" + chr(0x4E00 + n)))
    listed = groups.listed()
    assert len(listed) == 501
    assert sum(g.count for g in listed) == 2_000


@pytest.mark.parametrize(
    ("wanted", "is_wanted"),
    [
        (Filter(), True),
        (Filter(error="NO STOCK"), True),
        (Filter(error="stocks"), False),
        (Filter(key=b"k"), True),
        (Filter(key=b""), False),
        (Filter(since=1_000_000), True),
        (Filter(since=1_000_001), False),
        (Filter(until=1_000_001), True),
        (Filter(until=1_000_000), False),
        (Filter(partitions=frozenset({3})), True),
        (Filter(partitions=frozenset({0})), False),
        (Filter("stock", b"k", 0, 2_000_000, frozenset({3})), True),
    ],
)
def test_filters(wanted, is_wanted):
    assert wanted.wants(failed("ValueError: no stock")) is is_wanted


def test_marks_that_touch_become_one_and_move_the_frontier():
    marks = ReplayMarks(10, [(12, 13), (20, 25)])
    marks.add(14, 19)
    assert (marks.frontier, marks.runs) == (10, ((12, 25),))
    marks.add(5, 9)
    assert marks.frontier == 10
    marks.add(10, 11)
    assert (marks.frontier, marks.runs) == (26, ())


@given(st.integers(0, 5), st.lists(st.tuples(st.integers(0, 40), st.integers(0, 4)), max_size=30))
def test_marks_are_a_set(frontier, added):
    marks, model = ReplayMarks(frontier), set(range(frontier))
    for first, length in added:
        marks.add(first, first + length - 1)
        model |= set(range(first, first + length))
        assert [o in marks for o in range(50)] == [o in model for o in range(50)]
        assert marks.frontier == next(o for o in range(100) if o not in model)
        assert decode(encode(marks.frontier, marks.runs), marks.frontier) == marks.runs
    same = marks.copy()
    same.add(60, 70)
    assert 60 not in marks


def test_without_a_rate_there_is_always_room():
    pace = ReplayPace(None, 0.0)
    pace.note(1_000_000)
    assert pace.room(0.0, 500) == 500
    assert pace.wait(0.0) == 0.0


@pytest.mark.parametrize("rate", [0.5, 1.0, 3.0, 250.0, 100_000.0])
def test_a_pace_is_kept(rate):
    pace, now, sent = ReplayPace(rate, 100.0), 100.0, 0
    while now < 120.0:
        room = pace.room(now, 500)
        assert room <= 500
        pace.note(room)
        sent += room
        now += max(pace.wait(now), 0.001)
    assert min(rate, 500_000) * 20 * 0.95 - 1 <= sent <= rate * 20 + 1


def test_idle_time_is_not_made_up_for():
    pace = ReplayPace(10.0, 0.0)
    pace.note(pace.room(0.0, 500))
    assert pace.room(1_000.0, 500) == 1
