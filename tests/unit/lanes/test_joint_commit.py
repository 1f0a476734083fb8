"""What triggers commit together over time: the floor, and triggers that are absent."""

from __future__ import annotations

from lane_world import PARTITION
from multilane.clock import ManualClock
from multilane.commit.ledger import CommitPoint
from multilane.commit.trigger_positions import Position
from multilane.lanes.joint_commit import JointCommit
from multilane.types import NO_EPOCH


def commit_of(start=10, clock=None, **absent: Position) -> JointCommit:
    return JointCommit(PARTITION, CommitPoint(start, 4, (), 5), absent, clock or ManualClock(), 60.0)


def test_it_never_moves_back():
    commit = commit_of()
    assert commit.point({"a": CommitPoint(3, 1, ())}).offset == 10
    assert commit.point({"a": CommitPoint(15, 1, ())}).offset == 15
    assert commit.point({"a": CommitPoint(12, 1, ())}).offset == 15


def test_whoever_is_absent_is_missed_from_now_on():
    clock = ManualClock()
    commit = commit_of(clock=clock, gone=Position(12))
    assert commit.absent == {"gone": Position(12, (), int(clock.wall()))}
    assert commit.point({"a": CommitPoint(20, 4, ())}).offset == 12
    clock.advance(61.0)
    assert commit.point({"a": CommitPoint(20, 4, ())}).offset == 20


def test_a_log_that_was_cut_moves_it_back_with_whoever_is_absent():
    commit = commit_of(gone=Position(30, ((40, 50),)))
    commit.point({"a": CommitPoint(25, 4, (), 5)})
    commit.forget_from(20)
    point = commit.point({"a": CommitPoint(20, 6, (), 6)})
    assert (point.offset, point.leader_epoch, point.end_epoch) == (20, 6, 6)
    assert (point.positions["gone"].offset, point.positions["gone"].runs) == (20, ())


def test_a_cut_beyond_it_leaves_it_where_it_is():
    commit = commit_of(start=10)
    commit.forget_from(20)
    point = commit.point({"a": CommitPoint(10, NO_EPOCH, ())})
    assert (point.offset, point.leader_epoch, point.end_epoch) == (10, 4, NO_EPOCH)
