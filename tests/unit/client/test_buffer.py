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


class Harness:
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
    harness = Harness()
    filled = [harness.reserve((P, 2))[0] for _ in range(3)]
    for at in (2, 1):
        harness.buffer.fill(*filled[at])
        assert harness.take() == []
    harness.buffer.fill(*filled[0])
    assert harness.take() == [(0, [0, 1]), (0, [2, 3]), (0, [4, 5])]
    assert harness.ready == 3


def test_a_frame_is_charged_whole_until_its_last_slot_leaves():
    harness = Harness()
    slots = harness.reserve((P, 2), (Q, 2), frame_bytes=5_000)
    assert harness.buffer.charged_bytes == 5_000
    for slot, block in slots:
        harness.buffer.fill(slot, block)
    extra = sum(b.pinned_bytes - 5_000 for _, b in slots)
    assert harness.buffer.charged_bytes == 5_000 + extra
    harness.take(None, (Q,))
    assert 5_000 <= harness.buffer.charged_bytes < 5_000 + extra
    harness.take()
    assert harness.buffer.charged_bytes == 0


def test_of_a_shared_frame_only_the_own_records_are_charged():
    harness = Harness()
    (slot, block), other = harness.reserve((P, 2), (Q, 2), frame_bytes=5_000, is_shared=True)
    own = slot.span_bytes + other[0].span_bytes
    assert harness.buffer.charged_bytes == own < 5_000
    harness.buffer.fill(slot, block)  # it lies in the frame: what it pins beyond that is its columns
    assert harness.buffer.charged_bytes == own + block.pinned_bytes - 5_000
    harness.buffer.fill(other[0], other[1].compact())  # it does not: it is charged where it needs more than the share
    assert harness.buffer.charged_bytes == own + block.pinned_bytes - 5_000 + max(
        0, other[1].compact().pinned_bytes - own
    )
    harness.take()
    assert harness.buffer.charged_bytes == 0


def test_who_finds_less_than_a_small_fetch_hears_of_more():
    harness = Harness(limit=MB + 100)
    harness.put(P, 2)
    assert MB // 2 < harness.buffer.room() < MB
    harness.take()
    assert harness.room == 1


def test_little_that_stays_behind_in_a_large_frame_is_copied_out():
    harness = Harness()
    slots = harness.reserve((P, 20), (Q, 2), size=100_000 // 20, frame_bytes=2 * MB)
    for slot, block in slots:
        harness.buffer.fill(slot, block)
    (kept,) = [b for s, b in slots if s.partition == Q]
    before = [(r.key, r.value) for r in kept.records()]
    harness.take(None, (Q,))
    assert harness.buffer.charged_bytes < 100_000
    (copied,) = harness.buffer.take(None, ())
    assert copied.pinned_bytes < 100_000
    assert [(r.key, r.value) for r in copied.records()] == before
    assert harness.buffer.charged_bytes == 0


def test_nothing_is_copied_out_while_it_is_being_decoded():
    harness = Harness()
    (taken, block), (late, late_block) = harness.reserve((P, 2), (Q, 2), frame_bytes=2 * MB)
    harness.buffer.fill(taken, block)
    harness.take()
    assert harness.buffer.charged_bytes == 2 * MB
    harness.buffer.fill(late, late_block)
    assert harness.take() == [(1, [0, 1])]
    assert harness.buffer.charged_bytes == 0


def test_a_limit_cuts_a_block_and_the_rest_comes_next():
    harness = Harness()
    harness.put(P, 5)
    (first,) = harness.buffer.take(2, ())
    assert (first.offsets.tolist(), first.next_offset) == ([0, 1], 2)
    assert harness.take(2) == [(0, [2, 3])]
    assert harness.buffer.charged_bytes > 0
    assert harness.take(2) == [(0, [4])]
    assert harness.buffer.charged_bytes == 0


def test_partitions_take_turns():
    harness = Harness()
    for partition in (P, Q, R):
        harness.put(partition, 4)
    served = [harness.take(2)[0][0] for _ in range(6)]
    assert served == [0, 1, 2, 0, 1, 2]


def test_a_busy_partition_does_not_keep_the_others_waiting():
    harness = Harness()
    for _ in range(3):
        harness.put(P, 3)
    harness.put(Q, 1)
    assert harness.take(3) == [(0, [0, 1, 2])]
    assert (1, [0]) in harness.take(3)


def test_skipped_partitions_keep_everything():
    harness = Harness()
    harness.put(P, 2)
    assert harness.take(None, (P,)) == []
    assert harness.take() == [(0, [0, 1])]


def test_moves_and_failures_keep_their_place_and_are_no_rows():
    harness = Harness()
    failed, moved = Failed(P, _bad(0)), Moved(P, Offset(9), LeaderEpoch(1))
    harness.buffer.put(harness.cursors[P], moved)
    harness.put(P, 2)
    harness.buffer.put(harness.cursors[P], failed)
    assert harness.buffer.take(0, ()) == [moved]
    assert harness.buffer.take(0, ()) == []
    block, last = harness.buffer.take(2, ())
    assert (len(block), last) == (2, failed)


def test_a_bad_slot_takes_what_lies_behind_with_it():
    harness = Harness()
    good, bad, behind = (harness.reserve((P, 2))[0] for _ in range(3))
    other = harness.put(Q, 1)
    harness.buffer.fill(*behind)
    assert harness.buffer.discard(bad[0]) == 1
    harness.buffer.fill(*good)
    assert sorted(harness.take()) == [(0, [0, 1]), (1, [0])]
    assert harness.buffer.charged_bytes == 0
    assert other[0].is_discarded


def test_after_a_bad_slot_the_old_run_is_void_until_the_new_one_begins():
    harness = Harness()
    slot, _ = harness.reserve((P, 2))[0]
    refetch_epoch = harness.buffer.discard(slot)
    (late, block) = harness.reserve((P, 2))[0]
    assert late.is_discarded
    assert harness.buffer.fill(late, block) is None
    assert harness.buffer.charged_bytes == 0
    harness.cursors[P].rewound(Offset(0), refetch_epoch)
    harness.put(P, 2)
    assert harness.take() == [(0, [0, 1])]


def test_two_bad_slots_in_the_wrong_order_start_two_refetch_epochs():
    harness = Harness()
    first, second = harness.reserve((P, 2))[0], harness.reserve((P, 2))[0]
    assert harness.buffer.discard(second[0]) == 1
    harness.cursors[P].rewound(Offset(2), 1)
    again = harness.put(P, 2)
    assert not again[0].is_discarded
    assert harness.buffer.discard(first[0]) == 2
    assert again[0].is_discarded
    assert harness.reserve((P, 2))[0][0].is_discarded
    assert harness.take() == []
    assert harness.buffer.charged_bytes == 0


def test_what_has_left_already_is_nobodys_concern():
    harness = Harness()
    slot, block = harness.reserve((P, 2))[0]
    harness.buffer.expect({P: 2})
    assert harness.buffer.discard(slot) is None
    assert harness.buffer.fill(slot, block) is None
    assert harness.ready == 0


def test_a_block_with_an_error_is_the_last_of_its_refetch_epoch():
    harness = Harness()
    (slot, block), behind = harness.reserve((P, 2))[0], harness.reserve((P, 2))[0]
    object.__setattr__(block, "error", _bad(2))
    assert harness.buffer.fill(slot, block) == 1
    harness.buffer.fill(*behind)
    assert harness.take() == [(0, [0, 1])]


def test_a_new_generation_leaves_the_old_behind():
    harness = Harness()
    harness.put(P, 2)
    pending, block = harness.reserve((P, 2))[0]
    harness.put(Q, 1)
    harness.buffer.expect({P: 2, Q: 1})
    harness.buffer.fill(pending, block)
    assert harness.take() == [(1, [0])]
    assert harness.buffer.charged_bytes == 0
    assert harness.reserve((P, 2))[0][0].is_discarded
    harness.cursors[P] = Cursor(P, 2, At(Offset(7)))
    harness.put(P, 1)
    assert harness.take() == [(0, [7])]


def test_a_partition_taken_away_is_void_for_good():
    harness = Harness()
    harness.put(P, 2)
    harness.buffer.clear()
    assert harness.take() == []
    assert harness.buffer.charged_bytes == 0


def test_eviction_tells_where_to_go_on():
    harness = Harness()
    harness.put(P, 4)
    undecoded = harness.reserve((P, 2))[0]
    harness.buffer.take(1, ())
    assert harness.buffer.evict(harness.cursors[P]) == (1, 1)
    assert harness.buffer.charged_bytes == 0
    assert harness.buffer.fill(*undecoded) is None
    assert harness.buffer.evict(harness.cursors[P]) is None


def test_what_an_older_run_left_behind_is_evicted_too():
    harness = Harness()
    harness.put(P, 2)
    bad, _ = harness.reserve((P, 2))[0]
    harness.cursors[P].rewound(Offset(2), harness.buffer.discard(bad))
    assert harness.buffer.evict(harness.cursors[P]) == (0, 2)
    assert harness.buffer.charged_bytes == 0


def test_what_is_not_records_is_never_evicted_but_what_lies_behind_it_is():
    harness = Harness()
    harness.put(P, 3)
    moved = Moved(P, Offset(9), LeaderEpoch(1))
    harness.buffer.put(harness.cursors[P], moved)
    assert harness.buffer.evict(harness.cursors[P]) is None
    harness.put(P, 4)
    assert harness.buffer.evict(harness.cursors[P]) == (3, 1)
    before, after = harness.buffer.take(None, ())
    assert (before.offsets.tolist(), after) == ([0, 1, 2], moved)
    assert harness.buffer.charged_bytes == 0


def test_a_seal_after_the_application_has_moved_on_changes_nothing():
    harness = Harness()
    old = harness.cursors[P]
    harness.buffer.expect({P: 2, Q: 1, R: 1})
    harness.buffer.seal(old)
    harness.cursors[P] = Cursor(P, 2, At(Offset(0)))
    harness.put(P, 2)
    assert harness.take() == [(0, [0, 1])]


def test_a_log_that_is_no_more_keeps_what_is_decoded_and_can_be_heard_of_no_more():
    harness = Harness()
    harness.put(P, 2)
    late = harness.reserve((P, 2))[0][0]
    harness.put(P, 2)
    refetch_epoch = harness.buffer.seal(harness.cursors[P])
    assert harness.buffer.discard(late) is None
    assert harness.take() == [(0, [0, 1])]
    assert harness.buffer.charged_bytes == 0
    harness.cursors[P].rewound(Offset(0), refetch_epoch)
    harness.put(P, 1)
    assert harness.take() == [(0, [0])]


def test_an_offset_is_a_guess_until_everything_before_it_is_decoded():
    harness = Harness()
    cursor = harness.cursors[P]
    assert harness.buffer.is_offset_certain(cursor)
    slot, block = harness.reserve((P, 2))[0]
    assert not harness.buffer.is_offset_certain(cursor)
    harness.buffer.fill(slot, block)
    assert harness.buffer.is_offset_certain(cursor)
    bad, _ = harness.reserve((P, 2))[0]
    refetch_epoch = harness.buffer.discard(bad)
    assert not harness.buffer.is_offset_certain(cursor)
    cursor.rewound(Offset(2), refetch_epoch)
    assert harness.buffer.is_offset_certain(cursor)


@pytest.mark.parametrize(("taken", "called"), [(1, 0), (2, 1)])
def test_room_is_announced_once_half_is_free(taken, called):
    harness = Harness(limit=4_000)
    for _ in range(3):
        harness.put(P, 1, frame_bytes=1_300)
    assert harness.buffer.room() < 2_000
    harness.buffer.take(taken, ())
    assert harness.room == called
    harness.take()
    assert harness.room == 1
    assert harness.buffer.room() == 4_000


def test_a_buffer_that_never_starved_announces_nothing():
    harness = Harness(limit=10 * MB)
    harness.put(P, 1)
    assert harness.buffer.room() > 9 * MB
    harness.take()
    assert harness.room == 0
