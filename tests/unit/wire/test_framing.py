"""The stream of a connection cut into frames: at every byte, in any portions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multilane.errors import FrameError
from multilane.wire.framing import FrameAssembler

CAP = 1 << 20
SCRATCH = 64 * 1024


def _stream(bodies: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(b)) + b for b in bodies)


def _feed(assembler: FrameAssembler, data: bytes) -> list[bytes]:
    """Receive `data` as a socket would: at most as much as the target holds at a time."""
    frames: list[bytes] = []
    while data:
        target = assembler.target()
        assert len(target) > 0
        count = min(len(target), len(data))
        target[:count] = data[:count]
        data = data[count:]
        frames += [f.tobytes() for f in assembler.advance(count)]
    return frames


BODIES = [b"abcd", b"x" * 300, b"12345"]


def test_frames_split_at_every_byte():
    stream = _stream(BODIES)
    for cut in range(len(stream) + 1):
        assembler = FrameAssembler(CAP, "broker")
        frames = _feed(assembler, stream[:cut]) + _feed(assembler, stream[cut:])
        assert frames == BODIES
        assert assembler.is_empty


def test_byte_by_byte():
    assembler = FrameAssembler(CAP, "broker")
    frames = [f for i in range(len(_stream(BODIES))) for f in _feed(assembler, _stream(BODIES)[i : i + 1])]
    assert frames == BODIES


@settings(max_examples=30)
@given(
    sizes=st.lists(st.sampled_from([4, 5, 1_000, SCRATCH - 5, SCRATCH - 4, SCRATCH - 3, SCRATCH, 200_000]), max_size=6),
    portions=st.lists(st.sampled_from([700, 5_000, 65_536, 150_000]), min_size=1, max_size=8),
)
def test_any_sizes_in_any_portions(sizes, portions):
    bodies = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    stream, assembler, frames, at = _stream(bodies), FrameAssembler(CAP, "broker"), [], 0
    while at < len(stream):
        portion = portions[len(frames) % len(portions)]
        frames += _feed(assembler, stream[at : at + portion])
        at += portion
    assert frames == bodies
    assert assembler.is_empty
    assert assembler.missing == 0


def test_frames_do_not_share_memory_with_the_scratch():
    assembler = FrameAssembler(CAP, "broker")
    data = _stream([b"first"])
    assembler.target()[: len(data)] = data
    (first,) = assembler.advance(len(data))
    _feed(assembler, _stream([b"later"]))
    assert first.tobytes() == b"first"


def test_a_large_frame_tells_what_it_lacks():
    assembler = FrameAssembler(CAP, "broker")
    stream = _stream([b"z" * 100_000])
    _feed(assembler, stream[:10])
    assert assembler.missing == 100_000 - 6
    assert not assembler.is_empty
    _feed(assembler, stream[10:-1])
    assert assembler.missing == 1
    assert _feed(assembler, stream[-1:]) == [b"z" * 100_000]


@pytest.mark.parametrize("length", [CAP + 1, 2**31 - 1, -1, -(2**31), 0, 3])
def test_a_length_that_cannot_be_is_refused_before_anything_is_made_of_it(length):
    with pytest.raises(FrameError, match=f"broker b1 announced a frame of {length} bytes"):
        _feed(FrameAssembler(CAP, "b1"), struct.pack(">i", length))


def test_the_cap_itself_is_allowed():
    assembler = FrameAssembler(CAP, "broker")
    assert _feed(assembler, _stream([b"c" * CAP])) == [b"c" * CAP]


def test_good_frames_before_a_bad_length_are_refused_with_it():
    """The stream has lost its place; which of the bytes before were meant is for the connection to say."""
    with pytest.raises(FrameError):
        _feed(FrameAssembler(CAP, "broker"), _stream([b"fine"]) + struct.pack(">i", -5))
