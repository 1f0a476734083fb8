"""Audit records as an Arrow table, with the columns of an audit file.

Thread: any.
"""

from __future__ import annotations

from typing import Any

from multilane.commit.journal import OUTCOMES, AuditRecords


def table_of(records: AuditRecords, session: str, first: int) -> Any:
    """`first`: the number of the first record."""
    import numpy as np
    import pyarrow as pa

    texts = pa.dictionary(pa.int32(), pa.string())
    has_copy = records.copy >= 0
    copies = np.array([(c.partition, c.offset) for c in records.copies] or [(0, 0)], np.int64)[records.copy]
    is_placed = has_copy & (copies[:, 1] >= 0)
    partitions = np.array([p.partition for p in records.places] or [0], np.int32)

    def encoded(numbers: Any, names: list[str], mask: Any = None) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32(), mask=mask), names or [""]).cast(texts)

    return pa.table(
        {
            "topic": encoded(records.place, [p.topic for p in records.places]),
            "partition": pa.array(partitions[records.place]),
            "offset": pa.array(records.offset),
            "outcome": encoded(records.outcome.astype(np.int32), list(OUTCOMES)),
            "settled_at": pa.array(records.settled_at, pa.timestamp("us", "UTC")),
            "session": encoded(np.zeros(len(records), np.int32), [session]),
            "sequence": pa.array(np.arange(first, first + len(records), dtype=np.int64)),
            "copy_topic": encoded(records.copy, [c.topic for c in records.copies], ~has_copy),
            "copy_partition": pa.array(copies[:, 0].astype(np.int32), mask=~is_placed),
            "copy_offset": pa.array(copies[:, 1], mask=~is_placed),
        }
    )
