"""The moments of calls, over all tasks of a job."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from multilane.engines.dataframe.rows.pace import Pace


class Frozen:
    """A clock whose wall time is far from its monotonic time, differently in each process."""

    def __init__(self, offset):
        self._offset = offset

    def monotonic(self):
        return 100.0 - self._offset

    def wall(self):
        return 1_000_000.0 + 100.0


def moments(per_second, tasks, calls, seed=0, first=0):
    """When the calls of each task may begin, in wall time; each is asked for at some time before."""
    rng, found = random.Random(seed), []  # noqa: S311 - repeatable
    for task in range(first, first + tasks):
        offset = rng.uniform(0, 50)
        pace, now = Pace(per_second, tasks, task, Frozen(offset)), 100.0 - offset
        for _ in range(calls):
            now += rng.choice([0.0, 0.0, rng.uniform(0, 3 * tasks / per_second)])
            found.append(now + offset + pace.wait(now))
    return sorted(found)


@pytest.mark.parametrize(("per_second", "tasks"), [(10.0, 1), (10.0, 3), (0.5, 4), (1000.0, 15)])
def test_no_two_calls_of_any_tasks_are_closer_than_the_limit_says(per_second, tasks):
    for seed in range(20):
        found = moments(per_second, tasks, 50, seed, first=seed)  # the number of the first task, as in a union
        closest = min(after - before for before, after in pairwise(found))
        assert closest > 1 / per_second - 1e-6


def test_all_tasks_that_are_busy_reach_the_limit():
    paces = [Pace(100.0, 4, task, Frozen(0.0)) for task in range(4)]
    found = sorted(100.0 + pace.wait(100.0) for pace in paces for _ in range(25))
    assert found[-1] - found[0] == pytest.approx(0.99)
    assert found[0] - 100.0 <= 0.01 + 1e-6


def test_what_was_not_used_is_lost():
    pace = Pace(10.0, 1, 0, Frozen(0.0))
    pace.wait(100.0)
    waits = [pace.wait(200.0) for _ in range(3)]
    assert waits[2] - waits[0] == pytest.approx(0.2), "no burst after a rest"
