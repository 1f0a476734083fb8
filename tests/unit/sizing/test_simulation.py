"""Simulated lanes: what can be counted by hand, and what holds whatever comes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.sizing.history import Arrivals, arrivals_of
from multilane.sizing.simulation import SimulatedWork, ninety_ninth, simulate

LATENCY = 0.5  # a power of two: sums of it are exact
KEYS = st.lists(st.one_of(st.none(), st.integers(0, 5)), min_size=1, max_size=60)


@st.composite
def arrivals(draw) -> Arrivals:
    keys = draw(KEYS)
    gaps = draw(st.lists(st.sampled_from([0, 0, 125, 250, 2_000]), min_size=len(keys), max_size=len(keys)))
    stamps = [sum(gaps[: at + 1]) for at in range(len(gaps))]
    return arrivals_of(list(zip(stamps, keys, strict=True)))


def backlog(*keys: int | None) -> Arrivals:
    return Arrivals([0.0] * len(keys), keys)


@pytest.mark.parametrize(
    ("keys", "lanes", "seconds"),
    [
        ((1, 2, 3, 4), 1, 2.0),
        ((1, 2, 3, 4), 2, 1.0),
        ((1, 2, 3, 4), 9, 0.5),
        ((1, 1, 1, 1), 9, 2.0),  # one key: one after the other
        ((None, None, None, None), 4, 0.5),  # none: no order
        ((1, 1, 1, 2, 3, 4), 2, 1.5),  # the longest chain begins first, the others fit beside it
    ],
)
def test_a_backlog_takes_as_long_as_its_lanes_and_its_longest_chain(keys, lanes, seconds):
    outcome = simulate(backlog(*keys), lanes, SimulatedWork(LATENCY))
    assert outcome.seconds == seconds
    assert outcome.calls == len(keys)


def test_waiting_for_a_key_is_not_waiting_for_a_lane():
    told = simulate(backlog(1, 1, 1), 5, SimulatedWork(LATENCY))
    assert (sorted(told.key_waits), told.lane_waits) == ([0.0, 0.5, 1.0], [0.0, 0.0, 0.0])
    told = simulate(backlog(1, 2, 3), 1, SimulatedWork(LATENCY))
    assert (told.key_waits, sorted(told.lane_waits)) == ([0.0, 0.0, 0.0], [0.0, 0.5, 1.0])


def test_a_batch_takes_records_of_one_key_together():
    told = simulate(backlog(*[1] * 10), 3, SimulatedWork(LATENCY, batch=5))
    assert (told.calls, told.seconds) == (2, 1.0)


def test_a_window_waits_to_be_full_and_no_longer():
    came = Arrivals([0.0, 1.0, 1.25], [1, 2, 3])
    full = simulate(came, 1, SimulatedWork(LATENCY, batch=3, fill=9.0))
    assert (full.calls, full.seconds) == (1, 1.75)
    late = simulate(came, 1, SimulatedWork(LATENCY, batch=3, fill=1.0))
    assert (late.calls, late.lane_waits) == (2, [1.0, 0.0, 0.25])  # two at 1.0; the third when they are done with
    short = simulate(came, 1, SimulatedWork(LATENCY, batch=3, fill=0.25))
    assert (short.calls, short.lane_waits) == (2, [0.25, 0.25, 0.0])


@given(arrivals(), st.integers(1, 8), st.sampled_from([1, 3, 10]), st.sampled_from([0.0, 0.25, 4.0]))
def test_everything_is_handled_and_never_before_its_time(came, lanes, batch, fill):
    told = simulate(came, lanes, SimulatedWork(LATENCY, batch, fill))
    assert len(told.lane_waits) == len(told.key_waits) == len(came)
    assert min(told.lane_waits) >= 0
    assert min(told.key_waits) >= 0
    assert -(-len(came) // batch) <= told.calls <= len(came)
    # No faster than the lanes, and than the longest chain, allow.
    chain = max((n for key, n in Counter(came.keys).items() if key is not None), default=1)
    assert told.seconds >= LATENCY * max(-(-told.calls // lanes), -(-chain // batch))


@given(arrivals())
def test_with_a_lane_for_each_record_none_waits_for_one(came):
    assert set(simulate(came, len(came), SimulatedWork(LATENCY)).lane_waits) == {0.0}


@given(arrivals(), st.integers(1, 8))
def test_without_keys_lanes_are_a_plain_queue(came, lanes):
    """Against a second opinion: whoever comes takes the lane that is free first."""
    free = [0.0] * lanes
    waits = []
    for time in came.times:
        lane = free.index(min(free))
        waits.append(max(0.0, free[lane] - time))
        free[lane] = max(time, free[lane]) + LATENCY
    told = simulate(Arrivals(came.times, [None] * len(came)), lanes, SimulatedWork(LATENCY))
    assert sorted(told.lane_waits) == sorted(waits)


def test_nothing_comes():
    told = simulate(Arrivals([], []), 3, SimulatedWork(LATENCY))
    assert (told.seconds, told.calls, told.lane_waits) == (0.0, 0, [])


@pytest.mark.parametrize(
    ("waits", "bound"), [([], 0.0), ([7.0], 7.0), ([5.0] + [0.0] * 99, 0.0), ([5.0, 5.0] + [0.0] * 98, 5.0)]
)
def test_what_99_of_100_do_not_exceed(waits, bound):
    assert ninety_ninth(waits) == bound


def test_a_clock_that_goes_back_stands():
    assert arrivals_of([(5_000, 1), (4_000, 2), (5_500, None)]).times == [0.0, 0.0, 0.5]
