"""What goes into a batch and who reads it: nothing twice, nothing left out, no more than is allowed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from multilane.spark.ranges import Range, admitted, cut, grouped, ranges_between, split
from multilane.types import TopicPartition

sizes = st.lists(st.integers(0, 10_000), min_size=1, max_size=12)


def ranges_of(lengths: list[int]) -> list[Range]:
    return [Range(TopicPartition("t", n), 100 * n, 100 * n + length) for n, length in enumerate(lengths)]


def offsets(ranges) -> Counter[tuple[TopicPartition, int]]:
    return Counter((one.partition, offset) for one in ranges for offset in range(one.start, one.end))


@given(sizes, st.integers(1, 20_000))
def test_as_much_as_allowed_goes_in_from_the_front_of_each(lengths, limit):
    ranges = ranges_of(lengths)
    taken = admitted(ranges, limit)
    by_partition = {one.partition: one for one in ranges}
    assert sum(map(len, taken)) == min(limit, sum(lengths))
    assert all(one.start == by_partition[one.partition].start for one in taken)
    assert all(0 < len(one) <= len(by_partition[one.partition]) for one in taken)
    waiting = [one for one in ranges if len(one)]
    if limit >= len(waiting):
        assert len(taken) == len(waiting), "a partition with little is not left behind by those with much"


@given(sizes, st.integers(1, 40))
def test_splitting_loses_nothing(lengths, at_least):
    ranges = [one for one in ranges_of([length // 50 for length in lengths]) if len(one)]
    pieces = split(ranges, at_least)
    assert offsets(pieces) == offsets(ranges)
    assert len(pieces) >= min(at_least, sum(map(len, ranges)))
    assert all(len(one) for one in pieces)


@given(sizes, st.integers(1, 40))
def test_cutting_loses_nothing_and_no_piece_is_too_long(lengths, at_most):
    ranges = ranges_of([length // 50 for length in lengths])
    pieces = cut(ranges, at_most)
    assert offsets(pieces) == offsets(ranges)
    assert all(0 < len(one) <= at_most for one in pieces)


@given(sizes, st.integers(1, 8))
def test_tasks_share_all_ranges_evenly(lengths, at_most):
    ranges = [one for one in ranges_of(lengths) if len(one)]
    tasks = grouped(ranges, at_most)
    assert sorted(one for own in tasks for one in own) == sorted(ranges)
    assert len(tasks) == min(at_most, len(ranges))
    loads = [sum(map(len, own)) for own in tasks]
    if len(ranges) > at_most:
        assert max(loads) - min(loads) <= max(map(len, ranges))


def test_what_lies_between():
    a, b, c = (TopicPartition("t", n) for n in range(3))
    assert ranges_between({a: 3, b: 5}, {a: 7, b: 5, c: 9}) == [Range(a, 3, 7)]
    assert str(Range(a, 3, 7)) == "t-0 [3, 7)"
