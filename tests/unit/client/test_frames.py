"""Frames reuse memory one after the other, never at the same time."""

from __future__ import annotations

import gc

import numpy as np
import pyarrow as pa
import pytest

from multilane.client.net.frames import FramePool

MB = 1 << 20


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_memory_is_used_again_once_nobody_looks_at_it():
    pool = FramePool(64 * MB)
    frame = pool.take(3 * MB - 5)
    at = address(frame)
    assert frame.nbytes == 3 * MB - 5
    del frame
    gc.collect()
    assert pool.idle_bytes == 3 * MB
    again = pool.take(3 * MB - 100_000)
    assert address(again) == at
    assert pool.idle_bytes == 0


def test_a_piece_that_would_be_half_wasted_is_left_for_others():
    pool = FramePool(64 * MB)
    pool.take(6 * MB)
    gc.collect()
    small = pool.take(3 * MB)
    assert pool.idle_bytes == 6 * MB
    fitting = pool.take(4 * MB)
    assert pool.idle_bytes == 0
    assert address(small) != address(fitting)


@pytest.mark.parametrize(
    "look",
    [
        lambda frame: frame[10:20][2:5],
        pa.py_buffer,
        lambda frame: np.frombuffer(pa.py_buffer(frame), np.uint8)[5:],
        lambda frame: memoryview(frame)[3:9],
    ],
)
def test_whoever_looks_at_it_keeps_it_from_being_used_again(look):
    pool = FramePool(64 * MB)
    frame = pool.take(2 * MB)
    frame[:] = 7
    held = look(frame)
    del frame
    gc.collect()
    assert pool.idle_bytes == 0
    pool.take(2 * MB)[:] = 9
    assert np.frombuffer(held, np.uint8)[0] == 7
    del held
    gc.collect()
    assert pool.idle_bytes == 4 * MB


def test_small_frames_are_not_kept():
    pool = FramePool(64 * MB)
    frame = pool.take(100_000)
    assert frame.nbytes == 100_000
    del frame
    gc.collect()
    assert pool.idle_bytes == 0


def test_what_is_kept_is_bounded():
    pool = FramePool(keep_bytes=4 * MB)
    frames = [pool.take(2 * MB) for _ in range(5)]
    frames.clear()
    gc.collect()
    assert pool.idle_bytes == 4 * MB


def test_what_is_in_use_takes_the_place_of_what_nobody_asks_for():
    pool = FramePool(keep_bytes=8 * MB)
    pool.take(7 * MB)
    gc.collect()
    assert pool.idle_bytes == 7 * MB
    pool.take(2 * MB)
    gc.collect()
    assert pool.idle_bytes == 2 * MB
    newest = pool.take(3 * MB)
    at = address(newest)
    del newest
    gc.collect()
    pool.take(5 * MB)
    gc.collect()
    assert pool.idle_bytes == 8 * MB, "only the longest idle had to go"
    assert address(pool.take(3 * MB)) == at


def test_a_piece_beyond_the_bound_drives_nobody_out():
    pool = FramePool(keep_bytes=4 * MB)
    pool.take(2 * MB)
    gc.collect()
    pool.take(5 * MB)
    gc.collect()
    assert pool.idle_bytes == 2 * MB


def test_what_nobody_asks_for_is_let_go_after_a_while():
    pool = FramePool(keep_bytes=64 * MB)
    pool.trim(now=100.0)
    pool.take(2 * MB)
    gc.collect()
    pool.trim(now=109.0)
    pool.trim(now=110.0)
    assert pool.idle_bytes == 2 * MB, "it came back a moment ago, for all that is known"
    pool.take(5 * MB)
    gc.collect()
    pool.trim(now=119.0)
    assert pool.idle_bytes == 7 * MB
    pool.trim(now=120.0)
    assert pool.idle_bytes == 5 * MB
    again = pool.take(5 * MB)
    del again
    gc.collect()
    pool.trim(now=130.0)
    assert pool.idle_bytes == 5 * MB, "it was in use since"
    pool.trim(now=140.0)
    assert pool.idle_bytes == 0
