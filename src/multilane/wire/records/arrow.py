"""Converts blocks to Arrow record batches, and copies blocks out of their frame.

Thread: any. pyarrow releases the GIL in its casts.
Owns: the public Arrow schema. Never: changes a block.
"""

from __future__ import annotations

from array import array as longs
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa

from multilane.wire.records.arrays import Bytes, Ints, Views
from multilane.wire.records.block import Block, Columns
from multilane.wire.records.loading import kernels
from multilane.wire.records.record import Record

_HEADER: Final = [pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())]
HEADERS_TYPE: Final = pa.list_(pa.struct(_HEADER))
INLINE: Final = 12  # a view stores up to this many bytes inline
TIMESTAMP: Final = pa.timestamp("ms", tz="UTC")


def schema(*, copy: bool) -> pa.Schema:
    """The schema of every batch."""
    binary = pa.binary() if copy else pa.binary_view()
    return pa.schema(
        [
            ("key", binary),
            ("value", binary),
            ("topic", pa.dictionary(pa.int8(), pa.string())),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("timestamp", TIMESTAMP),
            ("timestamp_type", pa.int8()),
            ("headers", HEADERS_TYPE),
        ]
    )


COPIED: Final = schema(copy=True)


def record_batch(block: Block, *, copy: bool) -> pa.RecordBatch:
    rows = len(block)
    keys, values = block.keys, block.values
    offsets, timestamps = block.offsets, block.timestamps
    if copy:
        keys, values = keys.cast(pa.binary()), values.cast(pa.binary())
        offsets, timestamps = offsets.copy(), timestamps.copy()
    topics = pa.DictionaryArray.from_arrays(_over(pa.int8(), np.zeros(rows, np.int8)), _strings([block.topic]))
    columns = {
        "key": keys,
        "value": values,
        "topic": topics,
        "partition": _over(pa.int32(), np.full(rows, block.partition, np.int32)),
        "offset": _over(pa.int64(), offsets),
        "timestamp": _over(TIMESTAMP, timestamps),
        "timestamp_type": _over(pa.int8(), block.timestamp_types),
        "headers": _headers(block),
    }
    return pa.RecordBatch.from_pydict(columns)


def _over(kind: pa.DataType, column: np.ndarray) -> pa.Array:
    """An array over the column's own memory. pa.array() would search the file system for pandas each time."""
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])


def _headers(block: Block) -> pa.Array:
    """A list per row, empty for a row without headers; all null if no row of the block has any."""
    if block.columns.header_spans is None:
        return pa.nulls(len(block), HEADERS_TYPE)
    ends = [0]
    names: list[str] = []
    contents: list[bytes | None] = []
    for row in range(len(block)):
        for name, content in block.headers(row):
            names.append(name)
            contents.append(content)
        ends.append(len(names))
    pairs = pa.StructArray.from_arrays([pa.array(names, pa.string()), pa.array(contents, pa.binary())], fields=_HEADER)
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), pairs, type=HEADERS_TYPE)


def compact(block: Block) -> Block:
    """Copy the rows of `block` to memory of their own."""
    keys, key_valid, key_bytes = views_of(block.keys)
    values, value_valid, value_bytes = views_of(block.values)
    # Both columns share one list of buffers: the values' buffer indices shift by the number of the keys' buffers.
    shift_buffers(values, len(key_bytes))
    spans, header_buffers = _copied_headers(block)
    columns = Columns(
        offsets=block.offsets.copy(),
        timestamps=block.timestamps.copy(),
        keys=keys,
        values=values,
        key_valid=key_valid,
        value_valid=value_valid,
        header_spans=spans,
        segments=block.own_segments(),
        buffers=(*key_bytes, *value_bytes),
        header_buffers=header_buffers,
    )
    return replace(block, columns=columns, start=0, stop=len(block), made=None)


def joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """One batch with the rows of several."""
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def views_of(array: pa.Array) -> tuple[Views, Bytes | None, tuple[Bytes, ...]]:
    """(views, bitmap, buffers) of any binary or string array, cast through plain binary, whose content the result
    shares. So views are copied out of their frame, and plain binaries are not copied."""
    views = array.cast(pa.binary()).cast(pa.binary_view())
    buffers = views.buffers()
    words = np.frombuffer(buffers[1], np.uint64).reshape(-1, 2)[views.offset : views.offset + len(array)].copy()
    valid = None
    if array.null_count:
        valid = np.packbits(array.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    return words, valid, tuple(np.frombuffer(b, np.uint8) for b in buffers[2:])


def shift_buffers(views: Views, by: int) -> None:
    """Adjusts views whose buffers follow so many others."""
    long = (views[:, 0] & np.uint64(0xFFFFFFFF)) > np.uint64(INLINE)
    views[long, 1] += np.uint64(by)


def _copied_headers(block: Block) -> tuple[Ints | None, tuple[Bytes, ...]]:
    source = block.columns.header_spans
    if source is None:
        return None, ()
    spans = source[block.start : block.stop]
    moved = np.empty(len(spans), np.int64)
    out = np.empty(int((spans >> 32).sum()), np.uint8)
    source_buffers = block.columns.header_buffers
    kernels().gather_headers(source_buffers[0], source_buffers[-1], spans, out, moved)
    return moved, (out,)


def batch_of(records: Sequence[Record]) -> pa.RecordBatch:
    """Existing records of one or several topics, as columns that keep nothing else alive.

    Built by hand: pa.array() and numpy cost several times as much for the few rows of a batch.
    """
    topics, partitions, offsets, timestamps, kinds, keys, values, headers = zip(*records, strict=True)
    rows = len(records)
    arrays = [
        _joined(keys),
        _joined(values),
        _same(_named, topics),
        _same(_int32, partitions),
        _over_longs(pa.int64(), offsets),
        _over_longs(TIMESTAMP, timestamps),
        _same(_int8, kinds),
        pa.array(headers, HEADERS_TYPE) if any(headers) else no_headers(rows),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=COPIED)


def _joined(contents: Sequence[bytes | None]) -> pa.Array:
    """A plain binary column."""
    bitmap = None
    if None in contents:
        bitmap = pa.py_buffer(np.packbits([c is not None for c in contents], bitorder="little"))
        contents = [c or b"" for c in contents]
    plain = cast("Sequence[bytes]", contents)
    ends = longs("i", accumulate(map(len, plain), initial=0))
    return pa.Array.from_buffers(pa.binary(), len(plain), [bitmap, pa.py_buffer(ends), pa.py_buffer(b"".join(plain))])


def _over_longs(kind: pa.DataType, column: Sequence[int]) -> pa.Array:
    return pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(longs("q", column))])


def _same(make: Callable[[tuple[Any, ...]], pa.Array], column: tuple[Any, ...]) -> pa.Array:
    """Most batches have one value in this column: such a column is cached."""
    if column.count(column[0]) == len(column):
        return _constant(make, column[0], len(column))
    return make(column)


@lru_cache(4_096)
def _constant(make: Callable[[tuple[Any, ...]], pa.Array], value: Any, rows: int) -> pa.Array:
    return make((value,) * rows)


def one_topic(topic: str, rows: int) -> pa.Array:
    return _constant(_named, topic, rows)


def one_partition(partition: int, rows: int) -> pa.Array:
    return _constant(_int32, partition, rows)


def _int32(column: tuple[int, ...]) -> pa.Array:
    return _over(pa.int32(), np.array(column, np.int32))


def _int8(column: tuple[int, ...]) -> pa.Array:
    return _over(pa.int8(), np.array(column, np.int8))


def _named(topics: tuple[str, ...]) -> pa.Array:
    names = list(dict.fromkeys(topics))
    indices = np.array([names.index(topic) for topic in topics], np.int8)
    return pa.DictionaryArray.from_arrays(_over(pa.int8(), indices), _strings(names))


def _strings(texts: Sequence[str]) -> pa.Array:
    """Made by hand: the first pa.array() of a process imports pandas where it is installed, which stops the loop for a
    second or more."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), len(texts), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))])


@lru_cache(1_024)
def no_headers(rows: int) -> pa.Array:
    return pa.nulls(rows, HEADERS_TYPE)
