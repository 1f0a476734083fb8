"""A member asks who has the partitions of its topics only when it has had none of a topic for a while."""

from __future__ import annotations

from multilane.clock import ManualClock
from multilane.runtime.starvation_watch import PATIENCE, StarvationWatch
from multilane.types import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


def watch() -> StarvationWatch:
    topics = {"one": ("a",), "two": ("b", "b.retry")}
    return StarvationWatch("g", lambda: topics, lambda missing: ("range", ()), ManualClock())


def test_a_member_with_partitions_of_all_topics_asks_nothing():
    watched = watch()
    assert not any(watched.is_due({A, B, TopicPartition("b.retry", 0)}, now) for now in (0.0, PATIENCE, 9 * PATIENCE))


def test_a_topic_without_partitions_is_looked_into_after_a_while():
    watched = watch()
    assert not watched.is_due({A, B}, 0.0)
    assert not watched.is_due({A, B}, PATIENCE - 1)
    assert watched.is_due({A, B}, PATIENCE)


def test_time_in_no_group_and_time_with_a_partition_do_not_count():
    watched = watch()
    everything = {A, B, TopicPartition("b.retry", 0)}
    for interruption in (None, everything):
        assert not watched.is_due({A}, 0.0)
        assert not watched.is_due(interruption, PATIENCE)
        assert not watched.is_due({A}, PATIENCE)
        assert watched.is_due({A}, 2 * PATIENCE)
