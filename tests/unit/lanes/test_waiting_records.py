"""What waits as objects and what waits as rows answer the same questions."""

from __future__ import annotations

import pytest

from batch_builder import Batch, Rec
from multilane.lanes.chains import Chains
from multilane.lanes.intake import Piece
from multilane.lanes.ordering import by_key
from multilane.lanes.row_chains import RowChains
from multilane.lanes.waiting_records import WaitingRecords
from multilane.wire.records.record import Record
from span_reading import read

NOW = 10.0


@pytest.fixture(params=["objects", "rows"])
def waiting(request) -> WaitingRecords:
    return Chains(by_key(), 2) if request.param == "objects" else RowChains("t", 3, 2)


def piece_of(*keys: bytes) -> Piece:
    return Piece(read(Batch([Rec(i, key, b"v") for i, key in enumerate(keys)], 0), fetch_offset=0), None, is_last=True)


def record_of(offset: int, key: bytes) -> Record:
    return Record("t", 3, offset, 0, 0, key, b"v")


def test_a_key_is_in_one_window_at_a_time(waiting):
    waiting.put_piece(piece_of(b"a", b"b", b"a"), NOW)
    assert waiting.takeable == 3
    first, again = waiting.take(1, NOW), waiting.take(1, NOW)
    assert [record.key for records in (first, again) for record in records] == [b"a", b"b"]
    assert waiting.takeable == 0, "the next of the first key waits for it"
    waiting.release_all(again, NOW)
    assert waiting.takeable == 0
    waiting.release_all(first, NOW)
    rest = waiting.take(2, NOW)
    assert [record.offset for record in rest] == [2]
    waiting.release_all(rest, NOW)
    assert waiting.takeable == 0


def test_copied_out_records_stay(waiting):
    waiting.put_piece(piece_of(b"a", b"b"), NOW)
    waiting.release_frames()
    assert {(record.key, record.value) for record in waiting.take(2, NOW)} == {(b"a", b"v"), (b"b", b"v")}


def test_nothing_is_due_where_nothing_is_deferred(waiting):
    waiting.put_piece(piece_of(b"a"), NOW)
    assert waiting.wake(NOW) is None
    assert waiting.takeable == 1


def test_a_record_that_nothing_held_changes_nothing(waiting):
    waiting.put_piece(piece_of(b"a", b"a"), NOW)
    waiting.release_held(record_of(7, b"a"), NOW)
    assert waiting.takeable == 2


def test_what_has_not_failed_can_come_first_and_what_has_failed_is_not_there(waiting):
    waiting.put_piece(piece_of(b"a"), NOW)
    assert waiting.bring_first(failed=False)
    assert not waiting.bring_first(failed=True)


def test_only_chains_of_objects_give_single_records(waiting):
    waiting.put_piece(piece_of(b"a"), NOW)
    if waiting.singles is None:
        assert isinstance(waiting, RowChains)
    else:
        assert waiting.singles.take_one().offset == 0


def test_whoever_takes_records_back_has_them_again_and_rows_refuse_them(waiting):
    waiting.put_piece(piece_of(b"a"), NOW)
    taken = waiting.take(1, NOW)
    if waiting.takes_back:
        waiting.release_all(taken, NOW, list(taken))
        assert [record.offset for record in waiting.take(1, NOW)] == [0]
        return
    with pytest.raises(AssertionError, match="a row cannot be put back"):
        waiting.release_all(taken, NOW, list(taken))


def test_rows_refuse_records_that_something_has_looked_at():
    rows = RowChains("t", 3, 2)
    for put in (rows.put, rows.put_rested):
        with pytest.raises(AssertionError, match="wait in chains"):
            put([record_of(0, b"a")], NOW)
