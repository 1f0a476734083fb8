"""Decodes record batches into a block of columns.

Thread: decoder. One kernel call checks the checksums of a whole span without the GIL, another decodes it; decompression
releases it a few times (see `codecs`).
Owns: the order of the checks, and the result if a batch in the middle is bad: all good batches before it.
Never: skips a batch that cannot be read. For data of a broker it never raises anything but a RecordBatchError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from multilane.errors import BlockFull, CorruptBatch, OversizedBatch, RecordBatchError, UnsupportedBatch
from multilane.wire.records.arrays import Bytes, Ints, Views
from multilane.wire.records.batches import BatchTable
from multilane.wire.records.block import Block, Columns
from multilane.wire.records.checksums import first_wrong
from multilane.wire.records.codecs import (
    KNOWN_CODECS,
    LZ4,
    SECRET,
    SNAPPY,
    Arena,
    Memory,
    decompress,
    decompress_lz4,
    decompress_train,
    fresh_memory,
    train_limit,
)
from multilane.wire.records.layout import (
    APPEND_TIME_BIT,
    BODY_MINIMUM,
    CODEC_MASK,
    COLUMN_BYTES,
    CONTROL_BIT,
    HEADER_SIZE,
    MAX_BUFFER_BYTES,
    PLAN_COLUMNS,
    REASONS,
    STATE_SIZE,
    TALLY_SIZE,
    PlanWord,
    RowWord,
    Status,
    TallyWord,
)
from multilane.wire.records.loading import kernels, load_kernels
from multilane.wire.records.transactions import AbortedTransactions, aborted_batches

__all__ = ["DecodeOptions", "decode", "load_kernels"]

_MB: Final = 1 << 20
_EMPTY: Final[Bytes] = np.empty(0, np.uint8)

_Made = tuple[Ints, Ints, Views, Views, Ints]
_Load = Callable[["_Span", Ints, Ints, "DecodeOptions"], bool]


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """`max_block_bytes` bounds a whole span: decompressed records and columns together.

    Without it a block may have four of the largest batches, and at least 256 MB. `memory` allocates columns and
    decompressed records.
    """

    check_crc: bool = True
    read_committed: bool = False
    max_decompressed_bytes: int = 64 * _MB
    max_block_bytes: int | None = None
    memory: Memory = fresh_memory

    @property
    def block_limit(self) -> int:
        wanted = self.max_block_bytes
        if wanted is None:
            wanted = max(256 * _MB, 4 * self.max_decompressed_bytes)
        return min(wanted, MAX_BUFFER_BYTES)


@dataclass(slots=True)
class _Span:
    """The batches that are still good, and the error that ends the list."""

    frame: Bytes
    rows: Ints
    error: RecordBatchError | None
    arena: Arena

    def cut(self, index: int, error: RecordBatchError) -> None:
        """Batch `index` is bad: keeps only those before it."""
        self.rows = self.rows[:index]
        self.error = _at_offset(error, error.offset)

    def payload(self, batch: int) -> Bytes:
        position, length = int(self.rows[batch, RowWord.POSITION]), int(self.rows[batch, RowWord.LENGTH])
        return self.frame[position + HEADER_SIZE : position + length]

    def base(self, batch: int) -> int:
        return int(self.rows[batch, RowWord.BASE_OFFSET])


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
    span = _Span(frame, table.rows, table.error, Arena(options.memory, options.block_limit))
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
        raise _at_offset(span.error, next_offset)
    error = None if span.error is None else _at_offset(span.error, next_offset)
    return Block(topic, partition, columns, 0, len(columns.offsets), next_offset, epoch, error)


def _at_offset(error: RecordBatchError, offset: int) -> RecordBatchError:
    """A new error of the same kind. The traceback of a raised error references the frame and its decompressed data, in
    a cycle with the object that stores the error: only the garbage collector would free this memory."""
    return type(error)(error.reason, offset=offset)


def _check_sums(span: _Span, fetch_offset: int) -> None:
    wrong = first_wrong(span.frame, span.rows, fetch_offset)
    if wrong is not None:
        span.cut(wrong, CorruptBatch("its checksum does not match", offset=span.base(wrong)))


def _check_codecs(span: _Span, fetch_offset: int) -> None:
    codecs = span.rows[:, RowWord.ATTRIBUTES] & CODEC_MASK
    needed = span.rows[:, RowWord.BASE_OFFSET] + span.rows[:, RowWord.LAST_DELTA] >= fetch_offset
    unknown = np.flatnonzero(needed & (codecs > max(KNOWN_CODECS)))
    if len(unknown):
        index = int(unknown[0])
        error = UnsupportedBatch(f"unknown codec {int(codecs[index])}", offset=span.base(index))
        span.cut(index, error)


def _wanted(span: _Span, options: DecodeOptions, fetch_offset: int, aborted: AbortedTransactions) -> Ints:
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


def _read(span: _Span, wanted: Ints, options: DecodeOptions, fetch_offset: int) -> Columns:
    """Decode the wanted batches, all at once if that succeeds, else batch by batch to find the bad one."""
    plans = _plan(span.rows, wanted)
    codecs = span.rows[wanted, RowWord.ATTRIBUTES] & CODEC_MASK
    for load in _strategies(codecs):
        whole = plans.copy()
        if load(span, whole, codecs, options):
            columns, tally = _run(span, whole, options, fetch_offset)
            if tally[TallyWord.FAILED] < 0:
                return columns
            del columns  # they reference the arena, which is about to be replaced
        span.arena = Arena(options.memory, options.block_limit)
    plans = _load_each(span, plans, codecs, options)
    columns, tally = _run(span, plans, options, fetch_offset)
    failed = int(tally[TallyWord.FAILED])
    if failed >= 0:
        batch = int(plans[failed, PlanWord.BATCH])
        span.cut(batch, CorruptBatch(REASONS[int(tally[TallyWord.STATUS])], offset=span.base(batch)))
    return columns


def _strategies(codecs: Ints) -> list[_Load]:
    """Ways to decompress everything at once, the fastest first."""
    packed = codecs[codecs != 0]
    strategies: list[_Load] = [_load_lz4] if len(packed) and (packed == LZ4).all() else []
    return [*strategies, _load_trains] if len(packed) > 1 and not (packed == SNAPPY).any() else strategies


def _load_lz4(span: _Span, plans: Ints, codecs: Ints, options: DecodeOptions) -> bool:
    """Like `_load_trains`, with our own kernel."""
    packed = np.flatnonzero(codecs)
    limit = options.block_limit - COLUMN_BYTES * int(plans[:, PlanWord.COUNT].sum())
    spans = plans[packed, PlanWord.START : PlanWord.LIMIT + 1]
    placed = decompress_lz4(span.frame, spans, span.arena, options.max_decompressed_bytes, limit)
    if placed is None:
        return False
    plans[packed, PlanWord.START : PlanWord.LIMIT + 1] = placed
    return _point_to_arena(span, plans, packed)


def _load_trains(span: _Span, plans: Ints, codecs: Ints, options: DecodeOptions) -> bool:
    """Whether everything could be decompressed within the limit of a block; gives no reason if not."""
    cap = options.max_decompressed_bytes
    limit = options.block_limit - COLUMN_BYTES * int(plans[:, PlanWord.COUNT].sum())
    for codec, members in _trains(span, plans, codecs, cap):
        room = min(cap, limit - span.arena.used)
        if room <= 0 or not decompress_train(codec, [(n, span.payload(n)) for n in members], span.arena, room):
            return False
    packed = np.flatnonzero(codecs)
    plans[packed, PlanWord.START : PlanWord.LIMIT + 1] = -1
    return _point_to_arena(span, plans, packed)


def _point_to_arena(span: _Span, plans: Ints, packed: Ints) -> bool:
    """Whether the arena can hold as many records as the batches announce."""
    plans[packed, PlanWord.ARENA] = 1
    return int(plans[packed, PlanWord.COUNT].sum()) * BODY_MINIMUM <= span.arena.used


def _trains(span: _Span, plans: Ints, codecs: Ints, cap: int) -> Iterator[tuple[int, list[int]]]:
    """(codec, batch numbers) of neighbours that share a codec, cut by compressed size; uncompressed batches are left
    out."""
    members: list[int] = []
    current = size = 0
    for batch, codec in zip(plans[:, PlanWord.BATCH].tolist(), codecs.tolist(), strict=True):
        if not codec:
            continue
        length = int(span.rows[batch, RowWord.LENGTH])
        if members and (codec != current or size + length > train_limit(span.arena, cap)):
            yield current, members
            members, size = [], 0
        members.append(batch)
        current, size = codec, size + length
    if members:
        yield current, members


def _load_each(span: _Span, plans: Ints, codecs: Ints, options: DecodeOptions) -> Ints:
    """Decompress batch by batch; ends the plan at the first batch that fails or would exceed the block's limit."""
    if not codecs.any() and COLUMN_BYTES * int(plans[:, PlanWord.COUNT].sum()) <= options.block_limit:
        return plans
    spans: list[tuple[int, int]] = []
    used, limit = 0, options.block_limit
    remaining = int(span.rows[plans[codecs != 0, PlanWord.BATCH], RowWord.LENGTH].sum())
    for codec, batch, count in zip(
        codecs.tolist(), *plans[:, [PlanWord.BATCH, PlanWord.COUNT]].T.tolist(), strict=True
    ):
        before = span.arena.used
        try:
            if codec:
                remaining -= _load_one(span, batch, codec, count, options, used)
            size = span.arena.used - before
            _check_room(used, size + COLUMN_BYTES * count, limit, span.base(batch))
        except RecordBatchError as error:
            span.cut(batch, error)
            break
        spans.append((before, span.arena.used))
        used += size + COLUMN_BYTES * count
        if codec:
            most = options.max_decompressed_bytes * (len(plans) - len(spans))
            span.arena.expect(remaining, min(most, limit - used))
    plans, packed = plans[: len(spans)], codecs[: len(spans)] != 0
    if spans:
        plans[packed, PlanWord.ARENA] = 1
        plans[np.ix_(packed, [PlanWord.START, PlanWord.LIMIT])] = np.array(spans, np.int64)[packed]
    return plans


def _load_one(span: _Span, batch: int, codec: int, count: int, options: DecodeOptions, used: int) -> int:
    """Decompress one batch into the arena, within the room of a block that already uses `used` bytes; returns its
    compressed size."""
    before = span.arena.used
    payload = span.payload(batch)
    cap, room = options.max_decompressed_bytes, max(1, options.block_limit - used)
    try:
        decompress(codec, payload, span.arena, min(cap, room), span.base(batch))
    except OversizedBatch:
        if not used or cap <= room:
            raise
        reason = f"{used} bytes are decoded and this batch has more than the remaining {room}"
        raise BlockFull(reason, offset=span.base(batch)) from None
    if count * BODY_MINIMUM > span.arena.used - before:
        raise CorruptBatch(REASONS[Status.BAD_COUNT], offset=span.base(batch))
    span.arena.read += payload.size
    return payload.size


def _check_room(used: int, more: int, limit: int, offset: int) -> None:
    if used + more <= limit:
        return
    if not used:
        raise OversizedBatch(f"takes {more} bytes decoded, a block may have {limit}", offset=offset)
    raise BlockFull(f"{used} bytes are decoded and {more} more would exceed {limit}", offset=offset)


# --- the kernel call -------------------------------------------------------------------------------------------------


def _run(span: _Span, plans: Ints, options: DecodeOptions, fetch_offset: int) -> tuple[Columns, Ints]:
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
