"""Compressed batches: every codec, trains, caps and bombs."""

from __future__ import annotations

import contextlib
import gc
import struct
import tracemalloc
import weakref

import cramjam
import numpy as np
import pytest

from batch_builder import GZIP, LZ4, SNAPPY, ZSTD, Batch, Rec, join, rows, xerial
from multilane.errors import BlockFull, CorruptBatch, OversizedBatch, RecordBatchError
from multilane.wire.records import codecs
from reference_reader import read as reference
from span_reading import frame_of, read, read_frame, rows_of

STREAMS = {GZIP: cramjam.gzip, LZ4: cramjam.lz4, ZSTD: cramjam.zstd}
ALL = (GZIP, SNAPPY, LZ4, ZSTD)
TRAINS = (GZIP, LZ4, ZSTD)
MB = 1 << 20


def batches_of(codec: int, many: int = 4, each: int = 30, **changes) -> list[Batch]:
    return [Batch(rows(each, start=i * each), i * each, codec=codec, **changes) for i in range(many)]


def for_trains(*batches: Batch) -> list[Batch]:
    """LZ4 without sums is no train's but the kernel's."""
    return [batch.with_(sums=True) for batch in batches]


@pytest.fixture
def trains(monkeypatch):
    """Counts the decompressions by kind."""
    made = {"train": 0, "single": 0}

    def counted(name, function):
        def call(*arguments):
            made[name] += 1
            return function(*arguments)

        return call

    monkeypatch.setattr(
        "multilane.wire.records.decompression.decompress_train", counted("train", codecs.decompress_train)
    )
    monkeypatch.setattr("multilane.wire.records.decompression.decompress", counted("single", codecs.decompress))
    return made


@pytest.mark.parametrize("many", [1, 2, 40])
@pytest.mark.parametrize("codec", ALL)
def test_every_codec(codec, many):
    batches = batches_of(codec, many)
    assert rows_of(read(*batches)) == reference(join(batches)).rows


@pytest.mark.parametrize("codec", TRAINS)
def test_many_batches_take_one_call(codec, trains):
    assert len(read(*for_trains(*batches_of(codec, 50)))) == 1500
    assert trains == {"train": 1, "single": 0}


@pytest.mark.parametrize("codec", TRAINS)
def test_later_trains_are_sized_by_what_the_first_taught(codec, trains):
    noise = np.random.default_rng(1).integers(0, 256, 3 * MB, np.uint8).tobytes()
    records = [Rec(i, b"k", noise[i * 4096 : i * 4096 + 4096]) for i in range(16)]
    batches = for_trains(*[Batch(records, i * 16, codec=codec) for i in range(40)])  # 2.5 MB that does not compress
    block = read(*batches)
    assert rows_of(block) == reference(join(batches)).rows
    assert trains == {"train": 2, "single": 0}


def test_mixed_codecs_and_plain_batches(trains):
    codecs_in_order = [GZIP, 0, LZ4, LZ4, 0, ZSTD, GZIP, GZIP]
    batches = for_trains(*[Batch(rows(5, start=i * 5), i * 5, codec=c) for i, c in enumerate(codecs_in_order)])
    block = read(*batches)
    assert rows_of(block) == reference(join(batches)).rows
    assert trains == {"train": 4, "single": 0}
    assert len(block.columns.buffers) == 2


@pytest.mark.parametrize("other", [GZIP, LZ4])
def test_a_span_with_snappy_is_read_batch_by_batch(other, trains):
    batches = [Batch(rows(5, start=i * 5), i * 5, codec=c) for i, c in enumerate((SNAPPY, other, 0, SNAPPY))]
    assert rows_of(read(*batches)) == reference(join(batches)).rows
    assert trains == {"train": 0, "single": 3}


@pytest.mark.parametrize("codec", ALL)
def test_a_decompressed_span_does_not_pin_the_frame(codec):
    batches = batches_of(codec, 3, 500)
    block = read(*batches)
    assert len(block.columns.buffers) == 1
    decompressed = sum(len(b.with_(codec=0).build()) - 61 for b in batches)
    assert block.columns.buffers[0].nbytes in range(decompressed, decompressed + 16 * 3 + 1)


def test_snappy_raw_and_in_many_chunks():
    raw = Batch(rows(300), codec=SNAPPY, xerial=False)
    chunked = Batch(rows(300), codec=SNAPPY, chunk=100)
    assert rows_of(read(raw)) == rows_of(read(chunked)) == reference(chunked.build()).rows


@pytest.mark.parametrize("codec", STREAMS)
def test_concatenated_frames_are_one_stream(codec):
    body = Batch(rows(20)).build()[61:]
    halves = [body[: len(body) // 2], body[len(body) // 2 :]]
    packed = b"".join(bytes(STREAMS[codec].compress(half)) for half in halves)
    block = read(Batch(rows(20), codec=codec, packed=packed), Batch(rows(20), 20, codec=codec))
    assert len(block) == 40


@pytest.mark.parametrize("codec", ALL)
@pytest.mark.parametrize("damage", ["cut", "tail", "junk", "empty"])
def test_broken_streams(codec, damage):
    good = batches_of(codec, 3)
    packed = good[1].build()[61:]
    broken = {"cut": packed[:-9], "tail": packed + b"\x01\x02\x03", "junk": b"\xf3\xff\xff" * 9, "empty": b""}[damage]
    bad = good[1].with_(packed=broken)
    with pytest.raises(CorruptBatch):
        read(bad)
    block = read(good[0], bad, good[2])
    assert (len(block), block.next_offset, type(block.error)) == (30, 30, CorruptBatch)


def test_snappy_chunks_that_lie():
    head = xerial(b"")
    for lie in (struct.pack(">i", 0), struct.pack(">i", -1) + b"abc", struct.pack(">i", 100) + b"abc", b"\0\0"):
        with pytest.raises(CorruptBatch):
            read(Batch(rows(1), codec=SNAPPY, packed=head + lie))


def test_a_count_that_the_decompressed_bytes_do_not_allow():
    for codec in ALL:
        with pytest.raises(CorruptBatch, match="count"):
            read(Batch(rows(3), codec=codec, count=(1 << 31) - 1, last_delta=(1 << 31) - 1))


# --- the train's marks -----------------------------------------------------------------------------------------------


def moved(codec: int) -> list[Batch]:
    """Two batches whose records together are right, but the first stream holds one of the second's records."""
    first, second = batches_of(codec, 2, 3)
    bodies = first.with_(codec=0).build()[61:], second.with_(codec=0).build()[61:]
    cut = bodies[1][0] // 2 + 1
    return [first.with_(body=bodies[0] + bodies[1][:cut]), second.with_(body=bodies[1][cut:])]


@pytest.mark.parametrize("codec", STREAMS)
def test_records_cannot_wander_between_the_batches_of_a_train(codec):
    with pytest.raises(CorruptBatch, match="do not fill the batch"):
        read(*for_trains(*moved(codec)))
    with pytest.raises(CorruptBatch, match="do not fill the batch"):
        read(*moved(codec))


def test_a_batch_cannot_swallow_its_neighbour():
    """A skippable zstd frame at a batch's end that covers the mark and the whole next batch."""
    first, second, third = batches_of(ZSTD, 3, 3)
    swallowed = 25 + len(second.build()) - 61  # a mark's frame and the next stream
    greedy = first.with_(packed=first.build()[61:] + struct.pack("<II", 0x184D2A50, swallowed))
    with pytest.raises(CorruptBatch):
        read(greedy, second, third)


@pytest.mark.parametrize(
    ("codec", "head", "block", "swallowed"),
    [(LZ4, b"\x04\x22\x4d\x18\x60\x40\x82", lambda n: struct.pack("<I", n | 1 << 31), 7),
     (ZSTD, b"\x28\xb5\x2f\xfd\x00\x58", lambda n: (n << 3).to_bytes(3, "little"), 6)],
)  # fmt: skip
def test_a_stream_that_is_cut_cannot_go_on_with_the_mark(codec, head, block, swallowed):
    """It lacks exactly what a mark's frame has before its block, and its record would end there."""
    lost = codecs._mark_frame(codec, 0)[:swallowed]
    record = Rec(0, b"key", b"value" * 20, headers=[(b"h", lost)])
    body = Batch([record]).build()[61:]
    assert body.endswith(lost)
    cut = Batch([record], codec=codec, packed=head + block(len(body)) + body[:-swallowed])
    with pytest.raises(CorruptBatch, match="cannot be decompressed"):
        read(cut, Batch(rows(3), 1, codec=codec))


@pytest.mark.parametrize("codec", STREAMS)
def test_marks_are_whole_frames(codec):
    content = bytes(STREAMS[codec].decompress(codecs._mark_frame(codec, 7)))
    assert content == struct.pack("<QQ", codecs.SECRET, 7)


# --- caps ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", ALL)
@pytest.mark.parametrize("many", [1, 3])
def test_a_batch_at_the_cap_is_read_and_one_above_is_not(codec, many):
    batches = batches_of(codec, many, 2000)
    largest = max(len(b.with_(codec=0).build()) - 61 for b in batches)
    assert len(read(*batches, max_decompressed_bytes=largest)) == 2000 * many
    with pytest.raises(OversizedBatch, match=str(largest - 1)):
        read(batches[-1], max_decompressed_bytes=largest - 1)


@pytest.mark.parametrize("codec", STREAMS)
@pytest.mark.parametrize("frames", [1, 40])
def test_bombs_do_not_allocate(codec, frames):
    """40 MB of zeros, in one frame or many, against a cap of 1 MB."""
    packed = bytes(STREAMS[codec].compress(bytes(40 * MB // frames))) * frames
    bomb = Batch([], codec=codec, packed=packed, count=10, last_delta=9)
    expect_refusal(bomb)


def test_snappy_bombs_do_not_allocate():
    chunk = bytes(cramjam.snappy.compress_raw(bytes(MB // 2)))
    chunks = xerial(b"") + (struct.pack(">i", len(chunk)) + chunk) * 80
    expect_refusal(Batch([], codec=SNAPPY, packed=chunks, count=10, last_delta=9))
    expect_refusal(Batch([], codec=SNAPPY, packed=b"\xff\xff\xff\xff\x0f" + b"a" * 50, count=10, last_delta=9))


def test_a_zstd_frame_that_declares_gigabytes():
    header = b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 40)
    expect_refusal(Batch([], codec=ZSTD, packed=header + bytes(20), count=10, last_delta=9))


def expect_refusal(bomb: Batch) -> None:
    alone = frame_of(bomb.build())
    behind = frame_of(join([Batch(rows(30), codec=bomb.codec), bomb.with_(base_offset=30)]))
    read(Batch(rows(1)))
    tracemalloc.start()  # numpy tells it what it allocates
    try:
        with pytest.raises(OversizedBatch):
            read_frame(alone, max_decompressed_bytes=MB)
        block = read_frame(behind, max_decompressed_bytes=MB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (len(block), type(block.error)) == (30, OversizedBatch)
    assert peak < 4 * MB


@pytest.mark.parametrize("codec", ALL)
def test_many_small_bombs_stay_within_the_bound_of_a_block(codec):
    """Each batch keeps the cap; it is their sum that must not be decompressed."""
    zeros = [Rec(0, value=bytes(MB // 2))]
    batches = [Batch(zeros, i, codec=codec) for i in range(64)]
    pieces = []

    def memory(size):
        pieces.append(size)
        return np.empty(size, np.uint8)

    limit = 4 * MB
    block = read(*batches, max_decompressed_bytes=MB, max_block_bytes=limit, memory=memory)
    assert (len(block), type(block.error)) == (7, BlockFull)
    assert max(pieces) <= limit
    rest = read(*batches, fetch_offset=7, max_decompressed_bytes=MB, max_block_bytes=limit, memory=memory)
    assert rest.offsets.tolist() == list(range(7, 14))


@pytest.mark.parametrize("codec", ALL)
def test_a_batch_that_does_not_fit_any_more_is_not_decompressed(codec):
    small, large = Batch(rows(30), codec=codec), Batch([Rec(0, value=bytes(40 * MB))], 30, codec=codec)
    pieces = []

    def memory(size):
        pieces.append(size)
        return np.empty(size, np.uint8)

    limit = 2 * MB
    block = read(small, large, max_decompressed_bytes=64 * MB, max_block_bytes=limit, memory=memory)
    assert (len(block), block.next_offset, type(block.error)) == (30, 30, BlockFull)
    with pytest.raises(OversizedBatch):
        read(large, fetch_offset=30, max_decompressed_bytes=64 * MB, max_block_bytes=limit, memory=memory)
    assert max(pieces) <= limit


@pytest.mark.parametrize("good", [0, 1, 3])
@pytest.mark.parametrize("fault", ["a bomb", "truncated", "no stream", "too many records", "too much for a block"])
@pytest.mark.parametrize("codec", ALL)
def test_a_refused_batch_gives_its_memory_back_at_once(codec, fault, good):
    """Without the garbage collector: by the time it comes by, a partition may have been refused many times."""
    whole = Batch(rows(30), 30 * good, codec=codec)
    stream = whole.build()[61:]
    bad = {
        "a bomb": Batch([Rec(0, value=bytes(2 * MB))], 30 * good, codec=codec),
        "truncated": whole.with_(packed=stream[:-9]),
        "no stream": whole.with_(packed=b"\x82SNAPPY\x00" + bytes(range(200))),
        "too many records": whole.with_(count=100_000, last_delta=100_000),
        "too much for a block": Batch([Rec(0, value=bytes(MB - 20))], 30 * good, codec=codec),
    }[fault]
    alive: list[weakref.ref[np.ndarray]] = []

    def memory(size):
        piece = np.empty(size, np.uint8)
        alive.append(weakref.ref(piece))
        return piece[:]

    frame = frame_of(join([*batches_of(codec, good), bad]))
    alive.append(weakref.ref(frame))
    gc.disable()
    try:
        with contextlib.suppress(RecordBatchError):
            block = read_frame(frame, max_decompressed_bytes=MB, max_block_bytes=MB, memory=memory)
            error = block.error
            assert len(block) == 30 * good
            del block
            assert error is not None
        del frame
        assert [piece().size for piece in alive if piece() is not None] == []
    finally:
        gc.enable()


@pytest.mark.parametrize("size", [0, 1, 255, 256, 300, 65_791, 65_792, 70_000])
def test_declared_zstd_sizes(size):
    packed = np.frombuffer(bytes(cramjam.zstd.compress(bytes(size))), np.uint8)
    assert codecs._declared_size(ZSTD, packed) in (size, None)
    by_hand = {1: b"\x20", 2: b"\x60", 4: b"\xa0", 8: b"\xe0"}
    width = 1 if size < 256 else 2 if size < 65_792 else 4
    stored = size - 256 if width == 2 else size
    frame = b"\x28\xb5\x2f\xfd" + by_hand[width] + stored.to_bytes(width, "little")
    assert codecs._declared_size(ZSTD, np.frombuffer(frame, np.uint8)) == size
