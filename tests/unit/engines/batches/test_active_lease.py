"""Where a read begins that several triggers share, and what becomes of their leases."""

from __future__ import annotations

from uuid import uuid4

from multilane.commit.ledger import CommitPoint
from multilane.commit.trigger_positions import Position
from multilane.engines.batches.active_lease import joint_starts
from multilane.engines.batches.messages import PartitionLease
from multilane.lanes.assignment import Start
from multilane.types import NO_EPOCH, TopicPartition

MAIN, RETRY = TopicPartition("orders", 0), TopicPartition("a.retry", 0)
ID = uuid4()


def lease(name, offset, runs=(), epoch=NO_EPOCH, end_epoch=NO_EPOCH, topic_ids=None, **more):
    points = {MAIN: CommitPoint(offset, epoch, runs, end_epoch), **more.get("points", {})}
    return PartitionLease(1, name, points, topic_ids={"orders": ID} if topic_ids is None else topic_ids)


def joint(*leases, reach=100):
    return joint_starts(leases, {"orders"}, {one.consumer: reach for one in leases})


def test_a_shared_read_begins_at_the_lowest_position_with_what_is_known_of_the_log():
    starts = joint(lease("a", 40, ((42, 49),), 3, 5), lease("b", 30, (), 2, 4))
    assert starts == {
        MAIN: Start(
            30, (), end_epoch=5, leader_epoch=2, topic_id=ID,
            positions={"a": Position(40, ((42, 49),)), "b": Position(30)},
        )
    }  # fmt: skip


def test_whoever_is_too_far_behind_the_furthest_reads_on_its_own():
    starts = joint(lease("far", 1_000), lease("near", 900), lease("behind", 899))
    assert starts[MAIN].offset == 900
    assert starts[MAIN].positions["behind"] == Position(899), "it is not forgotten"


def test_a_retry_partition_is_its_triggers_own():
    paired = {RETRY: CommitPoint(7, 1, ((9, 9),))}
    starts = joint(lease("a", 40, points=paired), lease("b", 30))
    assert starts[RETRY] == Start(7, ((9, 9),), leader_epoch=1)


def test_nothing_is_shared_by_a_consumer_on_its_own():
    starts = joint_starts([lease("a", 40, ((42, 49),), 3, 5)], (), {})
    assert starts == {MAIN: Start(40, ((42, 49),), 5, 3, ID)}


def test_positions_that_nobody_knows_yet():
    assert joint(lease("a", -1), lease("b", -1))[MAIN] == Start(-1, topic_id=ID)
    assert joint(lease("a", -1), lease("b", 12))[MAIN].positions == {"b": Position(12)}, "a begins where b does"


def test_a_log_is_not_named_where_triggers_know_another_one():
    """One of them has heard that the topic was recreated: the id is looked up."""
    assert joint(lease("a", 4), lease("b", 4, topic_ids={}))[MAIN].topic_id is None


def test_the_claims_are_checked_by_the_epoch_of_whoever_is_furthest():
    """One that has read newer records below it shows that the log was cut in between."""
    assert joint(lease("ahead", 100, end_epoch=3), lease("behind", 60, end_epoch=5))[MAIN].end_epoch == 3
    assert joint(lease("ahead", 100), lease("behind", 60, end_epoch=5))[MAIN].end_epoch == 5
