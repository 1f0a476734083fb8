"""Two sights of a group, and what that says."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.group.comparison import Movement, Standstill, compared, lag_of, named_members, owners_of
from multilane.group.snapshot import GroupSnapshot, MemberSnapshot, PartitionSnapshot, Subject
from multilane.group.snapshot_history import SnapshotHistory
from multilane.types import TopicPartition

P = TopicPartition("orders", 0)
SUBJECT = Subject("orders", "shop.orders", topics=("orders", "orders.retry"), retry="orders.retry")
OLDEST = Subject("orders", "shop.orders", is_from_beginning=True)


def snapshot(at: float, *places: PartitionSnapshot, subject: Subject = SUBJECT, members=()) -> GroupSnapshot:
    partitions = {TopicPartition("orders", number): place for number, place in enumerate(places)}
    return GroupSnapshot(subject, at, True, "consumer", "Stable", members, partitions)


def seen(end: int, committed: int | None = None, beyond: int = 0, begin: int = 0) -> PartitionSnapshot:
    return PartitionSnapshot(begin, end, committed, beyond)


def row_of(before: PartitionSnapshot, now: PartitionSnapshot, seconds: float = 10.0, subject: Subject = SUBJECT):
    (row,) = compared([snapshot(0.0, before, subject=subject)], snapshot(seconds, now, subject=subject), {}, 10.0).rows
    return row


# --- rates -----------------------------------------------------------------------------------------------------------


def test_what_was_settled_and_what_arrived():
    row = row_of(seen(1_000, 500), seen(1_100, 800))
    assert (row.settled_rate, row.arrival_rate, row.lag) == (30.0, 10.0, 300)
    assert row.drain == 300 / 20


def test_what_is_settled_beyond_the_frontier_counts():
    """One slow record holds the committed offset, and the lanes go on behind it."""
    row = row_of(seen(1_000, 500, 100), seen(1_000, 500, 300))
    assert (row.settled_rate, row.lag, row.beyond) == (20.0, 500, 300)
    assert row.drain == 200 / 20, "of the lag only what is not settled is left"


def test_when_the_slow_record_ends_nothing_is_counted_twice():
    row = row_of(seen(1_000, 500, 300), seen(1_000, 850, 0))
    assert row.settled_rate == 5.0


@pytest.mark.parametrize(
    ("settled", "arrived", "drain"), [(10, 10, math.inf), (0, 0, math.inf), (5, 10, math.inf), (20, 10, 100.0)]
)
def test_nothing_is_drained_while_as_much_arrives(settled, arrived, drain):
    row = row_of(seen(0), seen(0))
    assert row.drain is None, "without a commit nobody knows"
    before = seen(1_000 + 10 * settled - 10 * arrived, 0)
    now = seen(1_000 + 10 * settled, 10 * settled)
    assert row_of(before, now).drain == drain


def test_without_an_earlier_snapshot_there_are_no_rates():
    (row,) = compared((), snapshot(5.0, seen(10, 4)), {}, 10.0).rows
    assert (row.settled_rate, row.arrival_rate, row.drain, row.lag) == (None, None, None, 6)
    same = snapshot(5.0, seen(10, 4))
    (row,) = compared([same], same, {}, 10.0).rows
    assert row.settled_rate is None, "no time has passed"


def test_the_first_commit_counts_from_where_reading_began():
    assert row_of(seen(100, begin=20), seen(100, 50, begin=20)).settled_rate is None
    assert row_of(seen(100, begin=20), seen(100, 50, begin=20), subject=OLDEST).settled_rate == 3.0
    assert row_of(seen(100), seen(100), subject=OLDEST).settled_rate == 0.0


def test_a_reset_is_no_negative_rate():
    row = row_of(seen(100, 90), seen(100, 10))
    assert (row.settled_rate, row.lag, row.drain) == (None, 90, None)
    row = row_of(seen(100, 90), seen(100))
    assert (row.settled_rate, row.lag) == (None, None), "the commit was deleted"
    row = row_of(seen(100, 90), seen(20, 10))
    assert row.arrival_rate == 0.0, "the topic was made anew"


def test_a_map_that_was_cut_is_no_negative_rate():
    assert row_of(seen(100, 10, 50), seen(100, 10, 40)).settled_rate == 0.0


# --- lag -------------------------------------------------------------------------------------------------------------


def test_what_is_gone_from_the_log_nobody_has_to_read():
    assert lag_of(seen(100, 10, begin=40), False) == (60, 60)
    assert lag_of(seen(100, begin=40), True) == (60, 60)
    assert lag_of(seen(100, begin=40), False) == (None, None)
    assert lag_of(PartitionSnapshot(None, None, 10), False) == (None, None)


@given(
    *(st.integers(0, 1_000) for _ in range(3)), st.integers(0, 1_000) | st.none(), st.integers(0, 1_000), st.booleans()
)
def test_numbers_are_never_below_zero(begin, more, arrived, committed, beyond, is_from_beginning):
    subject = OLDEST if is_from_beginning else SUBJECT
    before, now = seen(begin + more, committed, beyond, begin), seen(begin + more + arrived, committed, 0, begin)
    row = row_of(before, now, subject=subject)
    told = (row.lag, row.settled_rate, row.arrival_rate, row.drain, row.still)
    assert all(number is None or number >= 0 for number in told)
    assert row.arrival_rate == arrived / 10


# --- verdicts --------------------------------------------------------------------------------------------------------


def test_what_one_snapshot_is_enough_for():
    found = compared(
        (),
        snapshot(0.0, seen(10, 10), seen(10), PartitionSnapshot(None, None, 3), seen(10, 3, begin=5), seen(10, 4)),
        {},
        10.0,
    )
    verdicts = {row.partition.partition: row.verdict for row in found.rows}
    assert verdicts == {
        0: Movement.DONE,
        1: Movement.UNCOMMITTED,
        2: Movement.LEADERLESS,
        3: Movement.EXPIRED,
        4: Movement.WAITING,
    }


def last(*places: PartitionSnapshot, every: float = 1.0, stalled_after: float = 10.0, subject: Subject = SUBJECT):
    """The row of a partition after sights of it, one after the other."""
    history = SnapshotHistory(stalled_after)
    for number, place in enumerate(places):
        (row,) = history.add(snapshot(100.0 + number * every, place, subject=subject)).rows
    return row


def test_one_that_stands_still_with_lag_is_stalled_after_a_while():
    row = last(*[seen(100, 40)] * 10)
    assert (row.verdict, row.still) == (Movement.WAITING, 9.0)
    row = last(*[seen(100, 40)] * 46)
    assert (row.verdict, row.still, row.is_stuck) == (Movement.STALLED, 45.0, True)
    assert last(seen(100, 40), seen(100, 40), stalled_after=1.0).verdict is Movement.STALLED


def test_one_without_a_commit_may_stand_still_too():
    assert last(*[seen(100)] * 12, subject=OLDEST).verdict is Movement.STALLED
    assert last(*[seen(100)] * 12).verdict is Movement.UNCOMMITTED


def test_nothing_to_do_is_no_standstill():
    quiet = [seen(100, 100)] * 60
    assert last(*quiet).verdict is Movement.DONE
    row = last(*quiet, seen(101, 100))
    assert (row.verdict, row.still) == (Movement.WAITING, 0.0), "it is counted from when something came"


def test_one_settled_record_ends_a_standstill():
    row = last(*[seen(100, 40)] * 30, seen(100, 40, 1))
    assert row.verdict is Movement.HELD
    row = last(*[seen(100, 40)] * 30, seen(100, 41))
    assert (row.verdict, row.still) == (Movement.MOVING, 0.0)


def test_one_record_that_holds_the_frontier_is_distinguished_from_a_standstill():
    row = last(*(seen(1_000, 40, settled) for settled in range(30)))
    assert (row.verdict, row.still, row.settled_rate) == (Movement.HELD, 29.0, 1.0)


def test_between_two_commits_it_is_still_moving():
    row = last(seen(100, 10), seen(100, 20), seen(100, 20))
    assert (row.verdict, row.still) == (Movement.MOVING, 1.0)


def test_an_offset_that_went_back():
    row = last(seen(100, 90), seen(100, 10))
    assert row.verdict is Movement.REWOUND


def test_rates_are_measured_over_some_seconds():
    """Commits every other second: each pair of sights has 20 between them, or none."""
    places = [seen(1_000, 20 * (number // 2)) for number in range(40)]
    for many in range(12, 40):
        assert last(*places[:many]).settled_rate == pytest.approx(10.0, abs=2.0)
    assert last(seen(100, 0), seen(100, 50), every=60.0).settled_rate == 50 / 60, "or over as long as there is none"


def test_a_partition_that_is_new_has_no_rates_yet():
    history = SnapshotHistory(10.0)
    history.add(snapshot(0.0, seen(10, 0)))
    report = history.add(snapshot(1.0, seen(10, 5), seen(3)))
    assert [row.settled_rate for row in report.rows] == [5.0, None]
    history.add(snapshot(2.0, seen(10, 5), seen(3, 1)))
    report = history.add(snapshot(4.0, seen(12, 6), seen(9, 7)))
    assert [(row.settled_rate, row.arrival_rate) for row in report.rows] == [(1.5, 0.5), (3.0, 3.0)], (
        "since it is known"
    )


# --- groups ----------------------------------------------------------------------------------------------------------


def test_most_lag_first():
    report = compared((), snapshot(0.0, seen(10, 9), seen(10), seen(10, 0), seen(10, 9)), {}, 10.0)
    assert [row.partition.partition for row in report.rows] == [2, 0, 3, 1]


def test_what_rows_add_up_to():
    before = snapshot(0.0, seen(100, 0), seen(100, 50), seen(5))
    report = compared([before], snapshot(10.0, seen(100, 50), seen(100, 60, 30), seen(5)), {}, 10.0)
    assert (report.lag, report.beyond, report.settled_rate, report.arrival_rate) == (90, 30, 9.0, 0.0)
    assert report.drain == 50 / 5, "the last of them; one without a lag to know does not count"
    assert (report.count(Movement.MOVING), report.seconds) == (0, 10.0)
    standing = {P: Standstill(50, 9.0, 50, 9.0)}
    assert compared([before], snapshot(10.0, seen(100, 50)), standing, 10.0).count(Movement.MOVING) == 1
    empty = compared((), snapshot(0.0), {}, 10.0)
    assert (empty.lag, empty.settled_rate, empty.drain) == (0, None, None)


def test_one_that_never_drains_is_what_the_group_waits_for():
    before = snapshot(0.0, seen(100, 0), seen(100, 50))
    assert compared([before], snapshot(10.0, seen(100, 50), seen(100, 50)), {}, 10.0).drain == math.inf


def test_members_with_the_same_client_id_have_numbers():
    one, two, three = (
        MemberSnapshot("b", "shop", "10.0.0.2", (P,)),
        MemberSnapshot("a", "shop", "10.0.0.1", (TopicPartition("orders", 1),)),
        MemberSnapshot("c", "other", "10.0.0.3", None),
    )
    assert named_members((one, two, three)) == [(three, "other"), (two, "shop #1"), (one, "shop #2")]
    assert owners_of((one, two, three)) == {P: "shop #2", TopicPartition("orders", 1): "shop #1"}


def test_who_has_a_partition_and_which_are_for_retries():
    places = {P: seen(1, 0), TopicPartition("orders.retry", 0): seen(1, 1)}
    members = (MemberSnapshot("a", "shop", "host", (P,)),)
    report = compared((), GroupSnapshot(SUBJECT, 0.0, True, "classic", "Stable", members, places), {}, 10.0)
    assert [(row.member, row.is_retry) for row in report.rows] == [("shop", False), (None, True)]
