"""Batches to columns: values, positions, and every way a batch can be bad."""

from __future__ import annotations

import pytest

from batch_builder import (
    APPEND_TIME,
    CONTROL,
    DELETE_HORIZON,
    LZ4,
    Batch,
    Rec,
    encode_record,
    join,
    marker,
    rows,
    varint,
)
from multilane.errors import BlockFull, CorruptBatch, OversizedBatch, UnsupportedBatch
from multilane.wire.records.decode import DecodeOptions
from reference_reader import read as reference
from span_reading import read, read_bytes, rows_of

GOOD = Batch(rows(3), 0)


def test_rows_equal_the_reference():
    batches = [GOOD, Batch(rows(50, start=3), 3, leader_epoch=2)]
    block = read(*batches)
    assert rows_of(block) == reference(join(batches)).rows
    assert (block.next_offset, block.leader_epoch, block.first_offset, len(block)) == (53, 2, 0, 53)
    assert (block.topic, block.partition, block.error) == ("t", 3, None)


def test_null_is_not_empty():
    block = read(
        Batch([Rec(0, None, b""), Rec(1, b"", None), Rec(2, None, None), Rec(3, b"", b""), Rec(4, b"k", b"v")])
    )
    assert block.keys.to_pylist() == [None, b"", None, b"", b"k"]
    assert block.values.to_pylist() == [b"", None, None, b"", b"v"]
    assert (block.keys.null_count, block.values.null_count) == (2, 2)


def test_no_bitmap_without_nulls():
    block = read(GOOD)
    assert block.keys.buffers()[0] is None
    assert block.values.buffers()[0] is None


@pytest.mark.parametrize("nulls", [1, 7, 8, 9, 31])
def test_bitmaps_at_byte_edges(nulls):
    records = [Rec(i, None if i % nulls == 0 else b"k", None if i % nulls == 1 else b"v") for i in range(40)]
    block = read(Batch(records))
    assert block.keys.to_pylist() == [r.key for r in records]
    assert block.values.to_pylist() == [r.value for r in records]


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 11, 12, 13, 14, 100, 70000])
def test_view_sizes_around_the_inline_limit(size):
    content = bytes(i * 7 % 251 for i in range(size))
    block = read(Batch([Rec(0, content, b"v"), Rec(1, b"k", content)]))
    assert block.keys.to_pylist() == [content, b"k"]
    assert block.values.to_pylist() == [b"v", content]
    block.values.validate(full=True)


def test_a_short_view_at_the_very_end_of_the_frame():
    block = read(Batch([Rec(0, None, b"abc")]))
    assert block.values.to_pylist() == [b"abc"]


def test_long_values_are_not_copied():
    block = read(Batch([Rec(0, None, b"x" * 100)]))
    assert [b.size for b in block.values.buffers()[2:]] == [block.columns.buffers[0].nbytes]


def test_headers():
    pairs = ((b"a", b"1"), (b"b", None), (b"", b""), ("\u00e9".encode(), b"x" * 300))
    block = read(Batch([Rec(0, b"k", b"v"), Rec(1, b"k", b"v", headers=pairs)]))
    assert block.headers(0) == ()
    assert block.headers(1) == (("a", b"1"), ("b", None), ("", b""), ("\u00e9", b"x" * 300))


def test_a_header_key_that_is_not_text_does_not_stop_the_partition():
    block = read(Batch([Rec(0, b"k", b"v", headers=((b"\xff", b"1"),))]))
    assert block.headers(0) == (("\ufffd", b"1"),)


def test_create_time_and_log_append_time():
    records = [Rec(0, timestamp_delta=0), Rec(1, timestamp_delta=-5), Rec(2, timestamp_delta=70)]
    block = read(Batch(records, 0, base_timestamp=1000), Batch(records, 3, flags=APPEND_TIME, max_timestamp=9000))
    assert block.timestamps.tolist() == [1000, 995, 1070, 9000, 9000, 9000]
    assert block.timestamp_types.tolist() == [0, 0, 0, 1, 1, 1]
    assert [r.timestamp_type for r in block.records()] == [0, 0, 0, 1, 1, 1]


def test_delete_horizon_changes_nothing():
    plain, flagged = GOOD.build(), GOOD.with_(flags=DELETE_HORIZON).build()
    assert rows_of(read_bytes(flagged)) == rows_of(read_bytes(plain))


def test_records_below_the_fetch_offset_are_dropped():
    block = read(GOOD, Batch(rows(3), 3), fetch_offset=4)
    assert block.offsets.tolist() == [4, 5]
    assert block.next_offset == 6


def test_a_span_wholly_below_the_fetch_offset():
    block = read(GOOD, fetch_offset=50)
    assert (len(block), block.next_offset) == (0, 50)


def test_nulls_and_headers_of_dropped_records_leave_no_trace():
    block = read(Batch([Rec(0, None, None, headers=((b"h", b"1"),)), Rec(1, b"k", b"v")]), fetch_offset=1)
    assert block.keys.to_pylist() == [b"k"]
    assert block.keys.buffers()[0] is None
    assert block.columns.header_spans is None


def test_compaction_gaps_keep_the_batch_end():
    batches = [Batch([Rec(2, b"a", b"1")], 0, last_delta=9), Batch([], 10, last_delta=4), Batch([Rec(3, b"b")], 20)]
    block = read(*batches)
    assert block.offsets.tolist() == [2, 23]
    assert block.next_offset == 24
    assert read(*batches[:2]).next_offset == 15
    assert read(batches[0]).next_offset == 10


def test_control_batches_give_no_rows_but_move_the_position():
    block = read(GOOD, marker(1, 3, 7))
    assert (len(block), block.next_offset) == (3, 4)
    only = read(marker(0, 3, 7), fetch_offset=3)
    assert (len(only), only.next_offset) == (0, 4)


def test_an_empty_span_gives_an_empty_block():
    block = read_bytes(b"", fetch_offset=9)
    assert (len(block), block.next_offset, block.first_offset, block.leader_epoch) == (0, 9, 9, -1)
    assert block.arrow().num_rows == 0
    assert list(block.records()) == []


# --- bad batches -----------------------------------------------------------------------------------------------------


def fields(*parts: bytes, size: int | None = None) -> bytes:
    content = b"".join(parts)
    return varint(len(content) if size is None else size) + content


HEAD = b"\0\0\0"  # attributes, timestamp delta, offset delta
EMPTY = b"\1\1"  # null key, null value
LONG = b"\x80" * 9

BROKEN = {
    "record length past the batch": (fields(HEAD, EMPTY, b"\0", size=50), "length"),
    "record length negative": (fields(HEAD, EMPTY, b"\0", size=-3), "length"),
    "record length too small": (fields(HEAD, EMPTY, b"\0", size=5), "length"),
    "record length varint endless": (b"\xff" * 12, "varint"),
    "record length varint of six bytes": (b"\x8c\x80\x80\x80\x80\x00" + HEAD + EMPTY + b"\0", "varint"),
    "record length varint over 32 bits": (b"\x8c\x80\x80\x80\x10" + HEAD + EMPTY + b"\0", "varint"),
    "timestamp varint of eleven bytes": (fields(b"\0", LONG + b"\x80\x00", b"\0", EMPTY, b"\0"), "varint"),
    "timestamp varint over 64 bits": (fields(b"\0", LONG + b"\x02", b"\0", EMPTY, b"\0"), "varint"),
    "timestamp varint runs out": (fields(b"\0", b"\x80" * 6), "varint"),
    "offset delta negative": (fields(b"\0\0", varint(-1), EMPTY, b"\0"), "offset delta"),
    "offset delta past the last": (fields(b"\0\0", varint(1), EMPTY, b"\0"), "offset delta"),
    "offset delta that does not grow": (encode_record(Rec(0)) * 2, "offset delta"),
    "key past the record": (fields(HEAD, varint(100), b"abcd"), "key"),
    "value past the record": (fields(HEAD, b"\1", varint(100), b"abcd"), "value"),
    "header count missing": (fields(HEAD, b"\1", varint(2), b"ab"), "varint"),
    "header count negative": (fields(HEAD, EMPTY, varint(-1)), "header count"),
    "header count too large": (fields(HEAD, EMPTY, varint(1000)), "header count"),
    "header key null": (fields(HEAD, EMPTY, varint(1), varint(-1), varint(-1)), "header's key"),
    "header key past the record": (fields(HEAD, EMPTY, varint(1), varint(50), b"ab"), "header's key"),
    "header value past the record": (fields(HEAD, EMPTY, varint(1), varint(1), b"a", varint(9)), "header's value"),
    "header value missing": (fields(HEAD, EMPTY, varint(1), varint(1), b"a"), "varint"),
    "bytes left in the record": (fields(HEAD, EMPTY, b"\0", b"zz"), "do not fill its length"),
    "bytes left in the batch": (encode_record(Rec(0)) + b"z", "do not fill the batch"),
}


@pytest.mark.parametrize("codec", [0, LZ4])
@pytest.mark.parametrize("name", BROKEN)
def test_broken_records(name, codec):
    body, words = BROKEN[name]
    count = 2 if "does not grow" in name else 1
    bad = Batch([], 3, body=body, count=count, last_delta=0, codec=codec)
    with pytest.raises(CorruptBatch, match=words) as caught:
        read(bad, fetch_offset=3)
    assert caught.value.offset == 3
    block = read(GOOD.with_(codec=codec), bad, Batch(rows(2), 9, codec=codec))
    assert (block.offsets.tolist(), block.next_offset) == ([0, 1, 2], 3)
    assert isinstance(block.error, CorruptBatch)
    assert block.error.offset == 3


def test_fewer_records_than_the_count_says():
    with pytest.raises(CorruptBatch):
        read(Batch(rows(3, size=200), 0, count=4))


def test_more_records_than_the_count_says():
    with pytest.raises(CorruptBatch, match="do not fill the batch"):
        read(Batch(rows(3), 0, count=2))


def test_lengths_below_minus_one_are_null_as_in_the_java_client():
    body = fields(HEAD, varint(-2), varint(-9), b"\0")
    assert rows_of(read(Batch([], body=body, count=1)))[0][3:5] == (None, None)


def test_a_wrong_checksum():
    with pytest.raises(CorruptBatch, match="checksum"):
        read(GOOD.with_(crc=1))
    assert len(read(GOOD.with_(crc=1), check_crc=False)) == 3


def test_a_wrong_checksum_on_a_control_batch():
    block = read(GOOD, marker(1, 3, 7, crc=5))
    assert (len(block), block.next_offset, type(block.error)) == (3, 3, CorruptBatch)


def test_the_checksum_of_a_batch_that_is_not_needed_is_not_needed():
    assert read(GOOD.with_(crc=1), Batch(rows(1), 3), fetch_offset=3).offsets.tolist() == [3]


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_unknown_codecs(codec):
    bad = GOOD.with_(flags=codec, base_offset=3)
    with pytest.raises(UnsupportedBatch, match=str(codec)):
        read(bad)
    block = read(GOOD, bad)
    assert (len(block), block.next_offset, type(block.error)) == (3, 3, UnsupportedBatch)


def test_the_scan_error_travels_with_the_block():
    block = read_bytes(GOOD.build() + GOOD.with_(magic=1, base_offset=3).build())
    assert (len(block), block.next_offset, type(block.error)) == (3, 3, UnsupportedBatch)
    with pytest.raises(UnsupportedBatch):
        read(GOOD.with_(magic=1))


def test_the_first_bad_batch_wins():
    bad_sum = Batch(rows(1), 3, crc=0)
    bad_body = Batch([], 4, body=b"\xff" * 12, count=1)
    assert "checksum" in str(read(GOOD, bad_sum, bad_body).error)
    assert "varint" in str(read(GOOD, bad_body.with_(base_offset=3), bad_sum.with_(base_offset=4)).error)


def test_a_bad_batch_behind_the_position_moves_nothing_back():
    block = read(Batch(rows(2), 0), Batch(rows(6), 2, crc=0), fetch_offset=5)
    assert (len(block), block.next_offset, type(block.error)) == (0, 5, CorruptBatch)
    assert block.error.offset == 5
    with pytest.raises(CorruptBatch) as caught:
        read(Batch(rows(6), 2, crc=0), fetch_offset=5)
    assert caught.value.offset == 5


def test_a_bad_batch_that_lies_about_its_offset_moves_nothing_forward():
    """The base offset is not under the checksum: going on from there would skip records."""
    block = read(GOOD, Batch(rows(2), 1 << 40, crc=0))
    assert (block.next_offset, block.error.offset) == (3, 3)
    with pytest.raises(CorruptBatch) as caught:
        read(Batch(rows(2), 1 << 40, crc=0), fetch_offset=7)
    assert caught.value.offset == 7


def test_an_unknown_codec_below_the_position_does_not_matter():
    block = read(GOOD.with_(flags=6), Batch(rows(1), 3), fetch_offset=3)
    assert (block.offsets.tolist(), block.error) == ([3], None)


def test_a_block_has_a_bound():
    batches = [Batch(rows(100, start=i), i * 100) for i in range(5)]
    block = read(*batches, max_block_bytes=56 * 250)
    assert (len(block), block.next_offset, type(block.error)) == (200, 200, BlockFull)
    assert block.error.retriable
    rest = read(*batches, fetch_offset=200, max_block_bytes=56 * 250)
    assert rest.first_offset == 200
    with pytest.raises(OversizedBatch):
        read(*batches, max_block_bytes=56 * 50)


def test_the_bound_of_a_block_follows_the_cap_and_stays_addressable():
    assert DecodeOptions().block_limit == 256 << 20
    assert DecodeOptions(max_decompressed_bytes=100 << 20).block_limit == 400 << 20
    assert DecodeOptions(max_decompressed_bytes=1 << 40).block_limit == (1 << 31) - 1
    assert DecodeOptions(max_block_bytes=5).block_limit == 5


@pytest.mark.parametrize("count", [0, 1])
def test_control_batches_are_not_decoded(count):
    block = read(Batch([], 0, body=b"\xff" * 7 * count, count=count, flags=CONTROL))
    assert (len(block), block.next_offset) == (0, 1)
