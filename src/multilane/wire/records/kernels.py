"""The compiled loops: walk batch headers, decode records into columns, gather spans.

Thread: any. `scan_headers` keeps the GIL (network thread, microseconds); all others release it (decoder threads).
Owns: every bound that is checked while bytes become columns. A fault is returned as a status, never raised: a kernel
that raises would build a Python exception without the GIL's blessing, and numba reads past an array without a word.
Never: imported at `import multilane` (importing this module imports numba and compiles, or loads numba's cache; use
`loading.load_kernels`). Never allocates.

Entry points have explicit signatures and `cache=True`. The small functions have neither: they are compiled into the
entry points, so a cached start does not touch them.
"""

# numba infers the types here, and a loop over bytes with a check per field is one long function by nature:
# split further it would neither read better nor be inlined.
# ruff: noqa: ANN001, ANN201, ANN202, C901, PLR0911, PLR0912, PLR0913, PLR0917
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import int64, njit, types, uint8, uint64, void

from multilane.wire.records.layout import (
    BATCH_OVERHEAD,
    BODY_MINIMUM,
    HEADER_SIZE,
    MARK_SIZE,
    MAX_BASE_OFFSET,
    Plan,
    Row,
    Status,
    Tally,
)

_BYTES = types.Array(uint8, 1, "C", readonly=True)  # writable arrays match too
_COLUMN = int64[::1]
_MATRIX = int64[:, ::1]
_VIEWS = uint64[:, ::1]

# Plain module integers, in the enumerations' order: numba freezes them as constants, members it would look up.
# fmt: off
(_POSITION, _LENGTH, _BASE_OFFSET, _LAST_DELTA, _ATTRIBUTES, _BASE_TIMESTAMP, _MAX_TIMESTAMP, _PRODUCER_ID,
 _PRODUCER_EPOCH, _COUNT, _CRC, _LEADER_EPOCH) = map(int, Row)
(_OK, _PARTIAL, _BAD_LENGTH, _OLD_FORMAT, _BAD_BASE, _BAD_LAST_DELTA, _BAD_COUNT, _RECORD_LENGTH, _VARINT,
 _OFFSET_DELTA, _KEY_LENGTH, _VALUE_LENGTH, _HEADER_COUNT, _HEADER_KEY, _HEADER_VALUE, _RECORD_REST, _BATCH_REST,
 _OVERSIZED) = map(int, Status)
(_P_ARENA, _P_BUFFER, _P_START, _P_LIMIT, _P_BASE_OFFSET, _P_LAST_DELTA, _P_TIMESTAMP, _P_APPEND, _P_COUNT, _P_EPOCH,
 _P_FIRST_ROW, _P_BATCH) = map(int, Plan)
_T_ROWS, _T_FAILED, _T_STATUS, _T_NULL_KEYS, _T_NULL_VALUES, _T_HEADERS = map(int, Tally)
# fmt: on

_HEADER, _OVERHEAD, _MINIMUM = int(HEADER_SIZE), int(BATCH_OVERHEAD), int(BODY_MINIMUM)
_MARK, _MAX_BASE = int(MARK_SIZE), int(MAX_BASE_OFFSET)
_NULL_VIEW = np.uint64(0xFFFFFFFFFFFFFFFF)  # no real view: a length of -1; replaced in `mark_nulls`
_U8, _U32 = np.uint64(8), np.uint64(32)
_ONE, _SEVEN, _LOW7 = np.uint64(1), np.uint64(7), np.uint64(0x7F)


@njit(nogil=True)
def _big_endian(data, at, size):
    """A signed big-endian integer; the caller has checked the bound."""
    value = np.int64(data[at])
    if value >= 128:
        value -= 256
    for i in range(1, size):
        value = (value << 8) | np.int64(data[at + i])
    return value


@njit(nogil=True)
def _little32(data, at):
    # Unsigned indices skip numba's test for negative ones, and LLVM then merges the loads into one.
    i = np.uint64(at)
    return (
        np.uint64(data[i])
        | (np.uint64(data[i + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[i + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[i + np.uint64(3)]) << np.uint64(24))
    )


@njit(nogil=True)
def _little64(data, at):
    i = np.uint64(at)
    return (
        np.uint64(data[i])
        | (np.uint64(data[i + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[i + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[i + np.uint64(3)]) << np.uint64(24))
        | (np.uint64(data[i + np.uint64(4)]) << np.uint64(32))
        | (np.uint64(data[i + np.uint64(5)]) << np.uint64(40))
        | (np.uint64(data[i + np.uint64(6)]) << np.uint64(48))
        | (np.uint64(data[i + np.uint64(7)]) << np.uint64(56))
    )


@njit(nogil=True)
def _long_varint(data, at, end, longest):
    """A zigzag varint of up to `longest` bytes; position -1 when it is longer, overflows or runs past `end`."""
    raw = np.uint64(0)
    shift = np.uint64(0)
    for used in range(longest):
        if at >= end:
            return np.int64(0), np.int64(-1)
        byte = np.uint64(data[np.uint64(at)])
        at += 1
        raw |= (byte & _LOW7) << shift
        if byte < np.uint64(128):
            # The last byte of a full-length varint has room for 4 bits (32-bit) or 1 bit (64-bit).
            if used == longest - 1 and (byte >> np.uint64(4 if longest == 5 else 1)) != np.uint64(0):
                return np.int64(0), np.int64(-1)
            return np.int64(raw >> _ONE) ^ -np.int64(raw & _ONE), at
        shift += _SEVEN
    return np.int64(0), np.int64(-1)


@njit(nogil=True)
def _varint(data, at, end, longest):
    if at < end:
        byte = np.int64(data[np.uint64(at)])
        if byte < 128:
            return (byte >> 1) ^ -(byte & 1), at + 1
    return _long_varint(data, at, end, longest)


# --- headers of batches ----------------------------------------------------------------------------------------------


@njit
def _header_status(data, at, end, floor):
    """Whether a whole, sane v2 batch starts at `at`; `floor` is the lowest base offset allowed."""
    if at + 17 > end:  # up to and with the magic byte, which is at the same place in every format
        return _PARTIAL
    length = _big_endian(data, at + 8, 4)
    if length < 0:
        return _BAD_LENGTH
    if data[at + 16] != 2:
        return _OLD_FORMAT
    if length < _HEADER - _OVERHEAD:
        return _BAD_LENGTH
    if at + _OVERHEAD + length > end:
        return _PARTIAL
    base = _big_endian(data, at, 8)
    if base < floor or base > _MAX_BASE:
        return _BAD_BASE
    if _big_endian(data, at + 23, 4) < 0:
        return _BAD_LAST_DELTA
    count = _big_endian(data, at + 57, 4)
    if count < 0:
        return _BAD_COUNT
    if (data[at + 22] & 7) == 0 and count * _MINIMUM > length - (_HEADER - _OVERHEAD):
        return _BAD_COUNT
    return _OK


@njit
def _fill_row(data, at, row):
    row[_POSITION] = at
    row[_LENGTH] = _big_endian(data, at + 8, 4) + _OVERHEAD
    row[_BASE_OFFSET] = _big_endian(data, at, 8)
    row[_LEADER_EPOCH] = _big_endian(data, at + 12, 4)
    row[_CRC] = _big_endian(data, at + 17, 4) & 0xFFFFFFFF
    row[_ATTRIBUTES] = _big_endian(data, at + 21, 2)
    row[_LAST_DELTA] = _big_endian(data, at + 23, 4)
    row[_BASE_TIMESTAMP] = _big_endian(data, at + 27, 8)
    row[_MAX_TIMESTAMP] = _big_endian(data, at + 35, 8)
    row[_PRODUCER_ID] = _big_endian(data, at + 43, 8)
    row[_PRODUCER_EPOCH] = _big_endian(data, at + 51, 2)
    row[_COUNT] = _big_endian(data, at + 57, 4)


@njit(types.UniTuple(int64, 3)(_BYTES, int64, int64, _MATRIX), cache=True)
def scan_headers(data, start, end, rows):
    """Fill `rows` with the batches of data[start:end]; gives (batches seen, status, sum of counts).

    With no room in `rows` it only counts, so the caller calls twice and allocates exactly.
    """
    at = start
    found = 0
    total = np.int64(0)
    floor = np.int64(0)
    while at < end:
        status = _header_status(data, at, end, floor)
        if status != _OK:
            return found, np.int64(status), total
        if found < rows.shape[0]:
            _fill_row(data, at, rows[found])
        floor = _big_endian(data, at, 8) + _big_endian(data, at + 23, 4) + 1
        total += _big_endian(data, at + 57, 4)
        at += _big_endian(data, at + 8, 4) + _OVERHEAD
        found += 1
    return found, np.int64(_OK), total


# --- records of batches ----------------------------------------------------------------------------------------------


@njit(nogil=True)
def _short_view(data, at, length):
    """The two words of an inline view (length <= 12); reads 12 bytes at once where the buffer allows it."""
    if at + 12 <= data.shape[0]:
        low, high = _little32(data, at), _little64(data, at + 4)
        if length < 4:
            low &= (_ONE << (_U8 * np.uint64(length))) - _ONE
            high = np.uint64(0)
        elif length < 12:
            high &= (_ONE << (_U8 * np.uint64(length - 4))) - _ONE
    else:
        low, high = np.uint64(0), np.uint64(0)
        for i in range(min(length, 4)):
            low |= np.uint64(data[at + i]) << (_U8 * np.uint64(i))
        for i in range(4, length):
            high |= np.uint64(data[at + i]) << (_U8 * np.uint64(i - 4))
    return np.uint64(length) | (low << _U32), high


@njit(nogil=True)
def _view(data, at, length, buffer, views, row):
    if length > 12:
        views[row, 0] = np.uint64(length) | (_little32(data, at) << _U32)
        views[row, 1] = np.uint64(buffer) | (np.uint64(at) << _U32)
    elif length >= 0:
        views[row, 0], views[row, 1] = _short_view(data, at, length)
    else:
        views[row, 0], views[row, 1] = _NULL_VIEW, np.uint64(0)


@njit(nogil=True)
def _check_headers(data, at, end):
    """Walk one record's headers (the count too); gives (status, position after them, count)."""
    count, at = _varint(data, at, end, 5)
    if at < 0:
        return _VARINT, at, count
    if count < 0 or count * 2 > end - at:  # a header is two length bytes at least
        return _HEADER_COUNT, at, count
    for _ in range(count):
        size, at = _varint(data, at, end, 5)
        if at < 0:
            return _VARINT, at, count
        if size < 0 or size > end - at:
            return _HEADER_KEY, at, count
        at += size
        size, at = _varint(data, at, end, 5)
        if at < 0:
            return _VARINT, at, count
        if size > end - at:
            return _HEADER_VALUE, at, count
        if size > 0:
            at += size
    return _OK, at, count


@njit(nogil=True)
def _header_span(data, at, end, buffer):
    """Where a record's headers lie, as one number: size, buffer, position; 0 when it has none."""
    if at < end and data[np.uint64(at)] == 0:
        return _OK, at + 1, np.int64(0)
    first = at
    status, at, many = _check_headers(data, at, end)
    if status != _OK or many <= 0:
        return status, at, np.int64(0)
    return _OK, at, ((at - first) << 32) | (buffer << 31) | first


@njit(nogil=True)
def _decode_batch(data, plan, at, limit, row, floor, columns, tally):
    """Decode one batch's records from data[at:limit] to the columns from `row` on; gives (status, position, row)."""
    # A negative length of a key, a value or a header's value means null.
    offsets, timestamps, keys, values, headers = columns
    buffer = plan[_P_BUFFER]
    base, last, stamp, append = plan[_P_BASE_OFFSET], plan[_P_LAST_DELTA], plan[_P_TIMESTAMP], plan[_P_APPEND]
    null_keys, null_values, with_headers = np.int64(0), np.int64(0), np.int64(0)
    previous = np.int64(-1)
    for _ in range(plan[_P_COUNT]):
        size, at = _varint(data, at, limit, 5)
        if at < 0:
            return _VARINT, at, row
        if size < _MINIMUM - 1 or size > limit - at:
            return _RECORD_LENGTH, at, row
        end = at + size
        delta, at = _varint(data, at + 1, end, 10)  # the first byte holds attributes that no version uses
        if at < 0:
            return _VARINT, at, row
        timestamps[row] = stamp + (delta if append == 0 else 0)
        delta, at = _varint(data, at, end, 5)
        if at < 0:
            return _VARINT, at, row
        if delta <= previous or delta > last:
            return _OFFSET_DELTA, at, row
        previous = delta
        offsets[row] = base + delta
        key_size, at = _varint(data, at, end, 5)
        if at < 0:
            return _VARINT, at, row
        if key_size > end - at:
            return _KEY_LENGTH, at, row
        _view(data, at, key_size, buffer, keys, row)
        at += max(key_size, 0)
        value_size, at = _varint(data, at, end, 5)
        if at < 0:
            return _VARINT, at, row
        if value_size > end - at:
            return _VALUE_LENGTH, at, row
        _view(data, at, value_size, buffer, values, row)
        at += max(value_size, 0)
        status, at, span = _header_span(data, at, end, buffer)
        if status != _OK:
            return status, at, row
        headers[row] = span
        if at != end:
            return _RECORD_REST, at, row
        if base + delta >= floor:
            row += 1
            null_keys += key_size < 0
            null_values += value_size < 0
            with_headers += span != 0
    # Counted only now: the rows of a batch that fails do not count.
    tally[_T_NULL_KEYS] += null_keys
    tally[_T_NULL_VALUES] += null_values
    tally[_T_HEADERS] += with_headers
    return _OK, at, row


@njit(nogil=True)
def _at_mark(data, at, secret, batch):
    """Whether the mark of this very batch stands at `at`."""
    if at + _MARK > data.shape[0]:
        return False
    return _little64(data, at) == secret and _little64(data, at + 8) == np.uint64(batch)


@njit(
    void(
        _BYTES,
        _BYTES,
        uint64,
        _MATRIX,
        int64,
        int64,
        types.Tuple((_COLUMN, _COLUMN, _VIEWS, _VIEWS, _COLUMN)),
        _COLUMN,
    ),
    nogil=True,
    cache=True,
)
def decode_batches(frame, arena, secret, plans, floor, largest, columns, tally):
    """Decode every planned batch in one call; `tally` says how far it came and why it stopped.

    Records below `floor` are dropped. A plan whose LIMIT is -1 lies in the arena behind the batch before it, must end
    at the mark made of `secret` and its batch number, and may not be larger than `largest`; others must end at LIMIT.
    """
    row = np.int64(0)
    cursor = np.int64(0)
    for j in range(plans.shape[0]):
        plan = plans[j]
        data = arena if plan[_P_ARENA] != 0 else frame
        marked = plan[_P_LIMIT] < 0
        start = cursor if plan[_P_START] < 0 else plan[_P_START]
        limit = np.int64(data.shape[0]) if marked else plan[_P_LIMIT]
        plan[_P_FIRST_ROW] = row
        status, at, after = _decode_batch(data, plan, start, limit, row, floor, columns, tally)
        if status == _OK and marked:
            if at - start > largest:
                status = _OVERSIZED
            elif not _at_mark(data, at, secret, plan[_P_BATCH]):
                status = _BATCH_REST
            cursor = at + _MARK
        elif status == _OK and at != limit:
            status = _BATCH_REST
        if status != _OK:
            tally[_T_ROWS], tally[_T_FAILED], tally[_T_STATUS] = row, j, status
            return
        row = after
    tally[_T_ROWS], tally[_T_FAILED], tally[_T_STATUS] = row, -1, _OK


@njit(void(_VIEWS, types.Array(uint8, 1, "C")), nogil=True, cache=True)
def mark_nulls(views, bitmap):
    """Write the validity bitmap of a column that has nulls (bitmap zeroed by the caller) and blank their views."""
    for i in range(views.shape[0]):
        if views[i, 0] == _NULL_VIEW:
            views[i, 0] = np.uint64(0)
        else:
            bitmap[i >> 3] |= np.uint8(1 << (i & 7))


@njit(int64(_BYTES, _BYTES, _COLUMN, types.Array(uint8, 1, "C"), _COLUMN), nogil=True, cache=True)
def gather_headers(first, second, spans, out, moved):
    """Copy header spans of two buffers behind one another into `out`; `moved` are the spans there (buffer 0)."""
    used = np.int64(0)
    for i in range(spans.shape[0]):
        span = spans[i]
        size = span >> 32
        data = second if (span >> 31) & 1 else first
        at = span & 0x7FFFFFFF
        for k in range(size):
            out[used + k] = data[at + k]
        moved[i] = (size << 32) | used if size else 0
        used += size
    return used
