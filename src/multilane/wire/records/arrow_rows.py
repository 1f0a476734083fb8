"""Converts Arrow rows, in the form of Spark's Kafka records, to blocks: the inverse of `arrow`.

Thread: any.

Keys and values stay in the buffers of the Arrow arrays. A batch may have rows of several partitions: a block is a run
of rows of one. Rows that cannot be records of a log in log order are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from multilane.errors import WrongRows
from multilane.wire.records.arrays import Bytes, Ints
from multilane.wire.records.arrow import shift_buffers, views_of
from multilane.wire.records.block import Block, Columns
from multilane.wire.records.headers import compose

NEEDED: Final = ("key", "value", "topic", "partition", "offset", "timestamp")
TIMESTAMP_TYPE: Final = "timestampType"
HEADERS: Final = "headers"
_IDENTITY: Final = ("topic", "partition", "offset")
_NO_TIMESTAMP: Final = -1


def blocks_of(rows: pa.RecordBatch) -> Iterator[Block]:
    """The blocks of rows with the columns of Spark's Kafka source; timestamp type and headers may be missing."""
    if not rows.num_rows:
        return
    for name in _IDENTITY:
        if rows.column(name).null_count:
            raise WrongRows(f"a row has no {name}: each row has to identify its Kafka record")
    topics = rows.column("topic").dictionary_encode()
    codes, partitions = topics.indices.to_numpy(), rows.column("partition").to_numpy()
    ends = np.flatnonzero((np.diff(codes) != 0) | (np.diff(partitions) != 0)) + 1
    for start, stop in pairwise((0, *ends.tolist(), rows.num_rows)):
        topic = topics.dictionary[int(codes[start])].as_py()
        yield _block(rows.slice(start, stop - start), topic, int(partitions[start]))


def _block(rows: pa.RecordBatch, topic: str, partition: int) -> Block:
    offsets = np.ascontiguousarray(rows.column("offset").to_numpy())
    wrong = np.flatnonzero(np.diff(offsets) <= 0)
    if len(wrong):
        raise out_of_order(f"{topic}-{partition}", int(offsets[wrong[0]]), int(offsets[wrong[0] + 1]))
    keys, key_valid, key_bytes = views_of(rows.column("key"))
    values, value_valid, value_bytes = views_of(rows.column("value"))
    shift_buffers(values, len(key_bytes))  # both columns share one list of buffers
    spans, header_bytes = _headers(rows)
    columns = Columns(
        offsets=offsets,
        timestamps=_timestamps(rows.column("timestamp")),
        keys=keys,
        values=values,
        key_valid=key_valid,
        value_valid=value_valid,
        header_spans=spans,
        segments=_segments(rows),
        buffers=(*key_bytes, *value_bytes),
        header_buffers=header_bytes,
    )
    return Block(topic, partition, columns, 0, rows.num_rows, int(offsets[-1]) + 1)


def out_of_order(partition: str, before: int, offset: int) -> WrongRows:
    return WrongRows(
        f"{partition}: offset {offset} comes after {before}. DataFrame operations have moved or duplicated rows: "
        "set in_order=False to sort them, and make sure that each record occurs once"
    )


def _timestamps(column: pa.Array) -> Ints:
    """Milliseconds; -1 for a row without a timestamp."""
    millis = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
    return np.ascontiguousarray(millis.fill_null(_NO_TIMESTAMP).to_numpy())


def _segments(rows: pa.RecordBatch) -> Ints:
    """A row wherever the timestamp type changes: first row, leader epoch (unknown here), type."""
    kinds: npt.NDArray[Any] = np.zeros(rows.num_rows, np.int64)
    if TIMESTAMP_TYPE in rows.schema.names:
        kinds = rows.column(TIMESTAMP_TYPE).fill_null(0).to_numpy()
    firsts = np.concatenate(([0], np.flatnonzero(np.diff(kinds)) + 1))
    return np.stack((firsts, np.full(len(firsts), -1), kinds[firsts]), axis=1).astype(np.int64)


def _headers(rows: pa.RecordBatch) -> tuple[Ints | None, tuple[Bytes, ...]]:
    column = rows.column(HEADERS) if HEADERS in rows.schema.names else None
    if column is None or column.null_count == len(column):
        return None, ()
    composed = [compose(tuple((one["key"] or "", one["value"]) for one in row or ())) for row in column.to_pylist()]
    positions = accumulate(map(len, composed), initial=0)
    spans = np.array(
        [len(one) << 32 | at if one else 0 for one, at in zip(composed, positions, strict=False)], np.int64
    )
    return (spans, (np.frombuffer(b"".join(composed), np.uint8),)) if any(composed) else (None, ())
