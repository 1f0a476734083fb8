"""Rows that are kept by key: what goes in comes out, whatever is in it, and nothing else stays alive."""

from __future__ import annotations

import ast
import gc
import os
import subprocess
import sys
import weakref
from dataclasses import replace

import numpy as np
import pytest

from batch_builder import APPEND_TIME, LZ4, Batch, Rec
from multilane.wire.records import keyed_kernels
from multilane.wire.records.arrow import batch_of
from multilane.wire.records.hash_kernels import hash_key
from multilane.wire.records.keyed_rows import KeyedRows
from multilane.wire.records.layout import KeepWord, KeptWord
from multilane.wire.records.record import Record
from multilane.wire.records.window_rows import offsets_of
from span_reading import read

LONG = b"longer than what a view holds itself: "

ODD = [
    Rec(0, None, None),
    Rec(1, b"", b""),
    Rec(2, b"k", b"v"),
    Rec(3, b"twelve bytes", b"twelve bytes", 5),
    Rec(4, b"thirteen byte", b"thirteen byte", 7),
    Rec(5, LONG + b"a", LONG * 9),
    Rec(6, LONG + b"b", None),
    Rec(7, None, LONG),
    Rec(9, b"\xff\x00", b"\x00" * 300, headers=[(b"one", b"1"), (b"none", None)]),
]


def rows_with(*blocks, lanes: int = 4) -> KeyedRows:
    rows = KeyedRows("t", 3, lanes)
    for block in blocks:
        rows.put(block)
    return rows


@pytest.mark.parametrize("batches", [[Batch(ODD, 10)], [Batch(ODD, 10, LZ4)], [Batch(ODD, 10), Batch(ODD, 30, LZ4)]])
def test_rows_come_out_as_the_records_of_their_block(batches):
    block = read(*batches, fetch_offset=10)
    taken = rows_with(block).take(100)
    assert sorted(map(tuple, taken)) == list(map(tuple, block.records()))
    assert sorted(offsets_of(taken).column().tolist()) == block.offsets.tolist()


def test_of_a_block_only_its_own_rows_are_kept():
    block = read(Batch([Rec(i, b"%d" % i, LONG) for i in range(20)], flags=APPEND_TIME, max_timestamp=99))
    taken = rows_with(block.slice(3, 7)).take(100)
    assert [(r.offset, r.key, r.timestamp, r.timestamp_type) for r in taken] == [
        (i, b"%d" % i, 99, 1) for i in range(3, 7)
    ]


def test_rows_that_are_not_fresh_are_left_out():
    rows = KeyedRows("t", 3, 4)
    block = read(Batch([Rec(i, None, LONG, headers=[(b"h", b"")]) for i in range(6)]))
    rows.put(block.slice(1), np.array([True, False, False, True, True]))
    assert rows.take(9).offsets == [1, 4, 5]
    assert not rows._headers


def test_the_arrow_batch_is_the_one_of_the_records():
    for batch in (Batch(ODD), Batch(ODD[2:6]), Batch([Rec(0, b"k", b"v")] * 1)):
        taken = rows_with(read(batch)).take(100)
        made = taken.batch()
        made.validate(full=True)
        assert made.equals(batch_of(list(taken)))


def test_what_was_taken_outlives_the_release():
    rows = rows_with(read(Batch(ODD[:8])))
    first, second = rows.take(4), rows.take(4)
    batch, records = first.batch(), list(first)
    rows.release(first)
    rows.release(second)
    rows.put(read(Batch([Rec(i, b"other", b"#" * 500) for i in range(50)], 100)))
    assert batch.equals(batch_of(records))
    assert [(r.key, r.value) for r in second] == [(rec.key, rec.value) for rec in ODD[4:8]]


def test_batches_of_a_block_have_their_own_kind_of_time():
    block = read(Batch(ODD[:3]), Batch(ODD[:3], 10, flags=APPEND_TIME, max_timestamp=7), Batch(ODD[:2], 20))
    for piece in (block, block.slice(2, 4), block.slice(4), block.slice(5)):
        assert sorted(map(tuple, rows_with(piece).take(99))) == list(map(tuple, piece.records()))


def test_a_frame_is_let_go_when_all_of_its_block_came_or_nothing_more_will_for_long():
    for releases in (lambda rows, block: rows.put(block.slice(3)), lambda rows, block: rows.release_frame()):
        block = read(Batch(ODD))
        frame = weakref.ref(block.columns.keys)
        rows = KeyedRows("t", 3, 4)
        rows.put(block.slice(0, 3), is_last=False)
        assert rows._source is not None
        releases(rows, block)
        del block
        gc.collect()
        assert frame() is None


@pytest.mark.parametrize("rows", [ODD[:4], ODD, ODD[4:7]])
def test_blocks_that_were_copied_out(rows):
    """Short content needs no buffer at all then."""
    block = read(Batch(rows))
    assert sorted(map(tuple, rows_with(block.compact()).take(99))) == list(map(tuple, block.records()))


def test_one_row_that_stays_keeps_nothing_else():
    """A key that hangs while megabytes go by: the arena has the size of what is kept, not of what went through."""
    rows = rows_with(read(Batch([Rec(0, b"hangs", b"kept")])))
    hung = rows.take(1)
    for turn in range(1, 400):
        rows.put(read(Batch([Rec(i, b"%d" % i, b"x" * 10_000) for i in range(20)], 20 * turn)))
        rows.release(rows.take(20))
    assert rows._kept.arena.size < 2_000_000
    assert rows._kept.capacity == 256
    [record] = hung
    assert (record.key, record.value) == (b"hangs", b"kept")


def test_a_large_window_leaves_no_large_memory_behind():
    values = [bytes([65 + i]) * 700_000 for i in range(5)]
    rows = rows_with(read(Batch([Rec(i, b"%d" % i, value) for i, value in enumerate(values)])))
    taken = rows.take(5)
    assert [record.value for record in taken] == values
    assert rows._kept.scratch.size <= 1024 * 1024
    rows.release(taken)
    rows.put(read(Batch([Rec(i, b"%d" % i, b"x" * 1_000) for i in range(4_000)], 5), fetch_offset=5))
    while rows.takeable:
        rows.release(rows.take(100))
    for turn in range(20):
        rows.put(read(Batch([Rec(i, b"%d" % i, b"x" * 1_000) for i in range(500)], 5_000 + 500 * turn)))
        while rows.takeable:
            rows.release(rows.take(100))
    assert rows._kept.arena.size < 3_000_000, "it shrinks when it moves"


def test_more_rows_than_there_was_room_for_keep_their_order():
    keys = [b"key %d" % (i % 700) for i in range(5_000)]
    rows = KeyedRows("t", 3, 4)
    rows.put(read(Batch([Rec(i, keys[i], b"") for i in range(300)])))
    early = rows.take(200)
    rows.put(read(Batch([Rec(i - 300, keys[i], LONG) for i in range(300, 5_000)], 300), fetch_offset=300))
    seen: dict[bytes, list[int]] = {}
    windows = [early]
    while windows:
        for record in windows[-1]:
            seen.setdefault(record.key, []).append(record.offset)
        rows.release(windows.pop())
        if rows.takeable:
            windows.append(rows.take(64))
    assert sorted(offset for offsets in seen.values() for offset in offsets) == list(range(5_000))
    assert all(offsets == sorted(offsets) for offsets in seen.values())


def test_the_newest_of_each_key_are_a_window_of_their_own():
    keys = [b"a", b"b", None, b"a", None, b"a", b"b", b"c"]
    rows = rows_with(read(Batch([Rec(i, key, b"%d" % i) for i, key in enumerate(keys)])))
    taken = rows.take(10, newest=True)
    assert sorted(r.offset for r in taken) == [2, 4, 5, 6, 7]
    assert sorted(taken.skipped.column().tolist()) == [0, 1, 3]
    assert all(isinstance(r, Record) and r.value == b"%d" % r.offset for r in taken)
    rows.release(taken)
    rows.put(read(Batch([Rec(0, b"x", b""), Rec(1, b"y", b"")], 8), fetch_offset=8))
    assert len(rows.take(10, newest=True).skipped) == 0


def test_a_block_with_more_buffers_than_two_is_copied_first():
    block = read(Batch(ODD))
    spare = np.zeros(1, np.uint8)
    columns = replace(block.columns, buffers=(*block.columns.buffers, spare, spare))
    taken = rows_with(replace(block, columns=columns)).take(99)
    assert sorted(map(tuple, taken)) == list(map(tuple, block.records()))


def test_a_window_ends_before_it_has_too_many_bytes(monkeypatch):
    """As plain Python, with another limit: nobody has gigabytes here."""
    monkeypatch.setattr(keyed_kernels, "_MOST_BYTES", 1_000)
    sizes = [300, 300, 300, 300, 2_000, 10]
    keys = [b"a", b"a", b"b", b"b", b"c", b"c"]
    rows = rows_with(read(Batch([Rec(i, keys[i], b"v" * size) for i, size in enumerate(sizes)])))
    kept, taken = rows._kept, []
    while kept.state[KeepWord.READY]:
        ids = np.empty(10, np.int64)
        count = keyed_kernels.take_rows.py_func(kept.state, kept.rows, kept.chains, kept.ready, ids, 10)
        taken.append([int(kept.rows[row, KeptWord.OFFSET]) for row in ids[:count]])
        rows._kernels.release_rows(kept, ids[:count].tobytes(), count)
    assert taken == [[0, 1, 2], [3], [4], [5]]


def test_keys_are_hashed_as_python_hashes_bytes():
    keys = [bytes(range(size % 256)) * (1 + size // 256) for size in (*range(1, 40), 300)]
    program = f"print([hash(key) for key in {keys!r}])"
    told = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, check=True
    )
    ours = [int(hash_key(np.frombuffer(key, np.uint8), 0, len(key), 0, 0)) for key in keys]
    assert ours == ast.literal_eval(told.stdout.decode())


@pytest.mark.long  # the kernels are compiled with bounds checks
def test_no_index_is_out_of_bounds(tmp_path):
    """The same model once more, by numba itself, which then looks at every index."""
    environment = os.environ | {"NUMBA_BOUNDSCHECK": "1", "NUMBA_CACHE_DIR": str(tmp_path)}
    here = os.path.dirname(__file__)
    model = os.path.join(here, os.pardir, os.pardir, "property", "test_keyed_rows.py")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        model,
        __file__,
        "-k",
        "not out_of_bounds",
    ]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout[-4_000:]
