"""The buffer between the threads: order, charges, turns, and what leaves when."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from batch_builder import Batch, rows
from multilane.client.fetch.buffer import Failed, FetchBuffer, Moved, Slot
from multilane.client.fetch.cursor import At, Cursor
from multilane.errors import CorruptBatch
from multilane.types import LeaderEpoch, Offset, TopicPartition
from multilane.wire.records.batches import scan
from multilane.wire.records.block import Block
from multilane.wire.records.decode import DecodeOptions, decode, load_kernels

P, Q, R = (TopicPartition("t", n) for n in range(3))
MB = 1 << 20


class Desk:
    """A buffer with the network, decoder and application side of it at hand."""

    def __init__(self, limit: int = 100 * MB, partitions: tuple[TopicPartition, ...] = (P, Q, R)) -> None:
        load_kernels()
        self.ready = self.room = 0
        self.buffer = FetchBuffer(limit, on_ready=self._on_ready, on_room=self._on_room)
        self.cursors = {p: Cursor(p, 1, At(Offset(0))) for p in partitions}
        self.buffer.expect(dict.fromkeys(partitions, 1))

    def _on_ready(self) -> None:
        self.ready += 1

    def _on_room(self) -> None:
        self.room += 1

    def reserve(
        self,
        *counts: tuple[TopicPartition, int],
        size: int = 20,
        frame_bytes: int | None = None,
        is_shared: bool = False,
    ) -> list[Any]:
        """Slots of one frame with so many records each, and their blocks, not yet filled in."""
        batches = [Batch(rows(n, size=size), self.cursors[p].offset, leader_epoch=3) for p, n in counts]
        data = b"".join(b.build() for b in batches)
        frame = np.zeros(max(len(data), frame_bytes or 0), np.uint8)
        frame[: len(data)] = np.frombuffer(data, np.uint8)
        spans, at = [], 0
        for batch in batches:
            spans.append((at, at + len(batch.build())))
            at = spans[-1][1]
        sizes = [(self.cursors[p], end - start) for (p, _), (start, end) in zip(counts, spans, strict=True)]
        slots = self.buffer.reserve(frame.nbytes, sizes, is_shared=is_shared)
        blocks = []
        for slot, (start, end), batch in zip(slots, spans, batches, strict=True):
            table = scan(frame, start, end, slot.offset)
            tp = slot.partition
            options = DecodeOptions()
            blocks.append(
                decode(frame, table, options, topic=tp.topic, partition=tp.partition, fetch_offset=slot.offset)
            )
            self.cursors[tp].advanced(Offset(batch.end), LeaderEpoch(3))
        return list(zip(slots, blocks, strict=True))

    def put(self, partition: TopicPartition, count: int, **more: Any) -> tuple[Slot, Block]:
        ((slot, block),) = self.reserve((partition, count), **more)
        self.buffer.fill(slot, block)
        return slot, block

    def take(self, limit: int | None = None, skip: tuple[TopicPartition, ...] = ()) -> list[tuple[int, list[int]]]:
        return [(b.partition, b.offsets.tolist()) for b in self.buffer.take(limit, skip) if isinstance(b, Block)]


def _bad(offset: int) -> CorruptBatch:
    return CorruptBatch("test", offset=offset)


def test_order_does_not_depend_on_who_decodes_first():
    desk = Desk()
    filled = [desk.reserve((P, 2))[0] for _ in range(3)]
    for at in (2, 1):
        desk.buffer.fill(*filled[at])
        assert desk.take() == []
    desk.buffer.fill(*filled[0])
    assert desk.take() == [(0, [0, 1]), (0, [2, 3]), (0, [4, 5])]
    assert desk.ready == 3


def test_a_frame_is_charged_whole_until_its_last_slot_leaves():
    desk = Desk()
    slots = desk.reserve((P, 2), (Q, 2), frame_bytes=5_000)
    assert desk.buffer.charged_bytes == 5_000
    for slot, block in slots:
        desk.buffer.fill(slot, block)
    extra = sum(b.pinned_bytes - 5_000 for _, b in slots)
    assert desk.buffer.charged_bytes == 5_000 + extra
    desk.take(None, (Q,))
    assert 5_000 <= desk.buffer.charged_bytes < 5_000 + extra
    desk.take()
    assert desk.buffer.charged_bytes == 0


def test_of_a_shared_frame_only_the_own_records_are_charged():
    desk = Desk()
    (slot, block), other = desk.reserve((P, 2), (Q, 2), frame_bytes=5_000, is_shared=True)
    own = slot.span_bytes + other[0].span_bytes
    assert desk.buffer.charged_bytes == own < 5_000
    desk.buffer.fill(slot, block)  # it lies in the frame: what it pins beyond that is its columns
    assert desk.buffer.charged_bytes == own + block.pinned_bytes - 5_000
    desk.buffer.fill(other[0], other[1].compact())  # it does not: it is charged where it needs more than the share
    assert desk.buffer.charged_bytes == own + block.pinned_bytes - 5_000 + max(0, other[1].compact().pinned_bytes - own)
    desk.take()
    assert desk.buffer.charged_bytes == 0


def test_who_finds_less_than_a_small_fetch_hears_of_more():
    desk = Desk(limit=MB + 100)
    desk.put(P, 2)
    assert MB // 2 < desk.buffer.room() < MB
    desk.take()
    assert desk.room == 1


def test_little_that_stays_behind_in_a_large_frame_is_copied_out():
    desk = Desk()
    slots = desk.reserve((P, 20), (Q, 2), size=100_000 // 20, frame_bytes=2 * MB)
    for slot, block in slots:
        desk.buffer.fill(slot, block)
    (kept,) = [b for s, b in slots if s.partition == Q]
    before = [(r.key, r.value) for r in kept.records()]
    desk.take(None, (Q,))
    assert desk.buffer.charged_bytes < 100_000
    (copied,) = desk.buffer.take(None, ())
    assert copied.pinned_bytes < 100_000
    assert [(r.key, r.value) for r in copied.records()] == before
    assert desk.buffer.charged_bytes == 0


def test_nothing_is_copied_out_while_it_is_being_decoded():
    desk = Desk()
    (taken, block), (late, late_block) = desk.reserve((P, 2), (Q, 2), frame_bytes=2 * MB)
    desk.buffer.fill(taken, block)
    desk.take()
    assert desk.buffer.charged_bytes == 2 * MB
    desk.buffer.fill(late, late_block)
    assert desk.take() == [(1, [0, 1])]
    assert desk.buffer.charged_bytes == 0


def test_a_limit_cuts_a_block_and_the_rest_comes_next():
    desk = Desk()
    desk.put(P, 5)
    (first,) = desk.buffer.take(2, ())
    assert (first.offsets.tolist(), first.next_offset) == ([0, 1], 2)
    assert desk.take(2) == [(0, [2, 3])]
    assert desk.buffer.charged_bytes > 0
    assert desk.take(2) == [(0, [4])]
    assert desk.buffer.charged_bytes == 0


def test_partitions_take_turns():
    desk = Desk()
    for partition in (P, Q, R):
        desk.put(partition, 4)
    served = [desk.take(2)[0][0] for _ in range(6)]
    assert served == [0, 1, 2, 0, 1, 2]


def test_a_busy_partition_does_not_keep_the_others_waiting():
    desk = Desk()
    for _ in range(3):
        desk.put(P, 3)
    desk.put(Q, 1)
    assert desk.take(3) == [(0, [0, 1, 2])]
    assert (1, [0]) in desk.take(3)


def test_skipped_partitions_keep_everything():
    desk = Desk()
    desk.put(P, 2)
    assert desk.take(None, (P,)) == []
    assert desk.take() == [(0, [0, 1])]


def test_moves_and_failures_keep_their_place_and_are_no_rows():
    desk = Desk()
    failed, moved = Failed(P, _bad(0)), Moved(P, Offset(9), LeaderEpoch(1))
    desk.buffer.put(desk.cursors[P], moved)
    desk.put(P, 2)
    desk.buffer.put(desk.cursors[P], failed)
    assert desk.buffer.take(0, ()) == [moved]
    assert desk.buffer.take(0, ()) == []
    block, last = desk.buffer.take(2, ())
    assert (len(block), last) == (2, failed)


def test_a_bad_slot_takes_what_lies_behind_with_it():
    desk = Desk()
    good, bad, behind = (desk.reserve((P, 2))[0] for _ in range(3))
    other = desk.put(Q, 1)
    desk.buffer.fill(*behind)
    assert desk.buffer.discard(bad[0]) == 1
    desk.buffer.fill(*good)
    assert sorted(desk.take()) == [(0, [0, 1]), (1, [0])]
    assert desk.buffer.charged_bytes == 0
    assert other[0].is_discarded


def test_after_a_bad_slot_the_old_run_is_void_until_the_new_one_begins():
    desk = Desk()
    slot, _ = desk.reserve((P, 2))[0]
    refetch_epoch = desk.buffer.discard(slot)
    (late, block) = desk.reserve((P, 2))[0]
    assert late.is_discarded
    assert desk.buffer.fill(late, block) is None
    assert desk.buffer.charged_bytes == 0
    desk.cursors[P].rewound(Offset(0), refetch_epoch)
    desk.put(P, 2)
    assert desk.take() == [(0, [0, 1])]


def test_two_bad_slots_in_the_wrong_order_start_two_refetch_epochs():
    desk = Desk()
    first, second = desk.reserve((P, 2))[0], desk.reserve((P, 2))[0]
    assert desk.buffer.discard(second[0]) == 1
    desk.cursors[P].rewound(Offset(2), 1)
    again = desk.put(P, 2)
    assert not again[0].is_discarded
    assert desk.buffer.discard(first[0]) == 2
    assert again[0].is_discarded
    assert desk.reserve((P, 2))[0][0].is_discarded
    assert desk.take() == []
    assert desk.buffer.charged_bytes == 0


def test_what_has_left_already_is_nobodys_concern():
    desk = Desk()
    slot, block = desk.reserve((P, 2))[0]
    desk.buffer.expect({P: 2})
    assert desk.buffer.discard(slot) is None
    assert desk.buffer.fill(slot, block) is None
    assert desk.ready == 0


def test_a_block_with_an_error_is_the_last_of_its_refetch_epoch():
    desk = Desk()
    (slot, block), behind = desk.reserve((P, 2))[0], desk.reserve((P, 2))[0]
    object.__setattr__(block, "error", _bad(2))
    assert desk.buffer.fill(slot, block) == 1
    desk.buffer.fill(*behind)
    assert desk.take() == [(0, [0, 1])]


def test_a_new_generation_leaves_the_old_behind():
    desk = Desk()
    desk.put(P, 2)
    pending, block = desk.reserve((P, 2))[0]
    desk.put(Q, 1)
    desk.buffer.expect({P: 2, Q: 1})
    desk.buffer.fill(pending, block)
    assert desk.take() == [(1, [0])]
    assert desk.buffer.charged_bytes == 0
    assert desk.reserve((P, 2))[0][0].is_discarded
    desk.cursors[P] = Cursor(P, 2, At(Offset(7)))
    desk.put(P, 1)
    assert desk.take() == [(0, [7])]


def test_a_partition_taken_away_is_void_for_good():
    desk = Desk()
    desk.put(P, 2)
    desk.buffer.clear()
    assert desk.take() == []
    assert desk.buffer.charged_bytes == 0


def test_eviction_tells_where_to_go_on():
    desk = Desk()
    desk.put(P, 4)
    undecoded = desk.reserve((P, 2))[0]
    desk.buffer.take(1, ())
    assert desk.buffer.evict(desk.cursors[P]) == (1, 1)
    assert desk.buffer.charged_bytes == 0
    assert desk.buffer.fill(*undecoded) is None
    assert desk.buffer.evict(desk.cursors[P]) is None


def test_what_an_older_run_left_behind_is_evicted_too():
    desk = Desk()
    desk.put(P, 2)
    bad, _ = desk.reserve((P, 2))[0]
    desk.cursors[P].rewound(Offset(2), desk.buffer.discard(bad))
    assert desk.buffer.evict(desk.cursors[P]) == (0, 2)
    assert desk.buffer.charged_bytes == 0


def test_what_is_not_records_is_never_evicted_but_what_lies_behind_it_is():
    desk = Desk()
    desk.put(P, 3)
    moved = Moved(P, Offset(9), LeaderEpoch(1))
    desk.buffer.put(desk.cursors[P], moved)
    assert desk.buffer.evict(desk.cursors[P]) is None
    desk.put(P, 4)
    assert desk.buffer.evict(desk.cursors[P]) == (3, 1)
    before, after = desk.buffer.take(None, ())
    assert (before.offsets.tolist(), after) == ([0, 1, 2], moved)
    assert desk.buffer.charged_bytes == 0


def test_a_seal_after_the_application_has_moved_on_changes_nothing():
    desk = Desk()
    old = desk.cursors[P]
    desk.buffer.expect({P: 2, Q: 1, R: 1})
    desk.buffer.seal(old)
    desk.cursors[P] = Cursor(P, 2, At(Offset(0)))
    desk.put(P, 2)
    assert desk.take() == [(0, [0, 1])]


def test_a_log_that_is_no_more_keeps_what_is_decoded_and_can_be_heard_of_no_more():
    desk = Desk()
    desk.put(P, 2)
    late = desk.reserve((P, 2))[0][0]
    desk.put(P, 2)
    refetch_epoch = desk.buffer.seal(desk.cursors[P])
    assert desk.buffer.discard(late) is None
    assert desk.take() == [(0, [0, 1])]
    assert desk.buffer.charged_bytes == 0
    desk.cursors[P].rewound(Offset(0), refetch_epoch)
    desk.put(P, 1)
    assert desk.take() == [(0, [0])]


def test_an_offset_is_a_guess_until_everything_before_it_is_decoded():
    desk = Desk()
    cursor = desk.cursors[P]
    assert desk.buffer.is_offset_certain(cursor)
    slot, block = desk.reserve((P, 2))[0]
    assert not desk.buffer.is_offset_certain(cursor)
    desk.buffer.fill(slot, block)
    assert desk.buffer.is_offset_certain(cursor)
    bad, _ = desk.reserve((P, 2))[0]
    refetch_epoch = desk.buffer.discard(bad)
    assert not desk.buffer.is_offset_certain(cursor)
    cursor.rewound(Offset(2), refetch_epoch)
    assert desk.buffer.is_offset_certain(cursor)


@pytest.mark.parametrize(("taken", "called"), [(1, 0), (2, 1)])
def test_room_is_announced_once_half_is_free(taken, called):
    desk = Desk(limit=4_000)
    for _ in range(3):
        desk.put(P, 1, frame_bytes=1_300)
    assert desk.buffer.room() < 2_000
    desk.buffer.take(taken, ())
    assert desk.room == called
    desk.take()
    assert desk.room == 1
    assert desk.buffer.room() == 4_000


def test_a_buffer_that_never_starved_announces_nothing():
    desk = Desk(limit=10 * MB)
    desk.put(P, 1)
    assert desk.buffer.room() > 9 * MB
    desk.take()
    assert desk.room == 0
