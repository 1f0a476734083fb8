"""Rows of Spark's, as Arrow has them, are the records they were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.errors import WrongRows
from multilane.wire.records.arrow_rows import blocks_of
from multilane.wire.records.record import Record

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
content = st.none() | st.binary(max_size=40)
headers = st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), content), max_size=3).map(tuple)
places = st.lists(
    st.tuples(st.sampled_from(["orders", "retry"]), st.integers(0, 3), st.integers(0, 2**40)), unique=True, max_size=30
)


@st.composite
def records(draw):
    made = []
    for topic, partition, offset in sorted(draw(places)):
        told = draw(st.tuples(st.integers(0, 2**40), st.integers(0, 1), content, content, headers))
        made.append(Record(topic, partition, offset, *told))
    return made


def rows_of(made: list[Record], binary=None, unit="us", *, is_whole: bool = True) -> pa.RecordBatch:
    binary = binary or pa.binary()
    columns = {
        "key": pa.array([r.key for r in made], binary),
        "value": pa.array([r.value for r in made], binary),
        "topic": pa.array([r.topic for r in made], pa.string()),
        "partition": pa.array([r.partition for r in made], pa.int32()),
        "offset": pa.array([r.offset for r in made], pa.int64()),
        "timestamp": pa.array([EPOCH + timedelta(milliseconds=r.timestamp) for r in made], pa.timestamp(unit, "UTC")),
    }
    if is_whole:
        columns["timestampType"] = pa.array([r.timestamp_type for r in made], pa.int32())
        told = [[{"key": k, "value": v} for k, v in r.headers] or None for r in made]
        columns["headers"] = pa.array(told, HEADERS)
    return pa.RecordBatch.from_pydict(columns)


@given(records(), st.sampled_from([pa.binary(), pa.large_binary()]), st.integers(0, 5), st.integers(1, 7))
def test_the_way_there_and_back(made, binary, left_out, piece):
    rows = rows_of(made, binary).slice(left_out)  # arrays that begin within their buffers
    made = made[left_out:]
    blocks = [block for at in range(0, len(made), piece) for block in blocks_of(rows.slice(at, piece))]
    found = [record for block in blocks for record in block.records()]
    assert [tuple(record) for record in found] == [tuple(record) for record in made]
    assert all(block.next_offset == int(block.offsets[-1]) + 1 for block in blocks)


@given(records())
def test_a_block_for_each_partition(made):
    blocks = list(blocks_of(rows_of(made)))
    assert [(b.topic, b.partition) for b in blocks] == [key for key, _ in groupby((r.topic, r.partition) for r in made)]


@given(records())
def test_what_may_be_missing(made):
    found = [record for block in blocks_of(rows_of(made, is_whole=False)) for record in block.records()]
    assert [tuple(r) for r in found] == [tuple(r._replace(timestamp_type=0, headers=())) for r in made]


@given(records(), st.integers(0, 29))
def test_parts_of_blocks_and_copies_of_them(made, start):
    for block in blocks_of(rows_of(made)):
        part = block.slice(start)
        assert [tuple(r) for r in part.compact().records()] == [tuple(r) for r in part.records()]


def test_texts_are_taken_as_their_bytes():
    rows = rows_of([Record("t", 0, 0, 0, 0, None, None)])
    rows = rows.set_column(1, "value", pa.array(["a text that is longer than twelve bytes"]))
    [record] = next(blocks_of(rows)).records()
    assert record.value == b"a text that is longer than twelve bytes"


def test_a_row_without_a_time():
    rows = rows_of([Record("t", 0, 0, 0, 0, None, None)], is_whole=False)
    rows = rows.set_column(5, "timestamp", pa.nulls(1, pa.timestamp("us", "UTC")))
    assert next(next(blocks_of(rows)).records()).timestamp == -1


@pytest.mark.parametrize("offsets", [(5, 5), (7, 5)])
def test_rows_that_are_not_in_their_order(offsets):
    rows = rows_of([Record("t", 3, offset, 0, 0, None, None) for offset in offsets])
    with pytest.raises(WrongRows, match=rf"t-3: offset 5 comes after {offsets[0]}.*in_order=False"):
        list(blocks_of(rows))


@pytest.mark.parametrize(("at", "name"), [(2, "topic"), (3, "partition"), (4, "offset")])
def test_rows_that_are_no_records(at, name):
    rows = rows_of([Record("t", 3, 1, 0, 0, None, None)])
    rows = rows.set_column(at, name, pa.nulls(1, rows.column(name).type))
    with pytest.raises(WrongRows, match=f"a row has no {name}"):
        list(blocks_of(rows))
