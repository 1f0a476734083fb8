"""What the growth of retry and error topics says."""

from __future__ import annotations

from multilane.group.failures import failures_of
from multilane.group.snapshot import GroupSnapshot, PartitionSnapshot, Subject
from multilane.group.snapshot_history import SnapshotHistory
from multilane.types import TopicPartition

SUBJECT = Subject("orders", "shop.orders", topics=("orders", "retry"), retry="retry", error="error")
MAIN, RETRY, DEAD = TopicPartition("orders", 0), TopicPartition("retry", 0), TopicPartition("error", 0)


def snapshot(at, retry, dead, newest=(), subject=SUBJECT):
    places = {MAIN: PartitionSnapshot(0, 900, 900), RETRY: PartitionSnapshot(0, retry, retry)}
    return GroupSnapshot(subject, at, True, partitions=places, dead={DEAD: PartitionSnapshot(0, dead)}, newest=newest)


def test_failures_are_what_retry_and_error_topics_grow_by():
    found = failures_of([snapshot(0.0, 10, 100)], snapshot(10.0, 40, 117, ("HTTP 500",)))
    assert (found.retried, found.dead, found.rate, found.are_there) == (3.0, 1.7, 4.7, True)
    assert found.errors == (("HTTP 500", 1),)


def test_errors_of_the_last_seconds_are_counted_together():
    earlier = [snapshot(0.0, 0, 0, ("too old",)), snapshot(1.0, 0, 2, ("a", "b"))]
    assert failures_of(earlier, snapshot(2.0, 0, 4, ("b", "b"))).errors == (("b", 3), ("a", 1))


def test_without_a_look_before_nothing_is_known():
    assert failures_of([], snapshot(0.0, 5, 5)).rate is None


def test_nothing_fails_where_nothing_grows():
    found = failures_of([snapshot(0.0, 10, 100)], snapshot(10.0, 10, 100))
    assert (found.rate, found.are_there) == (0.0, False)


def test_topics_that_are_not_known_or_have_no_leader():
    bare = Subject("g", "g")
    assert failures_of([snapshot(0.0, 1, 1, subject=bare)], snapshot(1.0, 2, 2, subject=bare)).rate is None
    assert failures_of([snapshot(0.0, None, 1)], snapshot(1.0, 7, 3)).rate == 2.0


def test_a_report_has_them():
    history = SnapshotHistory(10.0)
    history.add(snapshot(0.0, 0, 0))
    assert history.add(snapshot(2.0, 0, 4)).failures.dead == 2.0
