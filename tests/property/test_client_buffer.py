"""The fetch buffer against a plain model: network, decoder and application steps in any order.

The model knows, per partition, the offsets that were reserved and are still wanted. What the buffer hands out must be
the front of that, and its charges must be the frames and copies that are still held, down to 0 when nothing is.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from batch_builder import Batch, rows
from multilane.client.fetch.buffer import FetchBuffer, Moved, Slot
from multilane.client.fetch.cursor import At, Cursor
from multilane.types import LeaderEpoch, Offset, TopicPartition
from multilane.wire.records.batches import scan
from multilane.wire.records.block import Block
from multilane.wire.records.decode import DecodeOptions, decode, load_kernels

PARTITIONS = tuple(TopicPartition("t", n) for n in range(3))
MB = 1 << 20


@dataclass
class Entry:
    """What the model expects at one place of a partition's queue: offsets, or a move."""

    offsets: list[int]
    end: int
    slot: Slot | None
    ready: bool = False
    moved: Moved | None = None


class BufferMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        load_kernels()
        self.buffer = FetchBuffer(8 * MB, on_ready=lambda: None, on_room=lambda: None)
        self.cursors = {p: Cursor(p, 1, At(Offset(0))) for p in PARTITIONS}
        self.buffer.expect(dict.fromkeys(PARTITIONS, 1))
        self.model: dict[TopicPartition, list[Entry]] = {p: [] for p in PARTITIONS}
        self.reported: dict[
            TopicPartition, tuple[int, int]
        ] = {}  # a bad batch's word on its way: (refetch epoch, offset)
        self.pending: list[tuple[Slot, Block, Entry | None]] = []

    # --- network -----------------------------------------------------------------------------------------------------

    @rule(
        counts=st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 4), min_size=1),
        frame_bytes=st.sampled_from([0, 3_000, 2 * MB]),
        size=st.sampled_from([5, 200]),
    )
    def reserve(self, counts: dict[TopicPartition, int], frame_bytes: int, size: int) -> None:
        batches = {p: Batch(rows(n, size=size), self.cursors[p].offset) for p, n in counts.items()}
        data = b"".join(b.build() for b in batches.values())
        frame = np.zeros(max(len(data), frame_bytes), np.uint8)
        frame[: len(data)] = np.frombuffer(data, np.uint8)
        slots = self.buffer.reserve(frame.nbytes, [(self.cursors[p], len(b.build())) for p, b in batches.items()])
        at = 0
        for slot, (partition, batch) in zip(slots, batches.items(), strict=True):
            length = len(batch.build())
            table = scan(frame, at, at + length, slot.offset)
            at += length
            block = decode(
                frame,
                table,
                DecodeOptions(),
                topic=partition.topic,
                partition=partition.partition,
                fetch_offset=slot.offset,
            )
            entry = None
            assert slot.is_discarded == (partition in self.reported)
            if partition not in self.reported:
                entry = Entry(list(range(batch.base_offset, batch.end)), batch.end, slot)
                self.model[partition].append(entry)
            self.pending.append((slot, block, entry))
            self.cursors[partition].advanced(Offset(batch.end), LeaderEpoch(0))

    @rule(partition=st.sampled_from(PARTITIONS))
    def move(self, partition: TopicPartition) -> None:
        if partition in self.reported:
            return
        cursor = self.cursors[partition]
        moved = Moved(partition, Offset(cursor.offset + 100), LeaderEpoch(1))
        cursor.offset = moved.offset
        self.buffer.put(cursor, moved)
        if self.model[partition] and self.model[partition][-1].moved is not None:
            self.model[partition].pop()  # of two moves with nothing between them only the later counts
        self.model[partition].append(Entry([], moved.offset, None, ready=True, moved=moved))

    @rule(partition=st.sampled_from(PARTITIONS))
    def hear_of_a_bad_batch(self, partition: TopicPartition) -> None:
        if partition in self.reported:
            refetch_epoch, offset = self.reported.pop(partition)
            self.cursors[partition].rewound(Offset(offset), refetch_epoch)

    @rule(partition=st.sampled_from(PARTITIONS))
    def evict(self, partition: TopicPartition) -> None:
        given_up = self.buffer.evict(self.cursors[partition])
        entries = self.model[partition]
        kept = max((at + 1 for at, entry in enumerate(entries) if entry.moved), default=0)
        if kept == len(entries):
            assert given_up is None
            return
        assert given_up is not None
        assert given_up[0] == entries[kept].offsets[0]
        del entries[kept:]
        self.reported.pop(partition, None)  # its word comes from an older refetch epoch now
        self.cursors[partition].rewound(*given_up)

    # --- decoders ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.pending)
    @rule(which=st.integers(0, 7), bad=st.sampled_from([False, False, True]))
    def decode(self, which: int, bad: bool) -> None:
        slot, block, entry = self.pending.pop(which % len(self.pending))
        entries = self.model[slot.partition]
        wanted = entry is not None and any(e is entry for e in entries)
        if not bad:
            assert self.buffer.fill(slot, block) is None
            if wanted:
                entry.ready = True
            return
        refetch_epoch = self.buffer.discard(slot)
        assert (refetch_epoch is not None) == wanted
        if refetch_epoch is not None:
            del entries[next(i for i, e in enumerate(entries) if e is entry) :]
            self.reported[slot.partition] = (refetch_epoch, slot.offset)

    # --- application -------------------------------------------------------------------------------------------------

    @rule(limit=st.sampled_from([None, 0, 1, 2, 5]), skip=st.sets(st.sampled_from(PARTITIONS), max_size=2))
    def take(self, limit: int | None, skip: set[TopicPartition]) -> None:
        taken = self.buffer.take(limit, skip)
        rows_taken = sum(len(item) for item in taken if isinstance(item, Block))
        assert limit is None or rows_taken <= limit
        for item in taken:
            self._expect(item, skip)
        if limit is None or rows_taken < limit:
            ready = [p for p in PARTITIONS if p not in skip and self.model[p] and self.model[p][0].ready]
            assert not ready, "something ready was left behind"

    def _expect(self, item: object, skip: set[TopicPartition]) -> None:
        if isinstance(item, Moved):
            assert self.model[item.partition].pop(0).moved is item
            return
        assert isinstance(item, Block)
        partition = TopicPartition(item.topic, item.partition)
        assert partition not in skip
        entry = self.model[partition][0]
        assert entry.ready
        offsets = item.offsets.tolist()
        assert offsets == entry.offsets[: len(offsets)]
        assert [r.offset for r in item.records()] == offsets
        del entry.offsets[: len(offsets)]
        if entry.offsets:
            assert item.next_offset == entry.offsets[0]
        else:
            assert item.next_offset == entry.end
            self.model[partition].pop(0)

    @rule(partition=st.sampled_from(PARTITIONS), offset=st.integers(0, 1_000))
    def seek(self, partition: TopicPartition, offset: int) -> None:
        generation = self.cursors[partition].generation + 1
        self.cursors[partition] = Cursor(partition, generation, At(Offset(offset)))
        self.buffer.expect({p: c.generation for p, c in self.cursors.items()})
        self.model[partition].clear()
        self.reported.pop(partition, None)

    # --- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def charges_are_what_is_held(self) -> None:
        slots = [s for queue in self.buffer._queues.values() for s in queue]
        frames = {id(s.frame): s.frame.bytes for s in slots if s.frame is not None}
        charged = self.buffer.charged_bytes
        assert charged == sum(frames.values()) + sum(s.extra_bytes for s in slots)
        held = {id(b): b.pinned_bytes for s in slots if isinstance(b := s.content, Block)}
        assert charged >= max(held.values(), default=0)

    @invariant()
    def settled_means_nothing_is_open(self) -> None:
        for partition, cursor in self.cursors.items():
            decoded = all(e.ready for e in self.model[partition])
            assert self.buffer.is_offset_certain(cursor) == (decoded and partition not in self.reported)

    def teardown(self) -> None:
        while self.pending:
            self.decode(0, False)
        self.take(None, set())
        assert not any(self.model.values())
        assert self.buffer.charged_bytes == 0


TestBuffer = BufferMachine.TestCase
TestBuffer.settings = settings(max_examples=80, stateful_step_count=40)
