"""Where a new member goes on: at what the one before had settled, if nobody else was there in between."""

from __future__ import annotations

import pytest

from lane_world import PARTITION
from multilane.lanes.assignment import Start
from multilane.lanes.kept_starts import KeptStarts
from multilane.types import LeaderEpoch, Offset, OffsetAndMetadata

SETTLED = Start(50, ((60, 70),))


def committed(offset: int, text: str = "") -> OffsetAndMetadata:
    return OffsetAndMetadata(Offset(offset), LeaderEpoch(3), text)


@pytest.mark.parametrize(
    ("known", "sent", "found", "goes_on"),
    [
        (committed(10), None, committed(10), True),
        (committed(10), None, committed(11), False),  # another member, or a tool
        (committed(10), None, committed(9), False),  # a reset
        (committed(10), None, None, False),  # the topic was deleted, or the group
        (committed(10, "a"), None, committed(10, "b"), False),
        (committed(10), committed(20), committed(20), True),  # its response was lost with the member
        (committed(10), committed(20), committed(10), True),
        (None, None, None, True),  # nothing was ever committed
        (None, None, committed(0), False),
        (None, committed(20), committed(20), True),
    ],
)
def test_it_goes_on_only_from_a_commit_of_its_own(known, sent, found, goes_on):
    kept = KeptStarts()
    if sent is not None:
        kept.note_sent({PARTITION: sent})
    kept.keep(PARTITION, SETTLED, known)
    assert kept.take(PARTITION, found) == (SETTLED if goes_on else None)
    assert kept.take(PARTITION, found) is None, "once"


def test_a_place_that_nobody_knew_is_not_kept():
    kept = KeptStarts()
    kept.keep(PARTITION, Start(-1), None)
    assert kept.take(PARTITION, None) is None


@pytest.mark.parametrize(("found", "goes_on"), [(10, False), (20, True), (30, True), (40, True), (41, False)])
def test_each_commit_since_the_last_one_that_is_known_may_be_the_one_of_the_group(found, goes_on):
    """The first was stored although its answer was lost, and those after it failed."""
    kept = KeptStarts()
    for offset in (10, 20, 30, 40):
        kept.note_sent({PARTITION: committed(offset)})
        if offset == 20:
            kept.note_stored({PARTITION: committed(20)})
    kept.keep(PARTITION, SETTLED, committed(20))
    assert kept.take(PARTITION, committed(found)) == (SETTLED if goes_on else None)


def test_a_commit_that_is_stored_late_leaves_those_after_it():
    kept = KeptStarts()
    kept.note_sent({PARTITION: committed(10)})
    kept.note_sent({PARTITION: committed(20)})
    kept.note_stored({PARTITION: committed(10)})
    kept.keep(PARTITION, SETTLED, committed(10))
    assert kept.take(PARTITION, committed(20)) == SETTLED
