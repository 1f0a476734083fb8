"""The compiled LZ4: the frames of many batches, decompressed in one call.

Thread: any; releases the GIL (decoder threads).
Owns: every bounds check of LZ4 decompression. Never raises and never allocates (see `kernels`).
Never: reports why a frame is wrong. It reads frames as producers write them: one frame per batch, without dictionary
and without checksums except the header's (a batch has its own). For any other frame, valid or not, it only returns ODD:
the library reads those and reports faults (see `codecs`).

Most sequences are far from the end of their block and of the output. `_quick` copies them in steps of sixteen bytes
that may go beyond the sequence, which needs no branch for the length and no bounds check: in half of the time.
"""

# ruff: noqa: ANN001, ANN201, ANN202, C901, PLR0911, PLR0913, PLR0917
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit

from multilane.wire.records.kernels import little32, little64
from multilane.wire.records.layout import FULL, ODD

_FULL, _ODD = int(FULL), int(ODD)
_MAGIC = np.uint64(0x184D2204)
_VERSION, _INDEPENDENT, _HAS_SIZE = 0x40, 0x20, 0x08
_UNREAD = (
    0xC0 - _VERSION | 0x10 | 0x04 | 0x02 | 0x01
)  # other versions, checksums of blocks and content, reserved, dictionary
_STORED, _LENGTH = np.uint64(0x80000000), np.uint64(0x7FFFFFFF)
# A sequence that `_quick` reads has at most 15 + 254 literals and a match of 19 + 254; each is copied in steps of 48.
_STEPS, _IN_AHEAD, _OUT_AHEAD = 48, 320, 640
# A block with matches ends with at least five literals, and its last match starts at least twelve bytes before its end.
_LAST_LITERALS, _LAST_MATCH = 5, 12
_P1, _P2, _P3, _P4, _P5 = (np.uint64(p) for p in (2654435761, 2246822519, 3266489917, 668265263, 374761393))
_LOW32 = np.uint64(0xFFFFFFFF)


# --- copies ----------------------------------------------------------------------------------------------------------


@njit(nogil=True)
def _put(out, at, word):
    i = np.uint64(at)
    out[i] = np.uint8(word)
    out[i + np.uint64(1)] = np.uint8(word >> np.uint64(8))
    out[i + np.uint64(2)] = np.uint8(word >> np.uint64(16))
    out[i + np.uint64(3)] = np.uint8(word >> np.uint64(24))
    out[i + np.uint64(4)] = np.uint8(word >> np.uint64(32))
    out[i + np.uint64(5)] = np.uint8(word >> np.uint64(40))
    out[i + np.uint64(6)] = np.uint8(word >> np.uint64(48))
    out[i + np.uint64(7)] = np.uint8(word >> np.uint64(56))


@njit(nogil=True)
def _step(out, to, data, at):
    """Copy sixteen bytes between positions at least that far apart."""
    low, high = little64(data, at), little64(data, at + 8)
    _put(out, to, low)
    _put(out, to + 8, high)


@njit(nogil=True)
def _steps(out, to, data, at, size):
    """Copy at least `size` bytes, and up to 47 more, between positions at least sixteen apart."""
    moved = np.int64(0)
    while moved < size:
        _step(out, to + moved, data, at + moved)
        _step(out, to + moved + 16, data, at + moved + 16)
        _step(out, to + moved + 32, data, at + moved + 32)
        moved += _STEPS


@njit(nogil=True)
def _copy(out, to, data, at, size):
    """Copy exactly `size` bytes between positions at least a word apart."""
    moved = np.int64(0)
    while moved + 8 <= size:
        _put(out, to + moved, little64(data, at + moved))
        moved += 8
    while moved < size:
        out[np.uint64(to + moved)] = data[np.uint64(at + moved)]
        moved += 1


@njit(nogil=True)
def _repeat(out, to, distance, size):
    """Copy exactly `size` bytes from `distance` before, which may include bytes that this writes."""
    if distance >= 8:
        _copy(out, to, out, to - distance, size)
        return
    for moved in range(size):
        out[np.uint64(to + moved)] = out[np.uint64(to + moved - distance)]


# --- blocks ----------------------------------------------------------------------------------------------------------


@njit(nogil=True)
def _distance(data, at):
    return np.int64(data[np.uint64(at)]) | (np.int64(data[np.uint64(at + 1)]) << 8)


@njit(nogil=True)
def _quick(data, at, end, out, first, to, limit):
    """Decompress sequences at `at` as long as they are of the common kind; returns the positions where that ends."""
    last_at, last_to = end - _IN_AHEAD, limit - _OUT_AHEAD
    while at < last_at and to < last_to:
        here = at
        token = np.int64(data[np.uint64(at)])
        at += 1
        size = token >> 4
        if size == 15:
            more = np.int64(data[np.uint64(at)])
            if more == 255:
                return here, to
            at += 1
            size += more
            _steps(out, to, data, at, size)
        else:
            _step(out, to, data, at)
        at += size
        match = to + size
        distance = _distance(data, at)
        at += 2
        if distance < 16 or distance > match - first:
            return here, to
        size = token & 15
        if size == 15:
            more = np.int64(data[np.uint64(at)])
            if more == 255:
                return here, to
            at += 1
            size += more
            _steps(out, match, out, match - distance, size + 4)
        else:
            _step(out, match, out, match - distance)
            _put(out, match + 16, little64(out, match + 16 - distance))
        to = match + size + 4
    return at, to


@njit(nogil=True)
def _length(data, at, end, begun):
    """A length that starts with the token's `begun`, and the position after it; -1 if the block ends inside."""
    length = np.int64(begun)
    if begun != 15:
        return length, at
    while at < end:
        byte = np.int64(data[np.uint64(at)])
        at += 1
        length += byte
        if byte != 255:
            return length, at
    return length, np.int64(-1)


@njit(nogil=True)
def _block(data, at, end, out, first, to, limit):
    """Decompress one block; returns the end of the output, FULL or ODD. Matches may reach back to `first`."""
    match = np.int64(-1)
    while at < end:
        at, to = _quick(data, at, end, out, first, to, limit)
        token = np.int64(data[np.uint64(at)])
        size, at = _length(data, at + 1, end, token >> 4)
        if at < 0 or size > end - at or size == end - at - 1:
            return np.int64(_ODD)
        if size > limit - to:
            return np.int64(_FULL)
        _copy(out, to, data, at, size)
        to += size
        at += size
        if at == end:
            ends_well = match < 0 or (size >= _LAST_LITERALS and to - match >= _LAST_MATCH)
            return to if ends_well else np.int64(_ODD)
        distance = _distance(data, at)
        if distance == 0 or distance > to - first:
            return np.int64(_ODD)
        size, at = _length(data, at + 2, end, token & 15)
        if at < 0:
            return np.int64(_ODD)
        size += 4
        if size > limit - to:
            return np.int64(_FULL)
        _repeat(out, to, distance, size)
        match = to
        to += size
    return np.int64(_ODD)


# --- frames ----------------------------------------------------------------------------------------------------------


@njit(nogil=True)
def _rotated(value, by):
    value &= _LOW32
    return ((value << np.uint64(by)) | (value >> np.uint64(32 - by))) & _LOW32


@njit(nogil=True)
def _header_sum(data, at, size):
    """The second byte of XXH32 over a frame's descriptor, which has fewer than 16 bytes."""
    h = _P5 + np.uint64(size)
    end = at + size
    while at + 4 <= end:
        h = _rotated(h + little32(data, at) * _P3, 17) * _P4 & _LOW32
        at += 4
    while at < end:
        h = _rotated(h + np.uint64(data[np.uint64(at)]) * _P5, 11) * _P1 & _LOW32
        at += 1
    h = (h ^ h >> np.uint64(15)) * _P2 & _LOW32
    h = (h ^ h >> np.uint64(13)) * _P3 & _LOW32
    h ^= h >> np.uint64(16)
    return np.int64(h >> np.uint64(8) & np.uint64(0xFF))


@njit(nogil=True)
def _frame(data, at, end, out, first, limit):
    """Decompress one frame; returns the end of the output, FULL or ODD."""
    if end - at < 4 + 2 + 1 + 4 or little32(data, at) != _MAGIC:
        return np.int64(_ODD)
    at += 4
    flags, sizes = np.int64(data[np.uint64(at)]), np.int64(data[np.uint64(at + 1)])
    described = 10 if flags & _HAS_SIZE else 2
    if flags & _UNREAD or not flags & _VERSION or sizes & 0x8F or sizes < 0x40 or end - at < described + 1 + 4:
        return np.int64(_ODD)
    if _header_sum(data, at, described) != np.int64(data[np.uint64(at + described)]):
        return np.int64(_ODD)
    largest = np.int64(1) << (8 + 2 * (sizes >> 4))
    told = little64(data, at + 2) if described == 10 else np.uint64(0)
    at += described + 1
    to = first
    while end - at >= 4:
        word = little32(data, at)
        at += 4
        size = np.int64(word & _LENGTH)
        if word == np.uint64(0):
            is_whole = at == end and (described == 2 or told == np.uint64(to - first))
            return to if is_whole else np.int64(_ODD)
        if size == 0 or size > largest or size > end - at:
            return np.int64(_ODD)
        if word & _STORED:
            if size > limit - to:
                return np.int64(_FULL)
            _copy(out, to, data, at, size)
            reached = to + size
        else:
            reached = _block(data, at, at + size, out, to if flags & _INDEPENDENT else first, to, limit)
        if reached < 0:
            return reached
        if reached - to > largest:
            return np.int64(_ODD)
        to = reached
        at += size
    return np.int64(_ODD)


@njit(nogil=True)
def unlz4(data, spans, out, cap, places, done):
    """Decompress the frames `spans[done:]` of `data` one after the other into `out`; `places` gets their positions.

    A span is a start and an end, inside of `data`. Returns how many frames are done, how many bytes are used, and 0 or
    why it stopped: FULL when `out` has no room for the next frame, ODD when that is nothing for this function or has
    more than `cap` bytes.
    """
    used = np.int64(0)
    for index in range(done, len(spans)):
        limit = min(np.int64(out.size), used + cap)
        reached = _frame(data, spans[index, 0], spans[index, 1], out, used, limit)
        if reached < 0:
            return np.int64(index), used, np.int64(_ODD) if limit < out.size else reached
        places[index, 0], places[index, 1] = used, reached
        used = reached
    return np.int64(len(spans)), used, np.int64(0)
