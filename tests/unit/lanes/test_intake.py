"""Pieces of blocks: their size, and that no record is lost between them."""

from __future__ import annotations

import pytest

from batch_builder import Batch, Rec
from lane_world import PARTITION
from multilane.commit.ledger import Ledger
from multilane.lanes.intake import PIECE, PIECE_BYTES, Intake
from multilane.wire.records.block import Block
from span_reading import read


def pieces_of(*blocks, room=100_000, **more):
    intake = Intake(PARTITION, Ledger(0), room, **more)
    for block in blocks:
        intake.accept(block)
    pieces = []
    while intake.has_blocks and not intake.is_full:
        pieces.append(intake.next_piece())
    return pieces


def block_of(rows, size, start=0):
    return read(Batch([Rec(i, b"", b"v" * size) for i in range(rows)], start), fetch_offset=start)


def test_small_records_come_in_pieces_of_many():
    pieces = pieces_of(block_of(600, 10))
    assert [len(piece.block) for piece in pieces] == [PIECE, PIECE, 600 - 2 * PIECE]
    assert [piece.is_last for piece in pieces] == [False, False, True]


def test_how_many_are_a_piece_is_for_whoever_takes_them_in():
    pieces = pieces_of(block_of(600, 10), block_of(5, 300_000, 600), most=512)
    assert [len(piece.block) for piece in pieces[:3]] == [512, 88, 3]


def test_large_records_come_in_small_pieces_and_one_that_is_larger_alone():
    pieces = pieces_of(block_of(20, 300_000), block_of(3, 2 * PIECE_BYTES, 20), block_of(300, 10, 23))
    assert [len(piece.block) for piece in pieces] == [3] * 6 + [2] + [1] * 3 + [PIECE, 300 - PIECE]
    assert [offset for piece in pieces for offset in piece.offsets.tolist()] == list(range(323))


def test_bytes_in_flight_are_those_of_keys_and_values():
    intake = Intake(PARTITION, Ledger(0, ((1, 2),)), 1_000, 10_000)
    intake.accept(block_of(10, 100))
    fresh = intake.next_piece().records()
    assert [record.offset for record in fresh] == [0, *range(3, 10)]
    assert intake.open_bytes == 800
    for record in fresh:
        intake.settle(record)
    assert intake.open_bytes == 0


@pytest.mark.parametrize("most", [PIECE, 1024])
@pytest.mark.parametrize("sizes", [[4_000] * 600, [10, 90_000, 10, 30_000] * 100, [0] * 300, [63_990, 1, 1] * 50])
def test_a_bound_of_bytes_is_exceeded_by_one_record_at_most(sizes, most):
    """A piece had 256 records of any size: 972 KB although 64 KB were allowed."""
    room = 64 * 1024
    intake = Intake(PARTITION, Ledger(0), 100_000, room, most=most)
    intake.accept(read(Batch([Rec(i, b"", b"v" * size) for i, size in enumerate(sizes)])))
    opened, handled, highest = [], 0, 0
    while intake.has_blocks or opened:
        while intake.has_blocks and not intake.is_full:
            opened += intake.next_piece().records()
            assert sum(len(record.value) for record in opened[:-1]) < room
            highest = max(highest, intake.open_bytes)
        for record in opened[:3]:
            intake.settle(record)
            handled += 1
        del opened[:3]
    assert (handled, intake.open_bytes) == (len(sizes), 0)
    assert highest > room / 2 or sum(sizes) < room, "and it is used"


def test_what_waits_is_counted_down_as_it_is_taken_in():
    first, second = block_of(600, 10), block_of(4, 10, 600)
    intake = Intake(PARTITION, Ledger(0), 100_000)
    intake.accept(first)
    intake.accept(second)
    assert (intake.waiting_rows, intake.waiting_bytes) == (604, first.own_bytes + second.own_bytes)
    intake.next_piece()
    left = (600 - PIECE) / 600 * first.own_bytes + second.own_bytes
    assert (intake.waiting_rows, intake.waiting_bytes) == (604 - PIECE, pytest.approx(left))
    while intake.has_blocks:
        intake.next_piece()
    assert (intake.waiting_rows, intake.waiting_bytes) == (0, 0)


def test_the_size_of_a_block_is_asked_for_once(monkeypatch):
    asked = []
    own_bytes = Block.own_bytes.fget
    monkeypatch.setattr(Block, "own_bytes", property(lambda block: (asked.append(block), own_bytes(block))[1]))
    blocks = [block_of(3, 10, 3 * n) for n in range(50)]
    assert len(pieces_of(*blocks)) == 50
    assert asked == blocks


def test_a_log_that_was_cut_since_has_a_newer_epoch_and_nothing_of_it_is_settled(caplog):
    """Offsets 2 to 9 were settled in epoch 5. From 4 on the log has other records now."""
    intake = Intake(PARTITION, Ledger(0, ((2, 9),), 5), 1_000)
    old = Batch([Rec(i, b"", b"v") for i in range(4)], 0, leader_epoch=5)
    new = Batch([Rec(i, b"", b"v") for i in range(8)], 4, leader_epoch=7)
    intake.accept(read(old, fetch_offset=0))
    intake.accept(read(new, fetch_offset=4))
    assert intake.next_piece().offsets.tolist() == [0, 1]
    assert intake.next_piece().offsets.tolist() == list(range(4, 12))
    assert f"{PARTITION}: the log was truncated at offset 4" in caplog.text


def test_a_newer_epoch_behind_what_was_settled_says_nothing_of_it(caplog):
    intake = Intake(PARTITION, Ledger(0, ((2, 9),), 5), 1_000)
    both = [Batch([Rec(i, b"", b"v") for i in range(10)], at, leader_epoch=e) for at, e in ((0, 5), (10, 7))]
    intake.accept(read(*both, fetch_offset=0))
    assert intake.next_piece().offsets.tolist() == [0, 1, *range(10, 20)]
    assert not caplog.text
