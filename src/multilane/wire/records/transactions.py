"""Finds the batches of a span that belong to aborted transactions.

Thread: decoder, or network for small frames (pure).
Owns: the rule of `read_committed`. Never: reads a data batch's records.

The broker lists (producer, first offset) of every aborted transaction that touches the span. Such a transaction has the
producer's batches from its first offset up to the producer's next marker. So the batches are walked in offset order: an
entry whose offset is reached marks its producer as aborted, and a marker of that producer ends it. A commit marker ends
it too: a producer has one transaction at a time, so an entry that is still open at a commit marker is stale (its data
and its abort marker were compacted away), and keeping it would drop committed records. The list may be unsorted and
have duplicates; entries of transactions without data end at their marker like others. If the fetch starts inside a
transaction, its entry is in the list; if it starts at the marker, the marker ends the entry.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from multilane.errors import CorruptBatch, RecordBatchError
from multilane.wire.records.arrays import Bytes, Ints
from multilane.wire.records.layout import CODEC_MASK, CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT, RowWord

ABORT = 0
COMMIT = 1
_ENDS = frozenset((ABORT, COMMIT))
_VARINT_LIMIT = 10

AbortedTransactions = Iterable[tuple[int, int]]


def aborted_batches(
    frame: Bytes, rows: Ints, aborted: AbortedTransactions, fetch_offset: int
) -> tuple[npt.NDArray[np.bool_], int, RecordBatchError | None]:
    """A mask over `rows`, and where and why a marker could not be read (len(rows), None if all could).

    A broken marker below `fetch_offset` does not matter: the transaction it ended is not in the broker's list.
    """
    mask = np.zeros(len(rows), np.bool_)
    waiting = sorted({(first, producer) for producer, first in aborted}, reverse=True)
    open_producers: set[int] = set()
    columns = [RowWord.BASE_OFFSET, RowWord.LAST_DELTA, RowWord.ATTRIBUTES, RowWord.PRODUCER_ID]
    for index, (base, delta, attributes, producer) in enumerate(rows[:, columns].tolist()):
        while waiting and waiting[-1][0] <= base + delta:
            open_producers.add(waiting.pop()[1])
        if attributes & CONTROL_BIT:
            try:
                kind = control_type(frame, rows[index])
            except CorruptBatch as error:
                if base + delta < fetch_offset:
                    continue
                return mask, index, error.with_traceback(None)  # the traceback would reference the frame
            if kind in _ENDS:
                open_producers.discard(producer)
        elif attributes & TRANSACTIONAL_BIT and producer in open_producers:
            mask[index] = True
    return mask, len(rows), None


def control_type(frame: Bytes, row: Ints) -> int | None:
    """The type of a control batch's record; None if compaction has emptied the batch.

    A record that cannot be walked is an error: skipping an end marker would hide later records. Unknown types, and keys
    too short for a type, are not end markers and are skipped.
    """
    position, length, base = (int(row[c]) for c in (RowWord.POSITION, RowWord.LENGTH, RowWord.BASE_OFFSET))
    if not row[RowWord.COUNT]:
        return None
    if row[RowWord.ATTRIBUTES] & CODEC_MASK:
        raise CorruptBatch("a control batch is compressed", offset=base)
    record = bytes(frame[position + HEADER_SIZE : position + length])
    try:
        size, at = _varint(record, 0)
        end = at + size
        at = _varint(record, at + 1)[1]
        at = _varint(record, at)[1]
        key_size, at = _varint(record, at)
    except IndexError:
        raise CorruptBatch("a control record is truncated", offset=base) from None
    if end > len(record) or key_size > end - at:
        raise CorruptBatch("a control record runs past the end of its batch", offset=base)
    # The key is two int16: its version, then the type. A later version only appends.
    return int.from_bytes(record[at + 2 : at + 4], "big", signed=True) if key_size >= 4 else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    raw = 0
    for shift in range(0, 7 * _VARINT_LIMIT, 7):
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at
    raise IndexError("varint too long")
