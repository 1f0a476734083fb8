"""LZ4 by our own kernel: hand-made frames, hostile ones among them; what it does not read is the library's to judge."""

from __future__ import annotations

import struct

import cramjam
import numpy as np
import pytest

from batch_builder import LZ4, Batch, Rec, join, lz4_frame, rows
from lz4_frames import MAGIC, STORED, block, frame, header, header_sum, sequence, unlz4
from multilane.errors import RecordBatchError
from multilane.wire.records import codecs, decompression
from multilane.wire.records.layout import FULL, ODD
from reference_reader import read as reference
from span_reading import read, rows_of

KB, MB = 1 << 10, 1 << 20
END = b"the end of it"  # 13 literals: enough behind the last match
NOISE = np.random.default_rng(7).integers(0, 256, 200 * KB, np.uint8).tobytes()


def body_of(packed: bytes) -> bytes:
    return bytes(cramjam.lz4.decompress(packed))


# --- what it reads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("literals", [0, 1, 4, 14, 15, 16, 269, 270, 271, 524, 525, 5000])
def test_literals_of_every_length(literals):
    packed = frame(block(sequence(NOISE[:literals])))
    assert unlz4(packed, room=literals) == ([NOISE[:literals]], 0)


@pytest.mark.parametrize("distance", [*range(1, 34), 47, 48, 49, 300])
def test_matches_of_every_distance_and_length(distance):
    """Near the end of the block, and far from it, where copies go beyond what they copy."""
    for length in (4, 5, 7, 8, 15, 16, 18, 19, 20, 47, 48, 49, 272, 273, 274, 600):
        packed = frame(block(sequence(NOISE[:300], distance, length) + sequence(END)))
        assert unlz4(packed, room=400 + length) == ([body_of(packed)], 0)
        far = frame(block(sequence(NOISE[:300], distance, length) + sequence(b"ab", 300, 40) + sequence(NOISE[:900])))
        assert unlz4(far, room=9000) == ([body_of(far)], 0)


def test_many_frames_lie_behind_one_another():
    bodies = [NOISE[:n] + bytes(n) for n in (0, 1, 70_000, 5, 65_536)]
    assert unlz4(*map(lz4_frame, bodies), room=sum(map(len, bodies))) == (bodies, 0)


@pytest.mark.parametrize("linked", [False, True])
@pytest.mark.parametrize("sized", [False, True])
def test_frames_of_many_blocks(linked, sized):
    body = (NOISE[: 40 * KB] + b"between") * 5
    assert unlz4(lz4_frame(body, linked=linked, sized=sized), room=len(body)) == ([body], 0)


def test_blocks_that_are_stored():
    packed = frame(block(NOISE[:70], STORED), block(sequence(b"x", 1, 50) + sequence(END)), block(b"!", STORED))
    assert unlz4(packed, room=1000) == ([NOISE[:70] + b"x" * 51 + END + b"!"], 0)


@pytest.mark.parametrize("sizes", [0x40, 0x50, 0x60, 0x70])
def test_the_largest_block_of_every_size(sizes):
    most = 1 << (8 + 2 * (sizes >> 4))
    packed = frame(block(sequence(b"x", 1, most - 14) + sequence(END)), head=header(sizes=sizes))
    assert unlz4(packed, room=most) == ([b"x" * (most - 13) + END], 0)
    above = frame(block(sequence(b"x", 1, most - 13) + sequence(END)), head=header(sizes=sizes))
    assert unlz4(above, room=2 * most) == ([], ODD)


# --- room and cap ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "packed",
    [lz4_frame(b"word " * 5000), frame(block(NOISE[:900], STORED)), frame(block(sequence(NOISE[:900])))],
    ids=["matches", "stored", "literals"],
)
def test_room_and_cap(packed):
    body = body_of(packed)
    assert unlz4(packed, packed, room=2 * len(body)) == ([body, body], 0)
    assert unlz4(packed, packed, room=2 * len(body) - 1) == ([body], FULL)
    assert unlz4(packed, packed, room=2 * len(body), cap=len(body)) == ([body, body], 0)
    assert unlz4(packed, packed, room=2 * len(body), cap=len(body) - 1) == ([], ODD)
    for room in (0, 1, 63, 640):
        assert unlz4(packed, room=room) == ([], FULL)


def test_no_copy_goes_beyond_the_room():
    """The longest sequences that are copied without a look at the ends, wherever the room ends."""
    packed = frame(block(sequence(NOISE[:269], 100, 273) * 3 + sequence(NOISE[:900])))
    whole = 3 * (269 + 273) + 900
    for room in range(0, whole, 5):
        assert unlz4(packed, room=room) == ([], FULL)
    assert unlz4(packed, room=whole) == ([body_of(packed)], 0)


# --- what it leaves to the library -----------------------------------------------------------------------------------

GOOD = sequence(NOISE[:40], 30, 20) + sequence(END)
LINKED = header(flags=0x40)
HOSTILE = {
    "empty": b"",
    "no magic": b"\x05" + frame(block(GOOD))[1:],
    "a legacy frame": b"\x02\x21\x4c\x18" + block(GOOD),
    "a skippable frame": b"\x50\x2a\x4d\x18" + struct.pack("<I", 20) + bytes(20),
    "a wrong header sum": MAGIC + bytes((0x60, 0x40, header_sum(b"\x60\x40") ^ 1)) + block(GOOD) + bytes(4),
    "another version": MAGIC + b"\xa0\x40\x00" + block(GOOD) + bytes(4),
    "no version": MAGIC + b"\x20\x40\x00" + block(GOOD) + bytes(4),
    "a reserved flag": MAGIC + b"\x62\x40\x00" + block(GOOD) + bytes(4),
    "a reserved size bit": MAGIC + b"\x60\x41\x00" + block(GOOD) + bytes(4),
    "a size that is none": MAGIC + b"\x60\x30\x00" + block(GOOD) + bytes(4),
    "a dictionary": frame(block(GOOD), head=header(0x61, more=bytes(4))),
    "sums of blocks": lz4_frame(NOISE[:500], sums=True),
    "a size that is too large": frame(block(GOOD), head=header(0x68, more=struct.pack("<Q", 74))),
    "a size that is too small": frame(block(GOOD), head=header(0x68, more=struct.pack("<Q", 72))),
    "a size of gigabytes": frame(block(GOOD), head=header(0x68, more=b"\xff" * 8)),
    "two frames": frame(block(GOOD)) * 2,
    "bytes behind it": frame(block(GOOD)) + b"x",
    "no end": frame(block(GOOD), tail=b""),
    "half an end": frame(block(GOOD), tail=bytes(3)),
    "an empty block": frame(block(b"", STORED), block(GOOD)),
    "a stored block past the end": frame(struct.pack("<I", 1000 | STORED) + NOISE[:500], tail=b""),
    "a block past the end": frame(struct.pack("<I", 1000) + GOOD),
    "a block above the largest": frame(block(NOISE[: 64 * KB + 1], STORED)),
    "distance 0": frame(block(sequence(NOISE[:40], 0, 20) + sequence(END))),
    "distance 0, far from the end": frame(block(sequence(NOISE[:40], 0, 20) + sequence(NOISE[:900]))),
    "before the beginning": frame(block(sequence(NOISE[:40], 41, 20) + sequence(END))),
    "before the beginning, far from the end": frame(block(sequence(NOISE[:40], 41, 20) + sequence(NOISE[:900]))),
    "into the block before": frame(block(GOOD), block(sequence(b"abcd", 5, 20) + sequence(END))),
    "before the frame": frame(block(sequence(b"abcd", 5, 20) + sequence(END)), head=LINKED),
    "literals past the end": frame(block(bytes((0x90,)) + b"12345678")),
    "many literals past the end": frame(block(b"\xf0\xff\xff\x10" + NOISE[:300])),
    "a few literals past the end": frame(block(b"\xf0\xfe" + NOISE[:250])),
    "a length without end": frame(block(b"\xf0" + b"\xff" * 2000)),
    "a match length without end": frame(block(b"\x1fx\x01\x00" + b"\xff" * 2000)),
    "a length of which nothing is there": frame(block(b"\xf0")),
    "half a distance": frame(block(bytes((0x10,)) + b"x\x01")),
    "nothing behind a match": frame(block(sequence(NOISE[:40], 30, 20))),
    "four last literals": frame(block(sequence(NOISE[:40], 30, 20) + sequence(b"1234"))),
    "a last match too late": frame(block(sequence(NOISE[:40], 30, 4) + sequence(b"1234567"))),
    "a block larger than its size when read": frame(block(sequence(b"x", 1, 70 * KB) + sequence(END))),
    "a match of megabytes": frame(block(sequence(b"x", 1, 8 * MB) + sequence(END)), head=header(sizes=0x70)),
}


@pytest.mark.parametrize("packed", HOSTILE.values(), ids=HOSTILE)
def test_what_is_odd_is_left_to_the_library(packed, monkeypatch):
    good = lz4_frame(NOISE[:100])
    assert unlz4(good, packed, good, room=64 * KB * 3, cap=64 * KB * 2) == ([NOISE[:100]], ODD)
    batches = [Batch(rows(3), codec=LZ4), Batch(rows(3), 3, codec=LZ4, packed=packed), Batch(rows(3), 6, codec=LZ4)]
    with_kernel = verdict(batches)
    monkeypatch.setattr(decompression, "_load_lz4", lambda *_: False)
    assert verdict(batches) == with_kernel


def verdict(batches: list[Batch]) -> tuple:
    told = []
    for some in (batches, batches[1:]):
        try:
            found = read(*some, fetch_offset=some[0].base_offset, max_decompressed_bytes=MB)
        except RecordBatchError as error:
            told += [type(error), str(error)]
        else:
            told += [rows_of(found), found.next_offset, type(found.error), str(found.error)]
    return tuple(told)


def test_a_frame_that_is_cut_is_odd_wherever_it_is_cut():
    for packed in (frame(block(GOOD)), lz4_frame(b"over and over " * 100 + NOISE[:700], sized=True)):
        for end in range(len(packed)):
            assert unlz4(packed[:end], room=10 * KB) == ([], ODD)


# --- spans -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def library(monkeypatch):
    """The calls of the library."""
    calls: list[str] = []
    for name in ("decompress", "decompress_train"):
        monkeypatch.setattr(
            decompression, name, lambda *arguments, name=name: calls.append(name) or getattr(codecs, name)(*arguments)
        )
    return calls


@pytest.mark.parametrize("many", [1, 2, 40])
def test_what_producers_write_needs_no_library(many, library):
    batches = [Batch(rows(30, start=i * 30), i * 30, codec=LZ4, linked=i % 3 == 0) for i in range(many)]
    assert rows_of(read(*batches)) == reference(join(batches)).rows
    assert not library


def test_plain_batches_between(library):
    batches = [Batch(rows(5, start=i * 5), i * 5, codec=c) for i, c in enumerate((LZ4, 0, LZ4, 0))]
    found = read(*batches)
    assert rows_of(found) == reference(join(batches)).rows
    assert len(found.columns.buffers) == 2
    assert not library


@pytest.mark.parametrize("first", ["expands", "does not"])
def test_a_span_that_does_not_expand_as_its_beginning(first, library):
    """Batches of half a megabyte that compress to nothing, and such that do not compress."""
    flat = [Batch([Rec(0, value=bytes(MB // 2))], i, codec=LZ4) for i in range(8)]
    full = [Batch([Rec(0, value=NOISE)], i, codec=LZ4) for i in range(8)]
    mixed = flat + full if first == "expands" else full + flat
    batches = [b.with_(base_offset=i) for i, b in enumerate(mixed)]
    assert rows_of(read(*batches)) == reference(join(batches)).rows
    assert not library


def test_what_one_batch_has_wrong_is_reported_of_that_batch(library):
    batches = [Batch(rows(30, start=i * 30), i * 30, codec=LZ4) for i in range(4)]
    body = batches[2].with_(codec=0).build()[61:]
    batches[2] = batches[2].with_(body=body[:-1])
    found = read(*batches)
    assert (len(found), found.next_offset) == (60, 60)
    assert "past the end of the batch" in str(found.error)
    assert library
