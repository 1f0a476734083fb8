"""The arithmetic of pauses: gaps of partitions across members, within windows."""

from __future__ import annotations

import pytest
from bench.group.pauses import Pauses, Window, Windows, longest_gap, pauses, times_by_partition

JOIN = Window(10.0, 20.0)
LEAVE = Window(30.0, 40.0)
WINDOWS = Windows(Window(5.0, 10.0), JOIN, LEAVE)


def every(start, end, step, partitions):
    return [(start + n * step, partitions) for n in range(int((end - start) / step) + 1)]


def test_times_are_sorted_by_partition():
    assert times_by_partition([(2.0, [0, 1]), (1.0, [0])]) == {0: [1.0, 2.0], 1: [2.0]}


def test_the_longest_gap_of_the_window_counts():
    assert longest_gap([0.0, 9.0, 11.0, 12.5, 21.0, 40.0], JOIN) == 8.5


def test_gaps_outside_do_not_count_but_those_that_reach_in_do():
    assert longest_gap([0.0, 9.5, 9.9, 10.1, 15.0, 19.9, 25.0, 90.0], JOIN) == pytest.approx(5.1)


@pytest.mark.parametrize("times", [[], [11.0, 25.0], [1.0, 12.0]])
def test_a_gap_that_is_not_over_is_refused(times):
    with pytest.raises(ValueError, match="do not reach"):
        longest_gap(times, JOIN)


def test_a_moved_partition_pauses_from_its_old_to_its_new_owner():
    stays = [*every(0, 12, 0.5, [0, 1]), *every(12.5, 32, 0.5, [0]), *every(32.5, 50, 0.5, [0, 1])]
    comes = every(15, 30, 0.5, [1])
    assert pauses(stays, comes, WINDOWS) == Pauses(0.5, 3.0, 0.5, 2.5, 0.5)


def test_a_pause_of_a_kept_partition_is_not_one_of_a_moved():
    stays = [*every(0, 12, 0.5, [0, 1]), *every(16, 30, 0.5, [0]), *every(30.5, 50, 0.5, [0, 1])]
    comes = every(12.5, 30, 0.5, [1])
    assert pauses(stays, comes, WINDOWS) == Pauses(4.0, 0.5, 0.5, 0.5, 0.5)


def test_a_second_member_that_read_nothing_or_everything_is_refused():
    stays = every(0, 50, 0.5, [0, 1])
    with pytest.raises(ValueError, match="nothing to compare"):
        pauses(stays, [], WINDOWS)
    with pytest.raises(ValueError, match="nothing to compare"):
        pauses(stays, [(15.0, [0, 1])], WINDOWS)


def test_what_stood_still_before_anyone_came_is_distinguished():
    stays = [*every(0, 6, 0.5, [0, 1]), *every(8, 12, 0.5, [0, 1]), *every(12.5, 50, 0.5, [0])]
    comes = every(12.5, 50, 0.5, [1])
    assert pauses(stays, comes, WINDOWS) == Pauses(0.5, 0.5, 0.5, 0.5, 2.0)
