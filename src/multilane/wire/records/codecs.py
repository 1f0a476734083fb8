"""Decompresses records into an arena of bytes, with a cap.

Thread: decoder. cramjam releases the GIL in every call. Next to a busy Python thread each release may cost a switch
interval (5 ms) before this thread runs again, so the compressed batches of a span are decompressed in few calls: LZ4 as
producers write it by our own kernel, everything else as a train.
Owns: the arena, the cap on decompressed bytes, the marks between the batches of a train.
Never: allocates more than the cap because of a length in the data.

A train is the concatenation of several batches' streams, with a small handmade frame after each, whose content is a
mark: a secret of this process and the batch's number. gzip, lz4 and zstd read such a sequence of frames as one stream.
The kernel accepts a batch only if its records end exactly at its own mark. So a batch that decompresses to less or to
more, or that swallows its neighbour, is detected; the span is then read again batch by batch. A truncated stream could
still take the mark's own header for its missing bytes: gzip's checksum detects that, LZ4 must have a checksum, and
zstd's blocks are counted. Raw snappy has no frames, hence no trains; its calls are so short that most end before
another thread wakes up.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final

import cramjam
import numpy as np

from multilane.errors import CorruptBatch, OversizedBatch, RecordBatchError
from multilane.wire.records.arrays import Bytes, Ints
from multilane.wire.records.layout import FULL, MARK_SIZE, MAX_BUFFER_BYTES, ODD
from multilane.wire.records.loading import kernels

GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4
KNOWN_CODECS: Final = frozenset((0, GZIP, SNAPPY, LZ4, ZSTD))

SECRET: Final = int.from_bytes(os.urandom(8), "little")

_INTO: Final[dict[int, Callable[[Any, Any], int]]] = {
    GZIP: cramjam.gzip.decompress_into,
    LZ4: cramjam.lz4.decompress_into,
    ZSTD: cramjam.zstd.decompress_into,
}
_XERIAL: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = 16
_ZSTD_MAGIC: Final = b"\x28\xb5\x2f\xfd"
_ZSTD_REPEATED: Final = 1  # a block of one byte, repeated as often as its length says
_LZ4_SUMS: Final = 0x14  # flags: checksums of the blocks and of the content
_FIRST_GUESS: Final = 8  # times the compressed size; memory that is never written is not used
_SMALLEST: Final = 4096
_FIRST_TRAIN: Final = 256 * 1024  # compressed bytes; small, because it only measures how much this span expands
_TRAIN_SHARE: Final = 4  # later trains aim at this fraction of the cap, so that one that expands more still fits
_MARGIN: Final = 1.25


Memory = Callable[[int], Bytes]


def fresh_memory(size: int) -> Bytes:
    return np.empty(size, np.uint8)


class Arena:
    """One growing buffer for the decompressed records of a span. `take` allocates memory with any content.

    It grows by doubling, but not beyond `most` unless needed.
    """

    __slots__ = ("_buffer", "_most", "expansion", "read", "take", "used")

    def __init__(self, take: Memory = fresh_memory, most: int = MAX_BUFFER_BYTES) -> None:
        self.take = take
        self._most = most
        self._buffer: Bytes = np.empty(0, np.uint8)
        self.used = 0
        self.read = 0  # compressed bytes read so far
        self.expansion = 0.0  # decompressed bytes per compressed byte in the last train, 0 before the first

    def room(self, size: int) -> Bytes:
        """The next `size` bytes, for writing; they count only when `used` moves."""
        if self._buffer.size - self.used < size:
            grown = self.take(max(self.used + size, min(2 * self.used, self._most)))
            grown[: self.used] = self._buffer[: self.used]
            self._buffer = grown
        return self._buffer[self.used : self.used + size]

    def expect(self, compressed: int, limit: int) -> None:
        """Allocate at once for so many more compressed bytes, assuming that they expand like those before."""
        more = int(_MARGIN * compressed * self.used / max(self.read, 1))
        if compressed > 0 and self._buffer.size - self.used < more // 2:
            self.room(min(more, limit))

    def close(self) -> Bytes:
        """The written bytes; the unused rest is freed if possible."""
        if self._buffer.size > self.used and self._buffer.flags.owndata:
            # In place (a realloc), so that nothing is copied; no view of the buffer exists any more.
            self._buffer.resize(self.used, refcheck=False)
        return self._buffer[: self.used]


def decompress(codec: int, data: Bytes, arena: Arena, cap: int, offset: int) -> None:
    """Append one batch's decompressed records to the arena; `offset` identifies the batch in errors."""
    if codec == SNAPPY:
        _unsnappy(data, arena, cap, offset)
        return
    size = _declared_size(codec, data)
    if size is not None and size > cap and codec == ZSTD:
        raise OversizedBatch(f"declares {size} bytes decompressed, the cap is {cap}", offset=offset)
    guess = max(_SMALLEST, _FIRST_GUESS * data.size) if size is None else size
    fault = _grow_into(codec, data, arena, guess, cap)
    if fault is not None:
        raise _stream_error(fault, cap, offset)


def decompress_train(codec: int, members: Sequence[tuple[int, Bytes]], arena: Arena, cap: int) -> bool:
    """Decompress (batch number, stream) pairs in one call, a mark after each; False if that fails."""
    if not all(_is_self_contained(codec, data) for _, data in members):
        return False
    train = _join_train([(data, _mark_frame(codec, number)) for number, data in members], arena.take)
    before = arena.used
    guess = _MARGIN * arena.expansion * len(train) if arena.expansion else _FIRST_GUESS * len(train)
    if _grow_into(codec, train, arena, max(_SMALLEST, int(guess)), cap) is not None:
        return False
    arena.expansion = (arena.used - before) / len(train)
    return True


def decompress_lz4(data: Bytes, spans: Ints, arena: Arena, cap: int, limit: int) -> Ints | None:
    """Decompress the LZ4 frames in `spans` of `data`; returns where each is in the arena, or None if a frame is not
    readable here or exceeds the bounds (of a frame, of the arena)."""
    read = np.cumsum(spans[:, 1] - spans[:, 0])
    sample = 1 + int(np.searchsorted(read, _FIRST_TRAIN))  # so many frames show how much they expand
    expansion = float(_FIRST_GUESS)
    placed = np.empty_like(spans)
    done = 0
    while done < len(spans):
        ahead = spans if done else spans[:sample]
        before, room = arena.used, limit - arena.used
        size = min(max(_SMALLEST, int(expansion * (ahead[:, 1] - ahead[:, 0])[done:].sum())), room)
        if size <= 0:
            return None
        first = done
        done, used, why = kernels().unlz4(data, ahead, arena.room(size), cap, placed, done)
        placed[first:done] += before
        arena.used += used
        if why == ODD or (why == FULL and size == room):
            return None
        expansion = 4 * expansion if why == FULL else _MARGIN * arena.used / int(read[done - 1])
    return placed


def _join_train(members: Sequence[tuple[Bytes, bytes]], take: Memory) -> Bytes:
    train = take(sum(data.size + len(mark) for data, mark in members))
    view = train.data  # keeps the GIL for these short copies; an array would release it for each
    at = 0
    for data, mark in members:
        end = at + data.size
        view[at:end] = data.data
        at = end + len(mark)
        view[end:at] = mark
    return train


def train_limit(arena: Arena, cap: int) -> int:
    """How many compressed bytes go into the next train."""
    return int(cap / _TRAIN_SHARE / max(arena.expansion, 1.0)) if arena.expansion else _FIRST_TRAIN


def _grow_into(codec: int, data: Bytes, arena: Arena, guess: int, cap: int) -> str | None:
    """Decompress into a bounded buffer that grows up to the cap; returns why it failed, as text: the exception would
    reference the arena.

    A failure may mean a full buffer or broken data. Growing for both makes the result independent of cramjam's wording;
    broken data fails early every time, and there are few steps.
    """
    size = min(max(guess, 1), cap)
    while True:
        try:
            arena.used += _INTO[codec](data, arena.room(size))
        except cramjam.DecompressionError as fault:
            if size >= cap:
                return str(fault)
            size = min(size * 4, cap)
        else:
            return None


def _stream_error(fault: str, cap: int, offset: int) -> RecordBatchError:
    # "failed to write whole buffer" is the Rust standard library's message for a full output buffer.
    if "write whole buffer" in fault:
        return OversizedBatch(f"decompresses to more than the cap of {cap} bytes", offset=offset)
    return CorruptBatch(f"cannot be decompressed: {fault}", offset=offset)


def _unsnappy(data: Bytes, arena: Arena, cap: int, offset: int) -> None:
    """Raw snappy, or xerial's framing of it: a header and length-prefixed raw chunks. Sizes are declared in front."""
    total = 0
    for chunk in _snappy_chunks(data, offset):
        try:
            size = cramjam.snappy.decompress_raw_len(chunk.data)
            total += size
            if total > cap:
                raise OversizedBatch(f"declares {total} bytes decompressed, the cap is {cap}", offset=offset)
            arena.used += cramjam.snappy.decompress_raw_into(chunk.data, arena.room(size).data)
        except cramjam.DecompressionError as fault:
            raise CorruptBatch(f"cannot be decompressed: {fault}", offset=offset) from None


def _snappy_chunks(data: Bytes, offset: int) -> list[Bytes]:
    if bytes(data[: len(_XERIAL)]) != _XERIAL:
        return [data]
    chunks = []
    at = _XERIAL_HEADER
    while at < data.size:
        size = int.from_bytes(bytes(data[at : at + 4]), "big")
        at += 4
        if size == 0 or size > data.size - at:
            raise CorruptBatch("a snappy chunk is empty or runs past the end of the batch", offset=offset)
        chunks.append(data[at : at + size])
        at += size
    return chunks


# --- headers of streams ----------------------------------------------------------------------------------------------


def _declared_size(codec: int, data: Bytes) -> int | None:
    """The decompressed size that a stream declares, if any; a hint, which the caller bounds."""
    if codec == GZIP and data.size >= 18:
        return int.from_bytes(bytes(data[-4:]), "little")
    if codec == LZ4 and data.size >= 15 and data[4] & 0x08:
        return int.from_bytes(bytes(data[6:14]), "little")
    if codec == ZSTD and bytes(data[:4]) == _ZSTD_MAGIC and data.size > 4:
        return _zstd_size(bytes(data[4:18]))
    return None


def _is_self_contained(codec: int, data: Bytes) -> bool:
    """Whether a truncated stream is detected even if other bytes follow it."""
    if codec == LZ4:
        return data.size > 4 and bool(data[4] & _LZ4_SUMS)
    return codec != ZSTD or (data.size > 4 and _zstd_ends(data.data))


def _zstd_ends(data: memoryview) -> bool:
    """Whether this is one frame whose blocks, by their own lengths, end at its end."""
    start, width = _zstd_fields(data[4])
    at = 4 + start + width
    while at + 3 <= len(data):
        block = int.from_bytes(data[at : at + 3], "little")
        at += 3 + (1 if block >> 1 & 3 == _ZSTD_REPEATED else block >> 3)
        if block & 1:  # the last block, which a checksum may follow
            return at + (4 if data[4] & 0x04 else 0) == len(data)
    return False


def _zstd_fields(descriptor: int) -> tuple[int, int]:
    """The position of the content size in a zstd frame header (after the magic number), and its width."""
    single = descriptor >> 5 & 1
    width = (1 if single else 0, 2, 4, 8)[descriptor >> 6]
    return 1 + (not single) + (0, 1, 2, 4)[descriptor & 3], width


def _zstd_size(header: bytes) -> int | None:
    """The content size in a zstd frame header (after the magic number)."""
    at, width = _zstd_fields(header[0])
    if not width or len(header) < at + width:
        return None
    size = int.from_bytes(header[at : at + width], "little")
    return size + 256 if width == 2 else size


# --- marks -----------------------------------------------------------------------------------------------------------


def _mark_frame(codec: int, number: int) -> bytes:
    """A handmade frame of the codec that decompresses to the mark (stored, not compressed)."""
    mark = SECRET.to_bytes(8, "little") + number.to_bytes(8, "little")
    if codec == GZIP:
        stored = b"\x01" + MARK_SIZE.to_bytes(2, "little") + (0xFFFF - MARK_SIZE).to_bytes(2, "little") + mark
        tail = zlib.crc32(mark).to_bytes(4, "little") + MARK_SIZE.to_bytes(4, "little")
        return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff" + stored + tail
    if codec == LZ4:
        # Independent blocks, no checksums, 64 KB blocks; 0x82 is the header's own checksum; bit 31: not compressed.
        return b"\x04\x22\x4d\x18\x60\x40\x82" + (MARK_SIZE | 1 << 31).to_bytes(4, "little") + mark + bytes(4)
    # One segment with a one-byte content size, then one last raw block.
    return _ZSTD_MAGIC + bytes((0x20, MARK_SIZE)) + (MARK_SIZE << 3 | 1).to_bytes(3, "little") + mark
