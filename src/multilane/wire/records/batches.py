"""The batch table: the headers of a span's record batches, without decoding the batches.

Thread: network (keeps the GIL: releasing it would cost more than the microseconds this takes).
Owns: a span's next position, so that the next fetch can be sent before anything is decoded.
Never: reads a record, decompresses, checks a checksum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from multilane.errors import CorruptBatch, RecordBatchError, UnsupportedBatch
from multilane.wire.records.arrays import Bytes, Ints
from multilane.wire.records.layout import COLUMNS, MAX_BUFFER_BYTES, REASONS, RowWord, Status
from multilane.wire.records.loading import kernels

_USUAL_BATCH: Final = 4096
_NO_ROWS: Final[Ints] = np.empty((0, COLUMNS), np.int64)


@dataclass(frozen=True, slots=True)
class BatchTable:
    """The batches of one span; `rows` has the columns of `layout.Row`."""

    rows: Ints
    next_offset: int
    last_epoch: int
    error: RecordBatchError | None

    def __len__(self) -> int:
        return len(self.rows)

    def plausible(self, fetch_offset: int, high_watermark: int) -> BatchTable:
        """Without batches at impossible offsets. The checksum does not cover a batch's offset, so a batch that skips
        offsets must lie below the end of the log. One that follows directly may lie beyond it: brokers look up the end
        before they read."""
        if self.next_offset <= high_watermark or not len(self.rows):
            return self
        base = self.rows[:, RowWord.BASE_OFFSET]
        last = base + self.rows[:, RowWord.LAST_DELTA]
        expected = np.concatenate(([fetch_offset], last[:-1] + 1))
        leaps = np.flatnonzero((base > expected) & (last >= high_watermark))
        if not len(leaps):
            return self
        rows = self.rows[: leaps[0]]
        error = CorruptBatch(
            f"its offset is {base[leaps[0]]}, but {expected[leaps[0]]} comes next and the log ends at {high_watermark}",
            offset=int(expected[leaps[0]]),
        )
        epoch = int(rows[-1, RowWord.LEADER_EPOCH]) if len(rows) else -1
        return BatchTable(rows, int(expected[leaps[0]]), epoch, error)


def scan(frame: Bytes, start: int, end: int, fetch_offset: int) -> BatchTable:
    """List the complete batches of frame[start:end]; the frame is one contiguous Fetch response.

    A truncated batch at the end is normal, because brokers cut there, unless it is the first: brokers send at least one
    complete batch.
    """
    if not 0 <= start <= end <= frame.size or frame.size > MAX_BUFFER_BYTES:
        raise ValueError(f"span [{start}, {end}) does not fit a frame of {frame.size} bytes")
    if start == end:
        return BatchTable(_NO_ROWS, fetch_offset, -1, None)
    headers = kernels().scan_headers
    rows = np.empty(((end - start) // _USUAL_BATCH + 1, COLUMNS), np.int64)
    found, status, _ = headers(frame, start, end, rows)
    if found > len(rows):  # smaller batches than usual: the kernel has counted them, so now they fit
        rows = np.empty((found, COLUMNS), np.int64)
        headers(frame, start, end, rows)
    rows = rows[:found]
    if not found:
        return BatchTable(rows, fetch_offset, -1, _scan_error(status, fetch_offset, frame, start))
    base, delta, epoch = rows[-1, [RowWord.BASE_OFFSET, RowWord.LAST_DELTA, RowWord.LEADER_EPOCH]].tolist()
    bad_at = int(rows[-1, RowWord.POSITION] + rows[-1, RowWord.LENGTH])
    partial_tail = status == Status.PARTIAL
    error = None if partial_tail else _scan_error(status, base + delta + 1, frame, bad_at)
    return BatchTable(rows, max(fetch_offset, base + delta + 1), epoch, error)


def _scan_error(status: int, offset: int, frame: Bytes, position: int) -> RecordBatchError | None:
    if status == Status.OK:
        return None
    if status == Status.OLD_FORMAT:
        return UnsupportedBatch(f"record format v{int(frame[position + 16])} is not v2", offset=offset)
    return CorruptBatch(REASONS[status], offset=offset)
