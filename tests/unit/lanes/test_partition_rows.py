"""Rows of a partition in one chain: one window at a time, in log order, as slices of their blocks."""

from __future__ import annotations

import numpy as np
import pytest

from lane_world import block_of, record_of
from multilane.lanes.intake import Piece
from multilane.lanes.partition_rows import PartitionRows
from multilane.wire.records.arrow import COPIED
from multilane.wire.records.window_rows import offsets_of

NOW = 10.0


@pytest.fixture(params=["shared", "alone"])
def rows(request):
    """With two blocks, in pieces of three records."""
    waiting = PartitionRows("t", 3)
    for start in (0, 10):
        block = block_of(["a"] * 10, start)
        block = block.made_once() if request.param == "shared" else block
        for at in range(0, 10, 3):
            waiting.put_piece(Piece(block.slice(at, at + 3), None, is_last=at == 9), NOW)
    return waiting


def test_windows_are_in_log_order_and_one_at_a_time(rows):
    taken = []
    while rows.takeable:
        window = rows.take(4, NOW)
        assert rows.takeable == 0, "the rest waits for this window"
        assert window.reach() == (window[0].offset, window[-1].offset)
        assert offsets_of(window).column().tolist() == [record.offset for record in window]
        batch = window.batch()
        assert batch.schema.equals(COPIED)
        assert batch.column("offset").to_pylist() == [record.offset for record in window]
        assert batch.column("value").to_pylist() == [record.value for record in window]
        taken.append([record.offset for record in window])
        rows.release_all(window, NOW)
    assert taken == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15], [16, 17, 18, 19]]


def test_copied_out_rows_stay_and_what_comes_later_follows(rows):
    rows.release_all(rows.take(5, NOW), NOW)
    rows.release_frames()
    rows.put_piece(Piece(block_of(["b"], 20), None, is_last=True), NOW)
    assert [record.offset for record in rows.take(100, NOW)] == list(range(5, 21))


def test_rows_that_are_settled_already_are_left_out():
    waiting = PartitionRows("t", 3)
    fresh = np.array([True, False, False, True, True, False])
    waiting.put_piece(Piece(block_of("abcdef"), fresh, is_last=True), NOW)
    assert waiting.takeable == 3
    assert [record.offset for record in waiting.take(9, NOW)] == [0, 3, 4]


def test_rows_are_not_put_back():
    waiting = PartitionRows("t", 3)
    waiting.put_piece(Piece(block_of("a"), None, is_last=True), NOW)
    taken = waiting.take(1, NOW)
    with pytest.raises(AssertionError, match="a row cannot be put back"):
        waiting.release_all(taken, NOW, list(taken))
    for put in (waiting.put, waiting.put_rested):
        with pytest.raises(AssertionError, match="wait in chains"):
            put([record_of("a", 0)], NOW)
