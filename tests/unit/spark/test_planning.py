"""When a stream begins a batch, without brokers."""

from __future__ import annotations

import pytest

from multilane.clock import ManualClock
from multilane.spark.options import source_options
from multilane.spark.planning import StreamPlanner
from multilane.spark.ranges import Range
from multilane.types import TopicPartition

ONE = TopicPartition("orders", 1)


@pytest.fixture
def planner_of():
    made = []

    def make(**options: str) -> tuple[StreamPlanner, ManualClock]:
        clock = ManualClock()
        told = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders", **options}
        made.append(StreamPlanner(source_options(told, is_stream=True), clock))
        return made[-1], clock

    yield make
    for planner in made:
        planner.close()


def test_a_batch_waits_until_it_is_worth_it_or_has_waited_for_long(planner_of):
    planner, clock = planner_of(minOffsetsPerTrigger="100", maxTriggerDelay="60s")
    few, many = [Range(ONE, 0, 99)], [Range(ONE, 0, 60), Range(ONE, 60, 100)]
    assert not planner._waits_for_more(few), "the first comes at once"
    clock.advance(59)
    assert planner._waits_for_more(few)
    assert not planner._waits_for_more(many)
    clock.advance(59)
    assert planner._waits_for_more(few)
    clock.advance(1)
    assert not planner._waits_for_more([]), "there is nothing for a batch"
    assert not planner._waits_for_more(few)
    assert planner._waits_for_more(few)


def test_without_a_wish_nothing_waits(planner_of):
    planner, _ = planner_of()
    assert not planner._waits_for_more([Range(ONE, 0, 1)])
    assert not planner._waits_for_more([Range(ONE, 0, 1)])
