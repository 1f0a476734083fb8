"""What several readers of a block take of it is made once, whatever pieces they take, and memory stays bounded."""

from __future__ import annotations

import gc
import weakref

import pytest

from batch_builder import Batch, Rec
from multilane.lanes.shared_blocks import made_once
from span_reading import read

ROWS = 3_000


def block_of(rows=ROWS, size=10):
    records = [Rec(i, b"key %d" % i, b"v" * size, headers=((b"h", b"%d" % i),)) for i in range(rows)]
    return read(Batch(records, 50), fetch_offset=50)


@pytest.fixture
def block():
    return block_of()


PIECES = [(0, ROWS), (0, 1), (255, 257), (256, 512), (100, 1_000), (ROWS - 1, ROWS)]


@pytest.mark.parametrize(("first", "end"), PIECES)
def test_pieces_have_what_the_block_has(block, first, end):
    shared, plain = block.made_once(), block.slice(first, end)
    for piece in (shared.slice(first, end), shared.slice(first).slice(0, end - first)):
        assert [tuple(r) for r in piece.records()] == [tuple(r) for r in plain.records()]
        assert piece.plain_batch(0, len(piece)).equals(plain.arrow(copy=True))
        assert piece.next_offset == plain.next_offset
    assert shared.listed(first, end) == list(plain.records())
    assert block.listed(first, end) == list(plain.records())


def test_records_are_the_same_objects_for_every_reader(block):
    shared = block.made_once()
    one, other = shared.listed(10, 200), shared.slice(100).listed(0, 50)
    assert all(a is b for a, b in zip(one[90:140], other, strict=True))


def test_a_reader_may_change_its_list(block):
    shared = block.made_once()
    cuts = [shared.made.cut(shared, 0, 20) for _ in range(2)]
    cuts[0].records.clear()
    shared.listed(0, 20).clear()
    assert len(cuts[1].records) == len(shared.listed(0, 20)) == 20


def test_equal_pieces_are_one_cut_with_its_offsets(block):
    shared = block.made_once()
    cut, same = shared.made.cut(shared, 10, 40), shared.made.cut(shared.slice(5), 5, 35)
    assert cut is same
    assert list(cut.open_offsets()) == cut.column().tolist() == list(range(60, 90))


def test_a_reader_that_is_far_behind_makes_its_own():
    block = block_of().made_once()
    first = block.listed(0, 1)[0]
    assert block.listed(1, 2)[0] is block.listed(1, 2)[0]
    block.listed(0, ROWS)
    again = block.listed(0, 1)[0]
    assert again == first
    assert again is not first, "only the newest chunks are kept"


def test_large_records_are_kept_a_few_at_a_time():
    block = block_of(40, 300_000).made_once()
    first = block.listed(0, 1)[0]
    block.listed(0, 40)
    assert block.listed(0, 1)[0] is not first


def test_readers_share_one_compacted_copy_unless_little_is_left(block):
    shared = block.made_once()
    one, other, rest = shared.slice(10).compact(), shared.slice(20, 2_900).compact(), shared.slice(2_900).compact()
    assert one.columns is other.columns
    assert rest.columns is not one.columns
    assert len(rest.columns.offsets) == 100
    for copy, (first, end) in zip((one, other, rest), [(10, ROWS), (20, 2_900), (2_900, ROWS)], strict=True):
        assert list(copy.records()) == list(block.slice(first, end).records())
        assert copy.next_offset == block.slice(first, end).next_offset
    assert one.listed(10, 11)[0] is other.listed(0, 1)[0]


def test_groups_that_read_the_same_block_share_what_is_made_of_it(block):
    """Each group has a block of its own with the same columns."""
    one, other = (made_once(block.with_watermarks(n, n, 0)) for n in (1, 2))
    assert one.made is other.made
    assert (one.high_watermark, other.high_watermark) == (1, 2)
    assert made_once(block.slice(1)).made is not one.made


def test_what_was_made_goes_with_the_last_reader(block):
    shared = made_once(block)
    made = weakref.ref(shared.made)
    del shared
    gc.collect()
    assert made() is None
