"""The compiled walk over batch headers.

Thread: any; keeps the GIL: it is called on the network thread and takes microseconds.
Owns: the validation of batch headers. A fault is returned as a status, never raised (see `kernels`).
Never: reads a batch's records. Never allocates.
"""

# ruff: noqa: ANN001, ANN201, ANN202, PLR0911
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit

from multilane.wire.records.layout import BATCH_OVERHEAD, BODY_MINIMUM, HEADER_SIZE, MAX_BASE_OFFSET, RowWord, Status

# Plain module integers: numba freezes them as constants; it would look up enum members.
# fmt: off
(_POSITION, _LENGTH, _BASE_OFFSET, _LAST_DELTA, _ATTRIBUTES, _BASE_TIMESTAMP, _MAX_TIMESTAMP, _PRODUCER_ID,
 _PRODUCER_EPOCH, _COUNT, _CRC, _LEADER_EPOCH) = map(int, RowWord)
_OK, _PARTIAL, _BAD_LENGTH, _OLD_FORMAT, _BAD_BASE, _BAD_LAST_DELTA, _BAD_COUNT = map(int, list(Status)[:7])
# fmt: on
_HEADER, _OVERHEAD, _MINIMUM, _MAX_BASE = int(HEADER_SIZE), int(BATCH_OVERHEAD), int(BODY_MINIMUM), int(MAX_BASE_OFFSET)


@njit
def _big_endian(data, at, size):
    """A signed big-endian integer; the caller has checked the bound."""
    value = np.int64(data[at])
    if value >= 128:
        value -= 256
    for i in range(1, size):
        value = (value << 8) | np.int64(data[at + i])
    return value


@njit
def _header_status(data, at, end, floor):
    """Whether a complete, valid v2 batch starts at `at`; `floor` is the lowest allowed base offset."""
    if at + 17 > end:  # up to and including the magic byte, which is at the same position in every format
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


@njit
def scan_headers(data, start, end, rows):
    """Fill `rows` with the batches of data[start:end]; returns (batches seen, status, sum of counts).

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
