"""Accounts as an Arrow table, in the shape that their files have.

Thread: any.
"""

from __future__ import annotations

from typing import Any

from multilane.commit.journal import OUTCOMES, AuditRecords


def table_of(told: AuditRecords, session: str, first: int) -> Any:
    """`first`: the number of the first of them."""
    import numpy as np
    import pyarrow as pa

    texts = pa.dictionary(pa.int32(), pa.string())
    has_copy = told.copy >= 0
    copies = np.array([(c.partition, c.offset) for c in told.copies] or [(0, 0)], np.int64)[told.copy]
    is_placed = has_copy & (copies[:, 1] >= 0)
    partitions = np.array([p.partition for p in told.places] or [0], np.int32)

    def named(numbers: Any, names: list[str], mask: Any = None) -> pa.Array:
        return pa.DictionaryArray.from_arrays(pa.array(numbers, pa.int32(), mask=mask), names or [""]).cast(texts)

    return pa.table(
        {
            "topic": named(told.place, [p.topic for p in told.places]),
            "partition": pa.array(partitions[told.place]),
            "offset": pa.array(told.offset),
            "outcome": named(told.outcome.astype(np.int32), list(OUTCOMES)),
            "settled_at": pa.array(told.settled_at, pa.timestamp("us", "UTC")),
            "session": named(np.zeros(len(told), np.int32), [session]),
            "sequence": pa.array(np.arange(first, first + len(told), dtype=np.int64)),
            "copy_topic": named(told.copy, [c.topic for c in told.copies], ~has_copy),
            "copy_partition": pa.array(copies[:, 0].astype(np.int32), mask=~is_placed),
            "copy_offset": pa.array(copies[:, 1], mask=~is_placed),
        }
    )
