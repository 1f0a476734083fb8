"""How many lanes are enough: against trying every number, and against what can be counted."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.sizing.history import Arrivals
from multilane.sizing.lane_count import Bounds, lanes_needed, least_lanes, throughput, throughputs
from multilane.sizing.simulation import SimulatedWork, ninety_ninth, simulate

WORK = SimulatedWork(0.02)


def steady(rate: float, seconds: float, keys: int | None) -> Arrivals:
    """At random moments, as independent customers come; the same in every run."""
    random = Random(7)  # noqa: S311 - made-up customers, not secrets
    many = round(rate * seconds)
    times = sorted(random.uniform(0, seconds) for _ in range(many))
    return Arrivals(times, [None if keys is None else random.randrange(keys) for _ in times])


@pytest.mark.parametrize(
    ("rate", "batch", "lanes"), [(0, 1, 1), (35, 1, 1), (36, 1, 2), (350, 1, 10), (351, 1, 11), (1_000, 10, 3)]
)
def test_utilisation_alone(rate, batch, lanes):
    assert least_lanes(rate, SimulatedWork(0.02, batch), 0.7) == lanes


def test_a_steady_flow_needs_what_its_utilisation_says():
    assert lanes_needed(steady(500, 10, 5_000), 500, WORK, Bounds(0.7, 1.0)) == least_lanes(500, WORK, 0.7) == 15


def test_a_burst_needs_more_than_its_average_says():
    """400 at once, and nothing for the rest of ten seconds: 40 a second are one lane's work."""
    burst = Arrivals([0.0] * 400, range(400))
    assert least_lanes(40, WORK, 0.8) == 1
    # All but four have to begin within a second, and a lane begins 51 calls in that time.
    assert lanes_needed(burst, 40, WORK, Bounds(0.8, 1.0)) == 8


def test_a_hot_key_does_not_ask_for_lanes():
    """It can have one at any time; what it lacks is the end of the call before."""
    hot = Arrivals([n / 100 for n in range(1_000)], [1] * 1_000)
    assert lanes_needed(hot, 100, WORK, Bounds(0.7, 0.1)) == least_lanes(100, WORK, 0.7)


@given(
    st.lists(st.tuples(st.floats(0, 2), st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=40),
    st.sampled_from([0.0, 0.05, 0.3]),
    st.sampled_from([1, 4]),
)
def test_it_is_enough_and_one_less_is_not(rows, wait, batch):
    rows = sorted(rows, key=lambda row: row[0])
    came, work = Arrivals([time for time, _ in rows], [key for _, key in rows]), SimulatedWork(0.1, batch, wait / 2)
    found = lanes_needed(came, 1.0, work, Bounds(0.7, wait))
    assert ninety_ninth(simulate(came, found, work).lane_waits) <= wait
    if found > 1:
        assert ninety_ninth(simulate(came, found - 1, work).lane_waits) > wait


def test_throughput_grows_with_lanes_until_keys_are_short():
    few = steady(500, 10, 8)
    told = dict(throughputs(few, 4, WORK))
    assert list(told) == [1, 2, 4, 8]
    assert told[1] == pytest.approx(50)
    assert told[4] == pytest.approx(200, rel=0.05)
    assert list(dict(throughputs(few, 100, WORK))) == [1, 12, 25, 50, 100, 200]
    assert throughput(few, 64, WORK) <= 8 * 50


def test_one_key_has_the_throughput_of_one_lane():
    told = throughputs(Arrivals([0.0], [1]), 16, WORK)
    assert {round(rate) for _, rate in told} == {50}


def test_batches_multiply_it():
    assert throughput(steady(500, 10, None), 4, SimulatedWork(0.02, 10, 5.0)) == pytest.approx(4 * 10 * 50)
