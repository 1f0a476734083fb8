"""When a stream begins a batch, without brokers."""

from __future__ import annotations

import pytest

from multilane.clock import ManualClock
from multilane.errors import DataLoss
from multilane.spark.options import source_options
from multilane.spark.planning import StreamPlanner
from multilane.spark.ranges import Range
from multilane.spark.truncated_logs import TruncatedLogs
from multilane.types import OffsetAndEpoch, OffsetAndMetadata, TopicPartition

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
    assert not planner._should_wait(few), "the first comes at once"
    clock.advance(59)
    assert planner._should_wait(few)
    assert not planner._should_wait(many)
    clock.advance(59)
    assert planner._should_wait(few)
    clock.advance(1)
    assert not planner._should_wait([]), "there is nothing for a batch"
    assert not planner._should_wait(few)
    assert planner._should_wait(few)


def test_without_a_wish_nothing_waits(planner_of):
    planner, _ = planner_of()
    assert not planner._should_wait([Range(ONE, 0, 1)])
    assert not planner._should_wait([Range(ONE, 0, 1)])


class Logs:
    """In place of the planner's consumer: a log that ends at `end`, of which epochs end where they do."""

    def __init__(self, end: tuple[int, int], epochs: dict[int, tuple[int, int]]) -> None:
        self.end, self.epochs, self.asked = end, epochs, 0

    def partitions_for(self, topic):
        return (ONE,)

    def log_ends(self, partitions):
        return dict.fromkeys(partitions, OffsetAndEpoch(*self.end))

    def epoch_ends(self, epochs):
        self.asked += 1
        return {p: OffsetAndEpoch(*self.epochs[e]) for p, e in epochs.items() if e in self.epochs}

    def beginning_offsets(self, partitions):
        return dict.fromkeys(partitions, 0)

    def close(self, timeout):
        pass


def over(planner, logs):
    planner._consumer.close(0)
    planner._consumer = logs
    planner._truncated_logs = TruncatedLogs(logs)
    planner._ids = {"orders": ""}
    return planner


CHECKPOINT = {"orders": {"1": 200, "epochs": {"1": 5}}}


@pytest.mark.parametrize(
    ("end", "epochs", "begin"),
    [
        ((253, 5), {}, 200),
        ((253, 7), {5: (200, 5)}, 200),
        ((253, 7), {5: (103, 5)}, 103),
        ((150, 7), {5: (103, 5)}, 103),
        ((253, 7), {}, 0),
    ],
    ids=["same leader", "other leader", "cut and longer", "cut and shorter", "all of it is gone"],
)
def test_a_checkpoint_is_held_against_the_log(planner_of, caplog, end, epochs, begin):
    """Else the records that took the offsets would be passed over."""
    planner, _ = planner_of(failOnDataLoss="false")
    over(planner, Logs(end, epochs))
    found = planner.latest(planner.recall(CHECKPOINT), None)
    if begin == 200:
        assert found == {ONE: end[0]}
        assert planner.epochs_of(found) == {ONE: end[1]}
        return
    assert found == {ONE: begin}, "Spark hears of it by an empty batch"
    assert f"orders-1 was read up to 200, but its log has since been truncated at {begin}" in caplog.text
    tree = {"orders": {"1": begin}}
    assert planner.latest(planner.recall(tree), None) == {ONE: end[0]}


def test_a_log_that_was_cut_is_an_error(planner_of):
    planner, _ = planner_of()
    over(planner, Logs((253, 7), {5: (103, 5)}))
    with pytest.raises(DataLoss, match="its log has since been truncated at 103"):
        planner.latest(planner.recall(CHECKPOINT), None)


def test_leaders_are_asked_once_for_a_place_and_the_same_place_stays_the_same(planner_of):
    planner, _ = planner_of()
    logs = Logs((200, 7), {5: (200, 5)})
    over(planner, logs)
    for _ in range(3):
        found = planner.latest(planner.recall(CHECKPOINT), None)
        assert (found, planner.epochs_of(found)) == ({ONE: 200}, {ONE: 5})
    assert logs.asked == 1


def test_a_group_hears_of_nothing_beyond_its_log(planner_of):
    planner, _ = planner_of(commitGroup="g", failOnDataLoss="false")
    over(planner, Logs((150, 5), {}))
    told = []
    planner._commit = told.append
    planner.latest(planner.recall(CHECKPOINT), None)
    assert told == [{ONE: 150}]


@pytest.mark.parametrize(("place", "epoch"), [(200, 5), (103, 7)], ids=["as it was told", "after a cut"])
def test_a_group_hears_with_which_epoch_its_place_was_read(planner_of, place, epoch):
    """Whoever begins at the group must notice that the log was cut since."""
    planner, _ = planner_of(commitGroup="g", failOnDataLoss="false")
    over(planner, Logs((253, 7), {5: (place, 5)}))
    planner._group = group = Group()
    planner.latest(planner.recall(CHECKPOINT), None)
    assert group.told == {ONE: OffsetAndMetadata(place, epoch)}


class Group:
    """What commits are made to."""

    def commit(self, offsets):
        self.told = offsets

    def close(self, timeout):
        pass
