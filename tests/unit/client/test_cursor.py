"""Phases of a cursor: the table is the only way."""

from __future__ import annotations

from itertools import product

import pytest

from multilane.client.fetch.cursor import TRANSITIONS, At, Cursor, CursorTable, Lookup, Phase
from multilane.types import LeaderEpoch, NodeId, Offset, TopicPartition
from multilane.wire.compose import EARLIEST

TP = TopicPartition("t", 0)
LOOKUP = Lookup(EARLIEST, "test")


def _cursor(phase: Phase = Phase.FETCHING) -> Cursor:
    cursor = Cursor(TP, 1, At(Offset(5), LeaderEpoch(2)))
    cursor.phase = phase
    return cursor


@pytest.mark.parametrize(("start", "end"), list(product(Phase, Phase)), ids=lambda p: p.name)
def test_every_move_is_in_the_table_or_refused(start, end):
    cursor = _cursor(start)
    if end in TRANSITIONS[start]:
        cursor.to(end)
        assert cursor.phase is end
    else:
        with pytest.raises(AssertionError, match=f"no transition from {start.value} to {end.value}"):
            cursor.to(end)
        assert cursor.phase is start


def test_the_table_names_every_phase_and_ends_in_stopped():
    assert set(TRANSITIONS) == set(Phase)
    assert TRANSITIONS[Phase.STOPPED] == frozenset()
    assert all(Phase.STOPPED in TRANSITIONS[p] for p in Phase if p is not Phase.STOPPED)


def test_where_a_cursor_starts():
    placed, lost = _cursor(), Cursor(TP, 1, LOOKUP)
    assert (placed.phase, placed.offset, placed.epoch) == (Phase.FETCHING, 5, 2)
    assert (lost.phase, lost.offset, lost.lookup) == (Phase.AWAIT_RESET, -1, LOOKUP)


def test_lost_and_placed_again():
    cursor = _cursor()
    cursor.replica = NodeId(3)
    cursor.lost(LOOKUP)
    assert (cursor.phase, cursor.lookup, cursor.replica) == (Phase.AWAIT_RESET, LOOKUP, None)
    cursor.positioned(At(Offset(9), LeaderEpoch(4)))
    assert (cursor.phase, cursor.offset, cursor.epoch, cursor.lookup) == (Phase.FETCHING, 9, 4, None)


def test_progress_keeps_the_last_known_epoch():
    cursor = _cursor()
    cursor.retries = 3
    cursor.advanced(Offset(8), LeaderEpoch(-1))
    assert (cursor.offset, cursor.epoch, cursor.retries) == (8, 2, 0)
    cursor.advanced(Offset(9), LeaderEpoch(3))
    assert cursor.epoch == 3


def test_going_back_takes_over_the_run_and_leaves_the_replica():
    cursor = _cursor()
    cursor.replica = NodeId(3)
    cursor.rewound(Offset(2), 7)
    assert (cursor.offset, cursor.refetch_epoch, cursor.replica) == (2, 7, None)


def test_the_table_of_cursors_knows_generations():
    table = CursorTable()
    first, second = Cursor(TP, 1, LOOKUP), Cursor(TopicPartition("u", 3), 2, LOOKUP)
    table.put(first)
    table.put(second)
    assert (len(table), table.topics()) == (2, {"t", "u"})
    assert table.get(TP) is first
    assert table.current(TP, 1) is first
    assert table.current(TP, 2) is None
    table.keep_only({TP: 2, second.partition: 2})
    assert list(table) == [second]
    assert table.get(TP) is None
