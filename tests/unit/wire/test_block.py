"""Blocks: slices, copies, Arrow, memory accounts."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import numpy as np
import pyarrow as pa
import pytest

from batch_builder import APPEND_TIME, LZ4, SNAPPY, Batch, Rec
from multilane.errors import CorruptBatch
from multilane.wire.records.arrow import HEADERS_TYPE, batch_of
from multilane.wire.records.block import CHUNK
from reference_reader import read as reference
from span_reading import frame_of, read, read_frame, rows_of


def variety(many: int, start: int = 0) -> list[Rec]:
    """Records with nulls, empties, short and long content, some with headers."""
    return [
        Rec(
            i,
            (None, b"", b"k%d" % i, b"long key %d " % i * 3)[i % 4],
            (b"v%d" % (start + i), None, b"", b"value " * (i % 9 + 2), b"exactly 12 b")[i % 5],
            i * 3 - 5,
            ((b"h%d" % i, b"x" * (i % 20)), (b"n", None)) if i % 3 == 1 else (),
        )
        for i in range(many)
    ]


BATCHES = [
    Batch(variety(30), 100, leader_epoch=3),
    Batch(variety(25, 30), 130, leader_epoch=3, codec=LZ4, flags=APPEND_TIME, max_timestamp=99),
    Batch(variety(20, 55), 160, leader_epoch=4, codec=SNAPPY),
]
EXPECTED = reference(b"".join(b.build() for b in BATCHES)).rows


def block_of_three():
    return read(*BATCHES, fetch_offset=100)


def test_the_block_itself():
    block = block_of_three()
    assert rows_of(block) == EXPECTED
    assert [block.epoch_at(i) for i in (0, 29, 30, 54, 55, 74, -1)] == [3, 3, 3, 3, 4, 4, 4]
    assert (block.leader_epoch, block.first_offset, block.next_offset) == (4, 100, 180)


@pytest.mark.parametrize(
    ("start", "stop"), [(0, 75), (0, 1), (1, 30), (29, 31), (30, 55), (31, 70), (60, 75), (74, 75)]
)
def test_slices(start, stop):
    block = block_of_three()
    part = block.slice(start, stop)
    assert rows_of(part) == EXPECTED[start:stop]
    assert rows_of(part.compact()) == EXPECTED[start:stop]
    assert [part.headers(i) for i in range(len(part))] == [row[5] for row in EXPECTED[start:stop]]
    assert [part.epoch_at(i) for i in range(len(part))] == [block.epoch_at(i) for i in range(start, stop)]
    assert part.timestamp_types.tolist() == [row[2] for row in EXPECTED[start:stop]]
    assert part.first_offset == EXPECTED[start][0]
    assert part.next_offset == (EXPECTED[stop][0] if stop < 75 else 180)
    assert part.leader_epoch == block.epoch_at(stop - 1)
    assert part.own_bytes == part.compact().own_bytes
    assert part.pinned_bytes == block.pinned_bytes


def test_slices_of_slices_and_open_ends():
    block = block_of_three()
    assert rows_of(block.slice(10, 70).slice(5, 50).slice(20)) == EXPECTED[35:60]
    assert rows_of(block.slice(10, 70).compact().slice(5, 50).compact()) == EXPECTED[15:60]
    assert rows_of(block.slice(-5)) == EXPECTED[-5:]
    assert len(block.slice(40, 10)) == 0
    assert len(block.slice(500, 600)) == 0


def test_an_empty_slice_goes_on_where_it_stopped():
    block = block_of_three()
    assert block.slice(10, 10).next_offset == EXPECTED[10][0]
    assert block.slice(75).next_offset == 180
    assert rows_of(block.slice(10, 10).compact()) == []


def test_the_error_belongs_to_the_end_of_the_block():
    block = read(BATCHES[0], Batch(variety(3), 130, crc=0))
    assert isinstance(block.error, CorruptBatch)
    assert isinstance(block.slice(5).error, CorruptBatch)
    assert block.slice(0, 5).error is None


def test_rows_outside():
    block = block_of_three()
    for row in (75, -76):
        with pytest.raises(IndexError):
            block.headers(row)
        with pytest.raises(IndexError):
            block.epoch_at(row)


def test_watermarks():
    block = block_of_three()
    assert (block.high_watermark, block.last_stable_offset, block.log_start_offset) == (-1, -1, -1)
    marked = block.with_watermarks(500, 400, 7).slice(3, 9).compact()
    assert (marked.high_watermark, marked.last_stable_offset, marked.log_start_offset) == (500, 400, 7)


def test_repr_shows_no_content():
    text = repr(read(Batch([Rec(0, b"secret-key", b"secret-value")])))
    assert text == "Block(t-3, 1 rows [0..0], next=1)"


# --- arrow -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("copy", [False, True])
def test_arrow(copy):
    table = block_of_three().arrow(copy=copy)
    table.validate(full=True)
    binary = pa.binary() if copy else pa.binary_view()
    assert table.schema == pa.schema(
        {
            "key": binary,
            "value": binary,
            "topic": pa.dictionary(pa.int8(), pa.string()),
            "partition": pa.int32(),
            "offset": pa.int64(),
            "timestamp": pa.timestamp("ms", tz="UTC"),
            "timestamp_type": pa.int8(),
            "headers": HEADERS_TYPE,
        }
    )
    assert table["key"].to_pylist() == [row[3] for row in EXPECTED]
    assert table["value"].to_pylist() == [row[4] for row in EXPECTED]
    assert table["offset"].to_pylist() == [row[0] for row in EXPECTED]
    assert table["timestamp"].cast(pa.int64()).to_pylist() == [row[1] for row in EXPECTED]
    assert table["timestamp_type"].to_pylist() == [row[2] for row in EXPECTED]
    assert table["topic"].to_pylist() == ["t"] * 75
    assert table["partition"].to_pylist() == [3] * 75
    pairs = [[(h["key"], h["value"]) for h in row] for row in table["headers"].to_pylist()]
    assert pairs == [list(row[5]) for row in EXPECTED]


def test_arrow_headers_are_null_when_there_are_none():
    table = read(Batch([Rec(0, b"k", b"v"), Rec(1)])).arrow()
    assert table["headers"].null_count == 2
    assert table["headers"].type == HEADERS_TYPE


def test_a_slice_as_arrow():
    block = block_of_three()
    assert block.slice(7, 60).arrow().equals(block.arrow().slice(7, 53))
    assert block.slice(7, 60).arrow(copy=True).equals(block.arrow(copy=True).slice(7, 53))


# --- memory ----------------------------------------------------------------------------------------------------------


def collected(make) -> bool:
    """Whether the frame is gone while the result of `make(block)` still lives."""
    frame = frame_of(BATCHES[0].build())
    gone = weakref.ref(frame)
    kept = make(read_frame(frame, fetch_offset=100))
    del frame
    gc.collect()
    assert kept is not None
    return gone() is None


def test_who_pins_the_frame():
    assert not collected(lambda block: block)
    assert not collected(lambda block: block.slice(3, 4))
    assert not collected(lambda block: block.values)
    assert not collected(lambda block: block.arrow())
    assert collected(lambda block: block.compact())
    assert collected(lambda block: block.slice(3, 9).compact().values)
    assert collected(lambda block: block.arrow(copy=True))
    assert collected(lambda block: list(block.records()))


def test_a_frame_counts_whole():
    frame = np.zeros(1_000_000, np.uint8)
    data = BATCHES[0].build()
    frame[: len(data)] = np.frombuffer(data, np.uint8)
    view = frame[: len(data)]
    block = read_frame(view, fetch_offset=100)
    assert block.pinned_bytes > 1_000_000
    assert block.own_bytes < 5_000
    assert block.compact().pinned_bytes < 6_000


def test_own_bytes():
    block = read(Batch([Rec(0, b"abc", b"x" * 50), Rec(1, None, b"")]))
    assert block.own_bytes == 3 + 50 + 2 * 56


def test_records_are_made_in_chunks_as_they_are_asked_for():
    block = read(Batch([Rec(i, b"k", b"v") for i in range(CHUNK * 2 + 5)]))
    made = []
    real = block._binary

    class Counting(type(block)):
        def _binary(self, views, valid):
            made.append(len(self))
            return real.__func__(self, views, valid)

    counting = Counting(*(getattr(block, name) for name in type(block).__dataclass_fields__))
    records = counting.records()
    assert made == []
    next(records)
    assert made == [CHUNK, CHUNK]
    assert [r.offset for r in records] == list(range(1, CHUNK * 2 + 5))
    assert made == [CHUNK] * 4 + [5] * 2


def test_records_as_columns_again():
    block = block_of_three()
    records = list(block.records())
    made = batch_of(records)
    made.validate(full=True)
    assert made.to_pylist() == block.arrow(copy=True).to_pylist()
    mixed = [records[0], records[1]._replace(topic="other", partition=9, timestamp_type=1), records[2]]
    assert batch_of(mixed)["topic"].to_pylist() == ["t", "other", "t"]
    assert batch_of(mixed)["partition"].to_pylist() == [3, 9, 3]
    plain = [record._replace(headers=()) for record in records[:2]]
    assert batch_of(plain)["headers"].null_count == 2


def test_arrow_batches_do_not_import_pandas():
    """That takes a second or more, and lanes make batches on their loop."""
    code = """
import sys
import numpy as np
from multilane.wire.records.arrow import one_partition, one_topic
from multilane.wire.records.block import Block, Columns
numbers, views = np.arange(3), np.zeros((3, 2), np.uint64)
columns = Columns(numbers, numbers, views, views, None, None, None, np.array([[0, 0, 0]]), (), ())
batch = Block("orders", 0, columns, 0, 3, 3).arrow(copy=True)
print(batch.column("topic").to_pylist(), one_topic("orders", 2).to_pylist(), "pandas" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "['orders', 'orders', 'orders'] ['orders', 'orders'] False\n"
