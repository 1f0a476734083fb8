"""The compiled loops over records: decode them into columns, mark nulls, gather header spans.

Thread: any; all release the GIL (decoder threads).
Owns: every bounds check while bytes become columns. A fault is returned as a status, never raised: a kernel that raises
would create a Python exception without the GIL, and numba reads past the end of an array silently.
Never: imported if its machine code is cached (see `loading`), because this module imports numba. Never allocates.

Nearly all records have short fields, a value and no headers. `_common_records` reads each of these from one word, so
that no field waits for the load of the one before, and the processor works on several records at once: in a quarter of
the time. It rejects nothing: `_careful_records` reads records of any other shape and reports faults.
"""

# numba infers the types here. A loop over bytes with a check per field is one long function by nature: split further it
# would neither read better nor be inlined.
# ruff: noqa: ANN001, ANN201, ANN202, C901, PLR0911, PLR0912, PLR0913, PLR0917
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit

from multilane.wire.records.header_kernels import scan_headers
from multilane.wire.records.layout import BODY_MINIMUM, MARK_SIZE, STATE_SIZE, PlanWord, Status, TallyWord

__all__ = ["decode_batches", "gather_headers", "mark_nulls", "scan_headers"]

# Plain module integers, in the enumerations' order: numba freezes them as constants; it would look up enum members.
# fmt: off
_OK = int(Status.OK)
(_RECORD_LENGTH, _VARINT, _OFFSET_DELTA, _KEY_LENGTH, _VALUE_LENGTH, _HEADER_COUNT, _HEADER_KEY, _HEADER_VALUE,
 _RECORD_REST, _BATCH_REST, _OVERSIZED) = map(int, list(Status)[int(Status.RECORD_LENGTH) :])
(_P_ARENA, _P_BUFFER, _P_START, _P_LIMIT, _P_BASE_OFFSET, _P_LAST_DELTA, _P_TIMESTAMP, _P_APPEND, _P_COUNT, _P_EPOCH,
 _P_FIRST_ROW, _P_BATCH) = map(int, PlanWord)
_T_ROWS, _T_FAILED, _T_STATUS, _T_NULL_KEYS, _T_NULL_VALUES, _T_HEADERS = map(int, TallyWord)
# fmt: on

_MINIMUM, _MARK = int(BODY_MINIMUM), int(MARK_SIZE)
_NULL_VIEW = np.uint64(0xFFFFFFFFFFFFFFFF)  # no real view: a length of -1; replaced in `mark_nulls`
_U8, _U32 = np.uint64(8), np.uint64(32)
_ONE, _SEVEN, _LOW7 = np.uint64(1), np.uint64(7), np.uint64(0x7F)
_ZERO, _THREE, _SECOND7, _BIT15 = np.uint64(0), np.uint64(3), np.uint64(0x3F80), np.uint64(15)
_WORD = np.uint64(8)
_FEW = 32  # records that `_careful_records` reads before it tries the common shape once more
# The words of the decoding state.
_AT, _ROW, _LEFT, _PREVIOUS, _NULL_KEYS, _NULL_VALUES, _WITH_HEADERS, _CURSOR = range(STATE_SIZE)
_AHEAD = 24  # how far `_common_records` reads beyond a checked position: a word of fields, or a view


@njit(nogil=True)
def little32(data, at):
    # Unsigned indices skip numba's test for negative ones, and LLVM then merges the loads into one.
    i = np.uint64(at)
    return (
        np.uint64(data[i])
        | (np.uint64(data[i + np.uint64(1)]) << np.uint64(8))
        | (np.uint64(data[i + np.uint64(2)]) << np.uint64(16))
        | (np.uint64(data[i + np.uint64(3)]) << np.uint64(24))
    )


@njit(nogil=True)
def little64(data, at):
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
    """A zigzag varint of up to `longest` bytes; position -1 if it is longer, overflows or runs past `end`."""
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


# --- records ----------------------------------------------------------------------------------------------


@njit(nogil=True)
def _roomy_view(data, at, length, buffer, views, row):
    """Write a view's two words; at least 12 bytes from `at` on must be readable, whatever the length."""
    low = little32(data, at)
    if length > 12:
        high = np.uint64(buffer) | (np.uint64(at) << _U32)
    elif length >= 4:  # short contents are stored in the view itself
        high = little64(data, at + 4) & _mask(length - 4)
    elif length >= 0:
        low, high = low & _mask(length), _ZERO
    else:
        views[row, 0], views[row, 1] = _NULL_VIEW, _ZERO
        return
    views[row, 0], views[row, 1] = np.uint64(length) | (low << _U32), high


@njit(nogil=True)
def _mask(length):
    """The low bytes of a word."""
    return (_ONE << (_U8 * np.uint64(length))) - _ONE if length < 8 else _NULL_VIEW


@njit(nogil=True)
def _view(data, at, length, buffer, views, row):
    """The same near the end of the data, where fewer bytes may be readable."""
    if length > 12 or at + 12 <= data.shape[0]:
        _roomy_view(data, at, length, buffer, views, row)
        return
    low, high = _ZERO, _ZERO
    for i in range(min(length, 4)):
        low |= np.uint64(data[at + i]) << (_U8 * np.uint64(i))
    for i in range(4, length):
        high |= np.uint64(data[at + i]) << (_U8 * np.uint64(i - 4))
    views[row, 0] = np.uint64(length) | (low << _U32) if length >= 0 else _NULL_VIEW
    views[row, 1] = high


@njit(nogil=True)
def _check_headers(data, at, end):
    """Walk one record's headers (the count too); returns (status, position after them, count)."""
    count, at = _varint(data, at, end, 5)
    if at < 0:
        return _VARINT, at, count
    if count < 0 or count * 2 > end - at:  # a header has at least two length bytes
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
    """The span of a record's headers as one number: size, buffer, position; 0 if it has none."""
    if at < end and data[np.uint64(at)] == 0:
        return _OK, at + 1, np.int64(0)
    first = at
    status, at, many = _check_headers(data, at, end)
    if status != _OK or many <= 0:
        return status, at, np.int64(0)
    return _OK, at, ((at - first) << 32) | (buffer << 31) | first


@njit(nogil=True)
def _short_varint(word):
    """The zigzag varint at the low end of a word, if it has one or two bytes: (value, size, whether it is longer)."""
    second = (word >> _SEVEN) & _ONE
    raw = (word & _LOW7) | ((word >> _ONE) & _SECOND7 & (_ZERO - second))
    return np.int64(raw >> _ONE) ^ -np.int64(raw & _ONE), _ONE + second, second & (word >> _BIT15)


@njit(nogil=True)
def _common_records(data, plan, state, limit, floor, columns):
    """Read records of the common shape up to the first of another shape, which is left for `_careful_records`."""
    offsets, timestamps, keys, values, headers = columns
    buffer = plan[_P_BUFFER]
    base, last, stamp, append = plan[_P_BASE_OFFSET], plan[_P_LAST_DELTA], plan[_P_TIMESTAMP], plan[_P_APPEND]
    at, row, left, previous = state[_AT], np.uint64(state[_ROW]), state[_LEFT], state[_PREVIOUS]
    null_keys, null_values = np.int64(0), np.int64(0)
    last_safe = min(limit, data.shape[0] - _AHEAD)
    while left > 0 and at <= last_safe:
        word = little64(data, at)
        size, used, long = _short_varint(word)
        end = at + np.int64(used) + size
        used += _ONE  # the attributes, which no version uses
        word >>= used << _THREE
        time_delta, width, more = _short_varint(word)
        used, long = used + width, long | more
        word >>= width << _THREE
        delta, width, more = _short_varint(word)
        used, long = used + width, long | more
        word >>= width << _THREE
        key_size, width, more = _short_varint(word)
        used, long = used + width, long | more
        place = at + np.int64(used)
        if long != _ZERO or used > _WORD or size < _MINIMUM - 1 or end > limit or key_size > end - place:
            break
        if delta <= previous or delta > last:
            break
        _roomy_view(data, place, key_size, buffer, keys, row)
        place += max(key_size, 0)
        if place > last_safe:
            break
        value_size, width, more = _short_varint(little32(data, place))
        place += np.int64(width)
        # The last byte is a header count of 0, and the value reaches up to it.
        if more != _ZERO or place + max(value_size, 0) + 1 != end or data[np.uint64(end - 1)] != 0:
            break
        _roomy_view(data, place, value_size, buffer, values, row)
        headers[row] = 0
        timestamps[row] = stamp + (time_delta if append == 0 else 0)
        offsets[row] = base + delta
        at, previous = end, delta
        left -= 1
        if base + delta >= floor:
            row += _ONE
            null_keys += key_size < 0
            null_values += value_size < 0
    state[_AT], state[_ROW], state[_LEFT], state[_PREVIOUS] = at, np.int64(row), left, previous
    state[_NULL_KEYS] += null_keys
    state[_NULL_VALUES] += null_values


@njit(nogil=True)
def _careful_records(data, plan, state, limit, floor, columns):
    """Read the next few records of any shape; returns the status of the first faulty one."""
    # A negative length of a key, a value or a header's value means null.
    offsets, timestamps, keys, values, headers = columns
    buffer = plan[_P_BUFFER]
    base, last, stamp, append = plan[_P_BASE_OFFSET], plan[_P_LAST_DELTA], plan[_P_TIMESTAMP], plan[_P_APPEND]
    at, row = state[_AT], state[_ROW]
    for _ in range(min(state[_LEFT], _FEW)):
        size, at = _varint(data, at, limit, 5)
        if at < 0:
            return _VARINT
        if size < _MINIMUM - 1 or size > limit - at:
            return _RECORD_LENGTH
        end = at + size
        delta, at = _varint(data, at + 1, end, 10)  # the first byte has attributes that no version uses
        if at < 0:
            return _VARINT
        timestamps[row] = stamp + (delta if append == 0 else 0)
        delta, at = _varint(data, at, end, 5)
        if at < 0:
            return _VARINT
        if delta <= state[_PREVIOUS] or delta > last:
            return _OFFSET_DELTA
        offsets[row] = base + delta
        key_size, at = _varint(data, at, end, 5)
        if at < 0:
            return _VARINT
        if key_size > end - at:
            return _KEY_LENGTH
        _view(data, at, key_size, buffer, keys, row)
        value_size, at = _varint(data, at + max(key_size, 0), end, 5)
        if at < 0:
            return _VARINT
        if value_size > end - at:
            return _VALUE_LENGTH
        _view(data, at, value_size, buffer, values, row)
        status, at, span = _header_span(data, at + max(value_size, 0), end, buffer)
        if status != _OK:
            return status
        headers[row] = span
        if at != end:
            return _RECORD_REST
        state[_PREVIOUS] = delta
        state[_LEFT] -= 1
        if base + delta >= floor:
            row += 1
            state[_NULL_KEYS] += key_size < 0
            state[_NULL_VALUES] += value_size < 0
            state[_WITH_HEADERS] += span != 0
    state[_AT], state[_ROW] = at, row
    return _OK


@njit(nogil=True)
def _decode_batch(data, plan, state, limit, floor, columns):
    """Decode one batch's records from the position in `state` up to `limit`."""
    state[_LEFT], state[_PREVIOUS] = plan[_P_COUNT], -1
    while state[_LEFT] > 0:
        _common_records(data, plan, state, limit, floor, columns)
        status = _careful_records(data, plan, state, limit, floor, columns)
        if status != _OK:
            return status
    return _OK


@njit(nogil=True)
def _at_mark(data, at, secret, batch):
    """Whether the mark of this batch is at `at`."""
    if at + _MARK > data.shape[0]:
        return False
    return little64(data, at) == secret and little64(data, at + 8) == np.uint64(batch)


@njit(nogil=True)
def decode_batches(frame, arena, secret, plans, floor, largest, columns, tally, state):
    """Decode every planned batch in one call; `tally` reports how far it got and why it stopped.

    Records below `floor` are dropped. A plan whose LIMIT is -1 lies in the arena behind the batch before it, must end
    at the mark made of `secret` and its batch number, and may not be larger than `largest`; others must end at LIMIT.
    `state` is zeroed memory to work with.
    """
    for j in range(plans.shape[0]):
        plan = plans[j]
        data = arena if plan[_P_ARENA] != 0 else frame
        marked = plan[_P_LIMIT] < 0
        start = state[_CURSOR] if plan[_P_START] < 0 else plan[_P_START]
        limit = np.int64(data.shape[0]) if marked else plan[_P_LIMIT]
        plan[_P_FIRST_ROW] = state[_ROW]
        # Counted only when the batch is complete: the rows of a failed batch do not count.
        tally[_T_ROWS] = state[_ROW]
        tally[_T_NULL_KEYS], tally[_T_NULL_VALUES] = state[_NULL_KEYS], state[_NULL_VALUES]
        tally[_T_HEADERS] = state[_WITH_HEADERS]
        state[_AT] = start
        status = _decode_batch(data, plan, state, limit, floor, columns)
        at = state[_AT]
        if status == _OK and marked:
            if at - start > largest:
                status = _OVERSIZED
            elif not _at_mark(data, at, secret, plan[_P_BATCH]):
                status = _BATCH_REST
            state[_CURSOR] = at + _MARK
        elif status == _OK and at != limit:
            status = _BATCH_REST
        if status != _OK:
            tally[_T_FAILED], tally[_T_STATUS] = j, status
            return
    tally[_T_ROWS], tally[_T_FAILED], tally[_T_STATUS] = state[_ROW], -1, _OK
    tally[_T_NULL_KEYS], tally[_T_NULL_VALUES] = state[_NULL_KEYS], state[_NULL_VALUES]
    tally[_T_HEADERS] = state[_WITH_HEADERS]


@njit(nogil=True)
def mark_nulls(views, bitmap):
    """Write the validity bitmap of a column that has nulls (bitmap zeroed by the caller) and blank their views."""
    for i in range(views.shape[0]):
        if views[i, 0] == _NULL_VIEW:
            views[i, 0] = np.uint64(0)
        else:
            bitmap[i >> 3] |= np.uint8(1 << (i & 7))


@njit(nogil=True)
def gather_headers(first, second, spans, out, moved):
    """Concatenate header spans of two buffers in `out`; `moved` are the new spans (buffer 0)."""
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
