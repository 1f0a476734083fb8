"""The scan: what the batch headers say, and what it refuses."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from batch_builder import Batch, Rec, join, rows
from multilane.errors import CorruptBatch, UnsupportedBatch
from multilane.wire.records.batches import scan
from multilane.wire.records.layout import RowWord
from span_reading import frame_of, scan_bytes

TWO = [Batch(rows(3), 10, leader_epoch=4), Batch(rows(2), 13, leader_epoch=5, producer_id=9, producer_epoch=2)]


def test_every_header_field_is_in_the_table():
    batch = TWO[1].with_(max_timestamp=1_800_000_000_000)
    data = batch.build()
    row = scan_bytes(data).rows[0]
    assert row[RowWord.POSITION] == 0
    assert row[RowWord.LENGTH] == len(data)
    assert row[RowWord.BASE_OFFSET] == 13
    assert row[RowWord.LAST_DELTA] == 1
    assert row[RowWord.ATTRIBUTES] == 0
    assert row[RowWord.BASE_TIMESTAMP] == 1_700_000_000_000
    assert row[RowWord.MAX_TIMESTAMP] == 1_800_000_000_000
    assert (row[RowWord.PRODUCER_ID], row[RowWord.PRODUCER_EPOCH], row[RowWord.LEADER_EPOCH]) == (9, 2, 5)
    assert row[RowWord.COUNT] == 2
    assert row[RowWord.CRC] == struct.unpack_from(">I", data, 17)[0]


def test_position_and_epoch_come_from_the_last_whole_batch():
    table = scan_bytes(join(TWO), 10)
    assert (len(table), table.next_offset, table.last_epoch) == (2, 15, 5)
    assert table.error is None


def test_a_span_inside_a_frame():
    data = b"junk" + join(TWO) + b"tail"
    table = scan(frame_of(data), 4, len(data) - 4, 0)
    assert table.rows[:, RowWord.POSITION].tolist() == [4, 4 + len(TWO[0].build())]


def test_an_empty_span():
    table = scan_bytes(b"", 77)
    assert (len(table), table.next_offset, table.last_epoch, table.error) == (0, 77, -1, None)


@pytest.mark.parametrize("kept", [1, 11, 16, 60, 90])
def test_a_cut_batch_at_the_end_is_normal(kept):
    table = scan_bytes(TWO[0].build() + TWO[1].build()[:kept])
    assert (len(table), table.next_offset, table.error) == (1, 13, None)


@pytest.mark.parametrize("kept", [1, 11, 16, 60, 90])
def test_a_cut_first_batch_is_an_error(kept):
    table = scan_bytes(TWO[0].build()[:kept], 10)
    assert isinstance(table.error, CorruptBatch)
    assert (len(table), table.next_offset, table.error.offset) == (0, 10, 10)


@pytest.mark.parametrize("magic", [0, 1, 3, 127])
def test_other_formats_are_refused_by_name(magic):
    table = scan_bytes(TWO[0].with_(magic=magic).build())
    assert isinstance(table.error, UnsupportedBatch)
    assert f"v{magic}" in str(table.error)


def test_a_small_batch_of_the_oldest_format_is_refused_too():
    data = struct.pack(">qiIbb", 5, 14, 0, 0, 0) + struct.pack(">ii", -1, -1)
    assert isinstance(scan_bytes(data).error, UnsupportedBatch)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"length": -1}, "length"),
        ({"length": 48}, "length"),
        ({"base_offset": -1}, "base offset"),
        ({"base_offset": (1 << 63) - 1}, "base offset"),
        ({"last_delta": -1}, "last offset delta"),
        ({"count": -1}, "count"),
        ({"count": 1000}, "count"),
        ({"count": (1 << 31) - 1}, "count"),
    ],
)
def test_header_fields_that_cannot_be(changes, words):
    bad = TWO[1].with_(**changes).build()
    alone = scan_bytes(bad)
    assert isinstance(alone.error, CorruptBatch)
    assert words in str(alone.error)
    assert len(alone) == 0
    behind = scan_bytes(TWO[0].build() + bad)
    assert (len(behind), behind.next_offset, behind.error.offset) == (1, 13, 13)


def test_a_length_far_past_the_end_counts_as_cut():
    table = scan_bytes(TWO[0].build() + TWO[1].with_(length=(1 << 31) - 1).build())
    assert (len(table), table.error) == (1, None)


def test_base_offsets_must_grow():
    table = scan_bytes(join([TWO[0], TWO[0]]))
    assert len(table) == 1
    assert isinstance(table.error, CorruptBatch)


def test_batches_below_the_position_do_not_move_it_back():
    assert scan_bytes(join(TWO), 100).next_offset == 100


def test_more_batches_than_the_first_guess_has_room_for():
    many = [Batch([Rec(0, b"k", b"v")], i) for i in range(5000)]
    table = scan_bytes(join(many))
    assert table.rows[:, RowWord.BASE_OFFSET].tolist() == list(range(5000))


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (5, 4), (0, 11)])
def test_a_span_outside_the_frame_is_our_own_fault(start, end):
    with pytest.raises(ValueError, match="does not fit"):
        scan(np.zeros(10, np.uint8), start, end, 0)


def test_a_read_only_frame_is_as_good():
    data = join(TWO)
    assert len(scan(np.frombuffer(data, np.uint8), 0, len(data), 0)) == 2
