"""LZ4 by our own kernel and by the library: equal, or left to the library."""

from __future__ import annotations

import cramjam
from hypothesis import given, settings
from hypothesis import strategies as st

from batch_builder import lz4_frame
from lz4_frames import block, frame, header, sequence, unlz4
from multilane.wire.records.layout import FULL, ODD
from multilane.wire.records.loading import load_kernels

load_kernels()
settings.register_profile("lz4", deadline=None, max_examples=200)

LONGEST = 300_000
words = st.lists(st.binary(min_size=1, max_size=40), min_size=1, max_size=12)
styles = st.fixed_dictionaries({"linked": st.booleans(), "sized": st.booleans()})


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Few words in any order, so that there are matches at many distances; long ones need several blocks."""
    chosen = draw(words)
    random = draw(st.randoms(use_true_random=False))
    count = draw(st.sampled_from([0, 1, 3, 20, 200, 3000, 6000]))
    return b"".join(random.choices(chosen, k=count))[:LONGEST]


@st.composite
def sequences(draw: st.DrawFn) -> bytes:
    """A frame of one block: sequences that refer to what is there, mostly, and sometimes end as they should."""
    parts, size = [], 0
    for _ in range(draw(st.integers(0, 30))):
        literals = draw(st.binary(max_size=60)) * draw(st.sampled_from([1, 1, 1, 9]))
        size += len(literals)
        distance = draw(st.one_of(st.integers(1, max(1, min(size, 40))), st.integers(0, size + 1)))
        match = draw(st.one_of(st.integers(4, 40), st.integers(4, 700)))
        parts.append(sequence(literals, distance, match))
        size += match
    last = draw(st.one_of(st.binary(min_size=12, max_size=40), st.binary(max_size=14), st.just(bytes(900))))
    return frame(block(b"".join([*parts, sequence(last)])), head=header(flags=draw(st.sampled_from([0x60, 0x40]))))


def library(packed: bytes) -> bytes | None:
    try:
        return bytes(cramjam.lz4.decompress(packed))
    except cramjam.DecompressionError:
        return None


@settings(settings.get_profile("lz4"))
@given(st.lists(st.tuples(bodies(), styles), min_size=1, max_size=4), st.integers(0, 700))
def test_what_the_library_writes_is_read(written: list[tuple[bytes, dict[str, bool]]], spare: int):
    expected = [body for body, _ in written]
    packed = [lz4_frame(body, **style) for body, style in written]
    whole = sum(map(len, expected))
    assert unlz4(*packed, room=whole + spare) == (expected, 0)
    if expected[-1]:
        assert unlz4(*packed, room=whole - 1) == (expected[:-1], FULL)


@settings(settings.get_profile("lz4"))
@given(sequences())
def test_any_sequences(packed: bytes):
    expected = library(packed)
    read, why = unlz4(packed, room=64 << 10)
    assert read == [expected] if why == 0 else why in (ODD, FULL)


@settings(settings.get_profile("lz4"))
@given(bodies(), styles, st.data())
def test_what_is_read_of_a_damaged_frame_is_what_the_library_reads(
    body: bytes, style: dict[str, bool], data: st.DataObject
):
    packed = bytearray(lz4_frame(body, **style))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(packed) - 1))
        match data.draw(st.sampled_from(["change", "cut", "grow", "repeat"])):
            case "change":
                packed[at] = data.draw(st.one_of(st.sampled_from([0, 1, 15, 16, 127, 240, 255]), st.integers(0, 255)))
            case "cut":
                del packed[at : at + data.draw(st.integers(1, 9))]
            case "grow":
                packed[at:at] = data.draw(st.binary(min_size=1, max_size=9))
            case _:
                packed[at : at + 9] = packed[at : at + 9] * 3
        if not packed:
            return
    read, why = unlz4(bytes(packed), room=LONGEST * 2)
    assert read == [library(bytes(packed))] if why == 0 else why in (ODD, FULL)
