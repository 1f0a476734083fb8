"""A window of taken rows as an Arrow record batch, over one copy of its columns.

Thread: any. Owns nothing; the schema is the one of copied blocks (see `arrow`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from multilane.wire.records.arrow import COPIED, HEADERS_TYPE, TIMESTAMP, no_headers, one_partition, one_topic

if TYPE_CHECKING:
    from multilane.wire.records.keyed_rows import TakenRows


_BINARY: Final = pa.binary()
_INT64: Final = pa.int64()
_INT8: Final = pa.int8()


def window_batch(taken: TakenRows) -> pa.RecordBatch:
    layout, rows = taken.layout, len(taken)
    whole = pa.py_buffer(taken.columns)
    ends = whole.slice(layout.ends, layout.small - layout.ends)
    headers = taken.headers
    arrays = [
        _binary(rows, taken.key_bitmap, ends, whole.slice(layout.content, layout.values - layout.content)),
        _binary(rows, taken.value_bitmap, ends.slice(4 * (rows + 1)), whole.slice(layout.values)),
        one_topic(taken.topic, rows),
        one_partition(taken.partition, rows),
        pa.Array.from_buffers(_INT64, rows, [None, whole.slice(0, layout.timestamps)]),
        pa.Array.from_buffers(TIMESTAMP, rows, [None, whole.slice(layout.timestamps, layout.timestamps)]),
        pa.Array.from_buffers(_INT8, rows, [None, whole.slice(layout.small, rows)]),
        no_headers(rows) if headers is None else pa.array(headers, HEADERS_TYPE),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=COPIED)


def _binary(rows: int, bitmap: bytes | None, ends: pa.Buffer, content: pa.Buffer) -> pa.Array:
    valid = None if bitmap is None else pa.py_buffer(bitmap)
    return pa.Array.from_buffers(_BINARY, rows, [valid, ends, content])
