"""Decompresses the batches of a span into its arena: all at once if it can, else one by one to find the bad one.

Thread: decoder. Releases the GIL a few times (see `codecs`).
Owns: the order of the attempts, and the limits of a block.
Never: reads a record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from multilane.errors import BlockFull, CorruptBatch, OversizedBatch, RecordBatchError
from multilane.wire.records.arrays import Ints
from multilane.wire.records.codecs import LZ4, SNAPPY, decompress, decompress_lz4, decompress_train, train_limit
from multilane.wire.records.decode_span import DecodeOptions, DecodeSpan
from multilane.wire.records.layout import BODY_MINIMUM, COLUMN_BYTES, REASONS, PlanWord, RowWord, Status

Load = Callable[["DecodeSpan", Ints, Ints, "DecodeOptions"], bool]


def ways_to_decompress(codecs: Ints) -> list[Load]:
    """Ways to decompress everything at once, the fastest first."""
    packed = codecs[codecs != 0]
    strategies: list[Load] = [_load_lz4] if len(packed) and (packed == LZ4).all() else []
    return [*strategies, _load_trains] if len(packed) > 1 and not (packed == SNAPPY).any() else strategies


def _load_lz4(span: DecodeSpan, plans: Ints, codecs: Ints, options: DecodeOptions) -> bool:
    """Like `_load_trains`, with our own kernel."""
    packed = np.flatnonzero(codecs)
    limit = options.block_limit - COLUMN_BYTES * int(plans[:, PlanWord.COUNT].sum())
    spans = plans[packed, PlanWord.START : PlanWord.LIMIT + 1]
    placed = decompress_lz4(span.frame, spans, span.arena, options.max_decompressed_bytes, limit)
    if placed is None:
        return False
    plans[packed, PlanWord.START : PlanWord.LIMIT + 1] = placed
    return _point_to_arena(span, plans, packed)


def _load_trains(span: DecodeSpan, plans: Ints, codecs: Ints, options: DecodeOptions) -> bool:
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


def _point_to_arena(span: DecodeSpan, plans: Ints, packed: Ints) -> bool:
    """Whether the arena can hold as many records as the batches announce."""
    plans[packed, PlanWord.ARENA] = 1
    return int(plans[packed, PlanWord.COUNT].sum()) * BODY_MINIMUM <= span.arena.used


def _trains(span: DecodeSpan, plans: Ints, codecs: Ints, cap: int) -> Iterator[tuple[int, list[int]]]:
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


def decompress_each(span: DecodeSpan, plans: Ints, codecs: Ints, options: DecodeOptions) -> Ints:
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


def _load_one(span: DecodeSpan, batch: int, codec: int, count: int, options: DecodeOptions, used: int) -> int:
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
