"""read_committed: aborted batches are dropped and nothing else."""

from __future__ import annotations

import struct

import pytest

from batch_builder import ABORT, COMMIT, LZ4, TRANSACTIONAL, Batch, Rec, marker, rows
from multilane.errors import CorruptBatch
from span_reading import read


def data(offset: int, producer: int, many: int = 1, **changes) -> Batch:
    return Batch(rows(many), offset, flags=TRANSACTIONAL, producer_id=producer, producer_epoch=0).with_(**changes)


def committed(*batches: Batch, aborted=(), fetch_offset: int = 0) -> list[int]:
    block = read(*batches, aborted=aborted, fetch_offset=fetch_offset, read_committed=True)
    assert block.error is None
    assert block.next_offset == max(fetch_offset, batches[-1].end)
    return block.offsets.tolist()


def test_read_uncommitted_gives_all():
    block = read(data(0, 1), marker(ABORT, 1, 1), aborted=[(1, 0)])
    assert block.offsets.tolist() == [0]


def test_an_aborted_and_a_committed_transaction():
    log = [data(0, 1), data(1, 1), marker(ABORT, 2, 1), data(3, 1), marker(COMMIT, 4, 1)]
    assert committed(*log, aborted=[(1, 0)]) == [3]


def test_compressed_batches_are_dropped_too():
    log = [data(0, 1, codec=LZ4), data(1, 2, codec=LZ4), marker(ABORT, 2, 1), data(3, 1, codec=LZ4)]
    assert committed(*log, aborted=[(1, 0)]) == [1, 3]


def test_an_aborted_batch_is_not_even_decompressed():
    log = [data(0, 1, codec=LZ4, packed=b"junk"), marker(ABORT, 1, 1), data(2, 2)]
    assert committed(*log, aborted=[(1, 0)]) == [2]


def test_interleaved_producers_in_any_order_of_the_list():
    log = [
        data(0, 1),
        data(1, 2),
        Batch(rows(1), 2),
        data(3, 1),
        marker(ABORT, 4, 1),
        data(5, 2),
        marker(COMMIT, 6, 2),
        data(7, 1),
        data(8, 2),
        marker(COMMIT, 9, 1),
        marker(ABORT, 10, 2),
        data(11, 2),
    ]
    expected = [1, 2, 5, 7, 11]
    assert committed(*log, aborted=[(1, 0), (2, 8)]) == expected
    assert committed(*log, aborted=[(2, 8), (1, 0)]) == expected
    assert committed(*log, aborted=[(2, 8), (1, 0), (2, 8), (1, 0), (1, 0)]) == expected


def test_two_aborted_transactions_of_one_producer():
    log = [
        data(0, 1),
        marker(ABORT, 1, 1),
        data(2, 1),
        marker(COMMIT, 3, 1),
        data(4, 1),
        marker(ABORT, 5, 1),
        data(6, 1),
    ]
    assert committed(*log, aborted=[(1, 4), (1, 0)]) == [2, 6]


def test_an_empty_transaction_does_not_hide_the_next():
    log = [marker(ABORT, 0, 1), data(1, 1), marker(COMMIT, 2, 1)]
    assert committed(*log) == [1]
    assert committed(*log, aborted=[(1, 0)]) == [1]


def test_double_abort_markers():
    log = [data(0, 1), marker(ABORT, 1, 1), marker(ABORT, 2, 1), data(3, 1)]
    assert committed(*log, aborted=[(1, 0)]) == [3]


def test_starting_inside_a_transaction():
    log = [data(5, 1), marker(ABORT, 6, 1), data(7, 1)]
    assert committed(*log, aborted=[(1, 0)], fetch_offset=5) == [7]


def test_starting_inside_an_aborted_batch():
    log = [data(0, 1, many=10), marker(ABORT, 10, 1), data(11, 1)]
    assert committed(*log, aborted=[(1, 0)], fetch_offset=4) == [11]


def test_starting_at_the_marker():
    log = [marker(ABORT, 6, 1), data(7, 1), marker(COMMIT, 8, 1)]
    assert committed(*log, aborted=[(1, 0)], fetch_offset=6) == [7]


def test_a_batch_below_the_position_still_counts_for_the_marker_rule():
    log = [data(0, 1), marker(ABORT, 1, 1), data(2, 1)]
    assert committed(*log, aborted=[(1, 0)], fetch_offset=2) == [2]


def test_a_marker_that_is_not_here_yet():
    assert committed(data(0, 1), data(1, 2), aborted=[(1, 0)]) == [1]


def test_a_stale_entry_ends_at_a_commit():
    """The aborted data and its marker were compacted away, the entry was not: committed records must stay."""
    log = [marker(COMMIT, 20, 1), data(21, 1), marker(COMMIT, 22, 1)]
    assert committed(*log, aborted=[(1, 5)], fetch_offset=20) == [21]


def test_an_entry_that_begins_later_waits():
    log = [data(0, 1), marker(COMMIT, 1, 1), data(2, 1), marker(ABORT, 3, 1)]
    assert committed(*log, aborted=[(1, 2)]) == [0]


def test_plain_batches_of_an_aborted_producer_stay():
    idempotent = Batch(rows(1), 1, producer_id=1, producer_epoch=0)
    assert committed(data(0, 1), idempotent, marker(ABORT, 2, 1), aborted=[(1, 0)]) == [1]


def test_unknown_control_types_are_passed_over():
    log = [data(0, 1), marker(5, 1, 1), marker(-3, 2, 1), data(3, 1), marker(ABORT, 4, 1), data(5, 1)]
    assert committed(*log, aborted=[(1, 0)]) == [5]


@pytest.mark.parametrize("key", [None, b"", b"\0", b"\0\0\0"])
def test_control_keys_too_short_to_say_anything(key):
    junk = marker(ABORT, 1, 1).with_(records=[Rec(0, key, b"")])
    assert committed(data(0, 1), junk, data(2, 1), aborted=[(1, 0)]) == []


def test_a_later_version_of_the_control_key():
    newer = marker(ABORT, 1, 1).with_(records=[Rec(0, struct.pack(">hhq", 1, ABORT, 9), b"x" * 40)])
    assert committed(data(0, 1), newer, data(2, 1), aborted=[(1, 0)]) == [2]


def test_an_emptied_control_batch():
    empty = marker(ABORT, 1, 1).with_(records=[])
    assert committed(data(0, 2), empty, data(2, 2), aborted=[(1, 0)]) == [0, 2]


@pytest.mark.parametrize("body", [b"\xff" * 20, b"\x20\0\0", b"\x10\0\0\0\x7eabcd", b"\x02\0\0\0\x08abcd"])
def test_a_marker_that_cannot_be_read_stops_the_block(body):
    bad = marker(ABORT, 1, 1).with_(body=body)
    block = read(data(0, 2), bad, data(2, 2), aborted=[(1, 0)], read_committed=True)
    assert (block.offsets.tolist(), block.next_offset, type(block.error)) == ([0], 1, CorruptBatch)


def test_a_broken_marker_below_the_position_does_not_matter():
    log = [data(0, 2), marker(ABORT, 1, 1, body=b"\xff" * 20), data(2, 2)]
    assert committed(*log, aborted=[(1, 0)], fetch_offset=2) == [2]


def test_a_compressed_marker_stops_the_block():
    block = read(data(0, 2), marker(ABORT, 1, 1, codec=LZ4), aborted=[(1, 0)], read_committed=True)
    assert (block.next_offset, type(block.error)) == (1, CorruptBatch)
