"""Decodes record batches into a block of columns.

Thread: decoder. One kernel call checks the checksums of a whole span without the GIL, another decodes it; decompression
releases it a few times (see `codecs`).
Owns: the order of the checks, and the result if a batch in the middle is bad: all good batches before it.
Never: skips a batch that cannot be read. For data of a broker it never raises anything but a RecordBatchError.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from multilane.errors import CorruptBatch, UnsupportedBatch
from multilane.wire.records.arrays import Bytes, Ints, Views
from multilane.wire.records.batches import BatchTable
from multilane.wire.records.block import Block, Columns
from multilane.wire.records.checksums import first_wrong
from multilane.wire.records.codecs import KNOWN_CODECS, SECRET, Arena, Memory
from multilane.wire.records.decode_span import DecodeOptions, DecodeSpan, at_offset
from multilane.wire.records.decompression import decompress_each, ways_to_decompress
from multilane.wire.records.layout import (
    APPEND_TIME_BIT,
    CODEC_MASK,
    COLUMN_BYTES,
    CONTROL_BIT,
    HEADER_SIZE,
    PLAN_COLUMNS,
    REASONS,
    STATE_SIZE,
    TALLY_SIZE,
    PlanWord,
    RowWord,
    TallyWord,
)
from multilane.wire.records.loading import kernels, load_kernels
from multilane.wire.records.transactions import AbortedTransactions, aborted_batches

__all__ = ["DecodeOptions", "decode", "load_kernels"]

_EMPTY: Final[Bytes] = np.empty(0, np.uint8)

_Made = tuple[Ints, Ints, Views, Views, Ints]


def decode(  # noqa: PLR0913 - the last three name the span
    frame: Bytes,
    table: BatchTable,
    options: DecodeOptions,
    *,
    topic: str,
    partition: int,
    fetch_offset: int,
    aborted: AbortedTransactions = (),
) -> Block:
    """Decode a scanned span; records below `fetch_offset` are dropped.

    If the first batch cannot be read, its error is raised. If a later one cannot, the block ends before it, with the
    error in `error` and `next_offset` before the batch. An error's offset is always where reading has to continue.
    """
    span = DecodeSpan(frame, table.rows, table.error, Arena(options.memory, options.block_limit))
    if options.check_crc:
        _check_sums(span, fetch_offset)
    _check_codecs(span, fetch_offset)
    wanted = _wanted(span, options, fetch_offset, aborted)
    columns = _read(span, wanted, options, fetch_offset)
    next_offset, epoch = fetch_offset, -1
    if len(span.rows):
        last = span.rows[-1]
        next_offset = max(fetch_offset, int(last[RowWord.BASE_OFFSET] + last[RowWord.LAST_DELTA]) + 1)
        epoch = int(last[RowWord.LEADER_EPOCH])
    # An error has the position before the bad batch, not the batch's own base offset: the checksum does not cover that,
    # so it may be anything, and a reader that continued there would skip records. And if the fetch started inside the
    # batch, its base is before the position.
    if span.error is not None and not len(span.rows):
        raise at_offset(span.error, next_offset)
    error = None if span.error is None else at_offset(span.error, next_offset)
    return Block(topic, partition, columns, 0, len(columns.offsets), next_offset, epoch, error)


def _check_sums(span: DecodeSpan, fetch_offset: int) -> None:
    wrong = first_wrong(span.frame, span.rows, fetch_offset)
    if wrong is not None:
        span.cut(wrong, CorruptBatch("its checksum does not match", offset=span.base(wrong)))


def _check_codecs(span: DecodeSpan, fetch_offset: int) -> None:
    codecs = span.rows[:, RowWord.ATTRIBUTES] & CODEC_MASK
    needed = span.rows[:, RowWord.BASE_OFFSET] + span.rows[:, RowWord.LAST_DELTA] >= fetch_offset
    unknown = np.flatnonzero(needed & (codecs > max(KNOWN_CODECS)))
    if len(unknown):
        index = int(unknown[0])
        error = UnsupportedBatch(f"unknown codec {int(codecs[index])}", offset=span.base(index))
        span.cut(index, error)


def _wanted(span: DecodeSpan, options: DecodeOptions, fetch_offset: int, aborted: AbortedTransactions) -> Ints:
    """Indices of the batches that have rows."""
    listed = tuple(aborted) if options.read_committed else ()
    dropped = np.zeros(len(span.rows), np.bool_)
    if listed:
        dropped, index, error = aborted_batches(span.frame, span.rows, listed, fetch_offset)
        if error is not None:
            span.cut(index, error)
    rows = span.rows
    last = rows[:, RowWord.BASE_OFFSET] + rows[:, RowWord.LAST_DELTA]
    control = (rows[:, RowWord.ATTRIBUTES] & CONTROL_BIT) != 0
    keep = ~control & ~dropped[: len(rows)] & (last >= fetch_offset) & (rows[:, RowWord.COUNT] > 0)
    return np.flatnonzero(keep)


# --- the plan --------------------------------------------------------------------------------------------------------


def _plan(rows: Ints, wanted: Ints) -> Ints:
    """The kernel's plan for the wanted batches, all of them as if uncompressed."""
    chosen = rows[wanted]
    append = (chosen[:, RowWord.ATTRIBUTES] & APPEND_TIME_BIT) != 0
    plans = np.zeros((len(wanted), PLAN_COLUMNS), np.int64)
    plans[:, PlanWord.START] = chosen[:, RowWord.POSITION] + HEADER_SIZE
    plans[:, PlanWord.LIMIT] = chosen[:, RowWord.POSITION] + chosen[:, RowWord.LENGTH]
    plans[:, PlanWord.BASE_OFFSET] = chosen[:, RowWord.BASE_OFFSET]
    plans[:, PlanWord.LAST_DELTA] = chosen[:, RowWord.LAST_DELTA]
    plans[:, PlanWord.TIMESTAMP] = np.where(append, chosen[:, RowWord.MAX_TIMESTAMP], chosen[:, RowWord.BASE_TIMESTAMP])
    plans[:, PlanWord.APPEND_TIME] = append
    plans[:, PlanWord.COUNT] = chosen[:, RowWord.COUNT]
    plans[:, PlanWord.EPOCH] = chosen[:, RowWord.LEADER_EPOCH]
    plans[:, PlanWord.BATCH] = wanted
    return plans


def _read(span: DecodeSpan, wanted: Ints, options: DecodeOptions, fetch_offset: int) -> Columns:
    """Decode the wanted batches, all at once if that succeeds, else batch by batch to find the bad one."""
    plans = _plan(span.rows, wanted)
    codecs = span.rows[wanted, RowWord.ATTRIBUTES] & CODEC_MASK
    for load in ways_to_decompress(codecs):
        whole = plans.copy()
        if load(span, whole, codecs, options):
            columns, tally = _run(span, whole, options, fetch_offset)
            if tally[TallyWord.FAILED] < 0:
                return columns
            del columns  # they reference the arena, which is about to be replaced
        span.arena = Arena(options.memory, options.block_limit)
    plans = decompress_each(span, plans, codecs, options)
    columns, tally = _run(span, plans, options, fetch_offset)
    failed = int(tally[TallyWord.FAILED])
    if failed >= 0:
        batch = int(plans[failed, PlanWord.BATCH])
        span.cut(batch, CorruptBatch(REASONS[int(tally[TallyWord.STATUS])], offset=span.base(batch)))
    return columns


# --- the kernel call -------------------------------------------------------------------------------------------------


def _run(span: DecodeSpan, plans: Ints, options: DecodeOptions, fetch_offset: int) -> tuple[Columns, Ints]:
    compiled = kernels()
    arena = span.arena.close() if span.arena.used else _EMPTY
    in_arena = plans[:, PlanWord.ARENA] != 0
    buffers = _buffers(span.frame, arena, in_arena)
    plans[:, PlanWord.BUFFER] = plans[:, PlanWord.ARENA] if len(buffers) == 2 else 0
    room = int(plans[:, PlanWord.COUNT].sum())
    made = _allocate(room, options.memory)
    tally, state = np.zeros(TALLY_SIZE, np.int64), np.zeros(STATE_SIZE, np.int64)
    cap = options.max_decompressed_bytes
    compiled.decode_batches(span.frame, arena, np.uint64(SECRET), plans, fetch_offset, cap, made, tally, state)
    return _columns(compiled, made, plans, tally, buffers), tally


def _allocate(room: int, take: Memory) -> _Made:
    """The columns of `room` rows in one piece of memory, so that it can be reused as a whole."""
    block = take(COLUMN_BYTES * room).view(np.int64)
    offsets, timestamps, headers = block[:room], block[room : 2 * room], block[2 * room : 3 * room]
    keys, values = block[3 * room : 5 * room], block[5 * room :]
    return offsets, timestamps, keys.view(np.uint64).reshape(-1, 2), values.view(np.uint64).reshape(-1, 2), headers


def _buffers(frame: Bytes, arena: Bytes, in_arena: npt.NDArray[np.bool_]) -> tuple[Bytes, ...]:
    """The buffers that the views point into: a fully decompressed span does not pin the frame."""
    if not len(in_arena):
        return ()
    if in_arena.all():
        return (arena,)
    return (frame, arena) if in_arena.any() else (frame,)


def _columns(compiled: Any, made: _Made, plans: Ints, tally: Ints, buffers: tuple[Bytes, ...]) -> Columns:
    rows, failed = int(tally[TallyWord.ROWS]), int(tally[TallyWord.FAILED])
    offsets, timestamps, keys, values, headers = made
    keys, values = keys[:rows], values[:rows]
    read = plans if failed < 0 else plans[:failed]
    spans = headers[:rows] if tally[TallyWord.WITH_HEADERS] else None
    return Columns(
        offsets=offsets[:rows],
        timestamps=timestamps[:rows],
        keys=keys,
        values=values,
        key_valid=_bitmap(compiled, keys, int(tally[TallyWord.NULL_KEYS])),
        value_valid=_bitmap(compiled, values, int(tally[TallyWord.NULL_VALUES])),
        header_spans=spans,
        segments=read[:, [PlanWord.FIRST_ROW, PlanWord.EPOCH, PlanWord.APPEND_TIME]],
        buffers=buffers if rows else (),
        header_buffers=buffers if rows and spans is not None else (),
    )


def _bitmap(compiled: Any, views: Views, nulls: int) -> Bytes | None:
    if not nulls:
        return None
    bitmap = np.zeros((len(views) + 7) // 8, np.uint8)
    compiled.mark_nulls(views, bitmap)
    return bitmap
