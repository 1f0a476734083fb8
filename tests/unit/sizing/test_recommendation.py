"""Settings from a history: each of them for its own reason."""

from __future__ import annotations

from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.sizing.goals import Goals
from multilane.sizing.history import Arrivals, Busiest, HeavyKey, History, PartitionLoad
from multilane.sizing.recommendation import consumers_needed, hot_keys, recommend

SLOT = 10.0


def history(*rates: float, heaviest: tuple[HeavyKey, ...] = ()) -> History:
    """Partitions with these peaks, all of them in one slot; those with 0 have no records."""
    loads = [
        PartitionLoad(number, records, 100 * records, records, 0, 0, 10_000, Busiest(records, 0, 0, records))
        for number, rate in enumerate(rates)
        if (records := round(rate * SLOT))
    ]
    return History("t", len(rates), SLOT, tuple(loads), heaviest, Busiest(sum(load.records for load in loads), 0))


def evenly(rate: float) -> Arrivals:
    """A second of a partition, every record with a key of its own."""
    many = max(1, round(rate))
    return Arrivals([n / rate for n in range(many)], range(many))


def plan(*rates: float, heaviest: tuple[HeavyKey, ...] = (), **goals):
    wanted = Goals(**{"latency": 0.02, **goals})
    return recommend(history(*rates, heaviest=heaviest), evenly(max(rates)), wanted)


def key(rate: float, name: bytes = b"hot") -> HeavyKey:
    return HeavyKey(0, name, round(rate * SLOT), round(rate * SLOT))


def test_lanes_are_for_the_busiest_partition():
    told = plan(100, 700, 0)
    assert (told.lanes, told.batch, told.consumers, told.partitions) == (20, 1, 1, 3)
    assert (told.rate, told.is_met, told.hot_keys) == (700, True, ())
    assert told.lane_wait == 0


def test_more_than_the_measured_peak_may_be_planned_for():
    told = plan(100, 700, peak_factor=2)
    assert (told.lanes, told.rate) == (40, 1_400)


def test_the_throughput_of_the_recommended_lanes_is_above_the_peak():
    told = plan(700)
    assert dict(told.throughputs)[told.lanes] >= told.rate / 0.7 - 1e-6


@pytest.mark.parametrize(
    ("rate", "busy", "batch", "too_hot"),
    [(30, None, None, False), (40, 0.8, 2, False), (60, 1.2, 2, True), (200, 4, 10, True), (40_000, 800, None, True)],
)
def test_a_key_is_hot_by_the_time_it_takes_of_a_lane(rate, busy, batch, too_hot):
    found = hot_keys(history(rate, heaviest=(key(rate),)), Goals(0.02))
    if busy is None:
        assert found == ()
        return
    (hot,) = found
    assert (round(hot.busy, 6), hot.batch, hot.is_too_hot) == (busy, batch, too_hot)


def test_a_key_that_is_too_hot_asks_for_a_batch_and_one_that_is_nearly_so_does_not():
    assert plan(300, heaviest=(key(200),)).batch == 10
    assert plan(300, heaviest=(key(45),)).batch == 1


def test_the_hottest_comes_first_and_the_batch_is_for_all():
    told = plan(300, heaviest=(key(60, b"a"), key(200, b"b")))
    assert [hot.key.key for hot in told.hot_keys] == [b"b", b"a"]
    assert told.batch == 10


def test_a_key_that_nothing_helps_changes_nothing_for_the_others():
    told = plan(300, heaviest=(key(200),), most_batch=1)
    assert (told.batch, told.lanes, told.hot_keys[0].batch) == (1, 9, None)


def test_batches_come_when_lanes_do_not_suffice():
    told = plan(3_000, most_lanes=50)  # 86 lanes for single records
    assert (told.batch, told.lanes) == (2, 43)


def test_more_partitions_come_when_batches_are_not_allowed():
    told = plan(3_000, 3_000, most_lanes=50, most_batch=1)
    assert (told.batch, told.partitions) == (1, 4)  # 172 lanes
    assert told.lanes <= 50
    assert told.rate == 1_500
    assert told.is_met


def test_one_partition_that_has_too_much_is_reported():
    told = plan(3_000, 1, 1, 1, 1, most_lanes=50, most_batch=1)
    assert (told.partitions, told.consumers, told.is_met) == (5, 5, False)
    assert told.lanes == 86


def test_a_process_does_so_many_calls_and_no_more():
    assert plan(*[2_000] * 6, process_calls=8_000, process_records=1e9).consumers == 3
    assert plan(*[2_000] * 6, process_calls=8_000, process_records=1e9, peak_factor=2).consumers == 6
    assert plan(9_000, process_calls=8_000, most_batch=1).partitions == 2


def test_the_busiest_partitions_may_meet_in_one_consumer():
    goals = Goals(0.001, process_calls=1_000, process_records=1e9)
    assert consumers_needed([340, 340, 30, 30], 1, goals) == 2  # two and two: 680 of the 700
    assert consumers_needed([400, 400, 10, 10], 1, goals) == 4
    assert consumers_needed([800, 1, 1, 1], 1, goals) is None
    assert consumers_needed([800, 1, 1, 1], 2, goals) == 1


@given(
    st.lists(st.integers(0, 4_000), min_size=1, max_size=6).filter(any),
    st.sampled_from([0.001, 0.02, 0.3]),
    st.sampled_from([1, 10, 500]),
    st.integers(0, 400),
)
def test_what_is_recommended_keeps_the_goals(rates, latency, most_batch, hot):
    goals = Goals(latency, most_batch=most_batch)
    past = history(*rates, heaviest=(key(min(hot, max(rates))),))
    told = recommend(past, evenly(min(300, max(rates))), goals)
    assert told.partitions >= len(rates)
    assert 1 <= told.consumers <= told.partitions
    assert told.batch <= most_batch
    busy = told.rate * latency / told.batch / told.lanes
    assert busy <= goals.utilisation + 1e-6
    if told.is_met:
        assert told.lane_wait <= goals.wait
        share = goals.process_share(told.rate, told.batch)
        assert share <= goals.utilisation + 1e-6
    for found in told.hot_keys:
        if found.is_too_hot and found.batch:
            assert told.batch >= found.batch
    if told.partitions == len(rates):
        assert told.rate == max(rates)
    else:
        assert told.rate <= past.peak / told.partitions + 1e-6
        assert told.partitions <= ceil(past.peak)
