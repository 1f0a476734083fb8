"""A shared consumer is one unit for a scaler: its lag is that of the slowest trigger, its bound the partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from multilane.runtime.scaling import ScalingUnit, scaling_unit
from multilane.types import TopicPartition

A, B, RETRY = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("mail.retry", 0)


def test_each_partition_is_as_far_behind_as_its_slowest_trigger():
    lags = {"index": {A: 5, B: 0}, "mail": {A: 1, B: 7, RETRY: 3}}
    assert scaling_unit(lags, {"mail.retry"}) == ScalingUnit(15, 2)


def test_more_triggers_make_neither_more_lag_nor_more_room_for_replicas():
    assert scaling_unit({f"trigger-{n}": {A: 5, B: 2} for n in range(31)}) == ScalingUnit(7, 2)


def test_a_part_of_the_lag_is_no_lag():
    assert scaling_unit({"index": {A: 5, B: None}, "mail": {A: 1, B: 2}}) == ScalingUnit(None, 2)


def test_a_member_without_partitions_has_nothing_to_do():
    assert scaling_unit({"index": {}, "mail": {}}) == ScalingUnit(0, 0)


PLACES = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5))
LAGS = st.dictionaries(st.sampled_from(["x", "y"]), st.dictionaries(PLACES, st.integers(0, 99)))


@given(LAGS, st.booleans())
def test_the_figures_of_members_add_up(lags, by_topic):
    """However the partitions are divided between two members."""

    def is_first(p):
        return p.topic == "a" if by_topic else p.partition % 2 == 0

    first = {name: {p: lag for p, lag in own.items() if is_first(p)} for name, own in lags.items()}
    other = {name: {p: lag for p, lag in own.items() if not is_first(p)} for name, own in lags.items()}
    parts, whole = (scaling_unit(first), scaling_unit(other)), scaling_unit(lags)
    assert (whole.lag, whole.partitions) == (sum(p.lag for p in parts), sum(p.partitions for p in parts))
