"""The compiled loops over kept rows: chain them by key, take the next ones, copy them out, release them.

Thread: any, one at a time; all keep the GIL (they take microseconds, and the caller calls the next one at once).
Owns: nothing; the arrays are `keyed_storage`'s. Views of blocks were checked at decoding, everything else was written
here.
Never: imported if its machine code is cached (see `loading`). Never allocates.
"""

# numba infers the types here.
# ruff: noqa: ANN001, ANN201, ANN202, PLR0913, PLR0917, SIM110
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import numpy as np
from numba import njit

from multilane.wire.records.hash_kernels import hash_key
from multilane.wire.records.layout import WINDOW_BYTES, ChainWord, KeepWord, KeptWord

__all__ = [
    "clear_flags",
    "copy_rows",
    "index_chains",
    "keep_rows",
    "move_rows",
    "release_rows",
    "split_newest",
    "take_rows",
]

# fmt: off
_OFFSET, _TIMESTAMP, _TYPE, _AT, _KEY_SIZE, _VALUE_SIZE, _CHAIN, _NEXT = map(int, KeptWord)
_HASH, _FIRST, _LAST, _WAITING, _IN_WORK = map(int, ChainWord)
(_LANES, _SECRET, _SECOND, _ROWS, _FREE_ROW, _CHAINS, _FREE_CHAIN, _READY_AT, _READY, _TAKEABLE, _ARENA_END,
 _LIVE_BYTES, _KEY_BYTES, _VALUE_BYTES) = map(int, KeepWord)
# fmt: on
_FIRST_ROW, _SEGMENT_TYPE = 0, 2  # of a block's segments
_TAKEN = -2  # instead of the next row
_MOST_BYTES = int(WINDOW_BYTES)
_INLINE = 12  # a view stores up to this many bytes inline
_LOW32, _U32, _U8 = np.uint64(0xFFFFFFFF), np.uint64(32), np.uint64(8)


@njit
def _copy(out, to, data, at, size):
    for moved in range(size):
        out[np.uint64(to + moved)] = data[np.uint64(at + moved)]


@njit
def _copy_view(out, to, low, high, first, second):
    """Copy the content of an Arrow view: up to twelve bytes are inline, more are in one of the two buffers."""
    size = np.int64(low & _LOW32)
    if size > _INLINE:
        _copy(out, to, second if high & _LOW32 else first, np.int64(high >> _U32), size)
        return
    word = low >> _U32
    for moved in range(size):
        if moved == 4:
            word = high
        out[np.uint64(to + moved)] = np.uint8(word)
        word >>= _U8


@njit
def _same_key(rows, arena, one, other):
    size = rows[one, _KEY_SIZE]
    if rows[other, _KEY_SIZE] != size:
        return False
    here, there = rows[one, _AT], rows[other, _AT]
    for i in range(size):
        if arena[np.uint64(here + i)] != arena[np.uint64(there + i)]:
            return False
    return True


# --- chains ----------------------------------------------------------------------------------------------------------


@njit
def _chain_of(rows, chains, table, arena, hashed, row):
    """The chain of the row's key, and the slot in the table where it is or belongs. A chain always has a last row to
    compare with: a chain without rows does not exist."""
    mask = table.shape[0] - 1
    place = hashed & mask
    while table[place]:
        chain = table[place] - 1
        if chains[chain, _HASH] == hashed and _same_key(rows, arena, chains[chain, _LAST], row):
            return chain, place
        place = (place + 1) & mask
    return -1, place


@njit
def _new_chain(state, chains):
    chain = state[_FREE_CHAIN]
    if chain < 0:
        chain = state[_CHAINS]
        state[_CHAINS] += 1
    else:
        state[_FREE_CHAIN] = chains[chain, _FIRST]
    chains[chain, _FIRST], chains[chain, _WAITING], chains[chain, _IN_WORK] = -1, 0, 0
    return chain


@njit
def _forget(chains, table, chain):
    """Remove a chain from the table; chains that it had displaced move back."""
    mask = table.shape[0] - 1
    hole = chains[chain, _HASH] & mask
    while table[hole] != chain + 1:
        hole = (hole + 1) & mask
    place = (hole + 1) & mask
    while table[place]:
        home = chains[table[place] - 1, _HASH] & mask
        if (place - home) & mask >= (place - hole) & mask:
            table[hole] = table[place]
            hole = place
        place = (place + 1) & mask
    table[hole] = 0


@njit
def _append(state, rows, chains, ready, chain, row):
    if chains[chain, _WAITING]:
        rows[chains[chain, _LAST], _NEXT] = row
    else:
        chains[chain, _FIRST] = row
    chains[chain, _LAST] = row
    chains[chain, _WAITING] += 1
    if chains[chain, _IN_WORK]:
        return
    state[_TAKEABLE] += 1
    if chains[chain, _WAITING] == 1:
        ready[(state[_READY_AT] + state[_READY]) & (ready.shape[0] - 1)] = chain
        state[_READY] += 1


# --- adding, taking and releasing rows -------------------------------------------------------------------------------


@njit
def _is_null(valid, row):
    return valid.shape[0] > 0 and not valid[row >> 3] >> (row & 7) & 1


@njit
def keep_rows(state, rows, chains, table, ready, arena, block, nulls, buffers, fresh, start, stop):
    """Copy rows [start, stop) of a block and chain them by key; returns the first row without room, or `stop`. `fresh`
    has a byte for each row, 0 for rows to leave out, or is empty."""
    offsets, timestamps, segments, keys, values = block
    segment = 0
    for i in range(start, stop):
        while segment + 1 < segments.shape[0] and segments[segment + 1, _FIRST_ROW] <= i:
            segment += 1
        if fresh.shape[0] and not fresh[i - stop + fresh.shape[0]]:
            continue
        key_size = np.int64(keys[i, 0] & _LOW32)
        value_size = np.int64(values[i, 0] & _LOW32)
        row, at = state[_FREE_ROW], state[_ARENA_END]
        if (row < 0 and state[_ROWS] == rows.shape[0]) or at + key_size + value_size > arena.shape[0]:
            return i
        if row < 0:
            row = state[_ROWS]
            state[_ROWS] += 1
        else:
            state[_FREE_ROW] = rows[row, _NEXT]
        _copy_view(arena, at, keys[i, 0], keys[i, 1], buffers[0], buffers[1])
        _copy_view(arena, at + key_size, values[i, 0], values[i, 1], buffers[0], buffers[1])
        state[_ARENA_END] += key_size + value_size
        state[_LIVE_BYTES] += key_size + value_size
        has_key = not _is_null(nulls[0], i)
        rows[row, _OFFSET], rows[row, _TIMESTAMP], rows[row, _AT] = offsets[i], timestamps[i], at
        rows[row, _TYPE] = segments[segment, _SEGMENT_TYPE]
        rows[row, _KEY_SIZE] = key_size if has_key else -1
        rows[row, _VALUE_SIZE] = -1 if _is_null(nulls[1], i) else value_size
        chain, place, hashed = np.int64(-1), np.int64(0), np.int64(0)
        if has_key:
            hashed = hash_key(arena, at, key_size, state[_SECRET], state[_SECOND])
            chain, place = _chain_of(rows, chains, table, arena, hashed, row)
        if chain < 0:
            chain = _new_chain(state, chains)
            chains[chain, _HASH] = hashed
            if has_key:
                table[place] = chain + 1
        rows[row, _CHAIN], rows[row, _NEXT] = chain, -1
        _append(state, rows, chains, ready, chain, row)
    return stop


@njit
def _size(rows, row):
    return max(rows[row, _KEY_SIZE], 0) + max(rows[row, _VALUE_SIZE], 0)


@njit
def take_rows(state, rows, chains, ready, ids, most_chains):
    """Take as many rows as `ids` has room for, of at most so many ready chains, rows of one key together; returns their
    number. Their values have to be copied before any other call: after that only their keys are kept."""
    taken, begun = np.int64(0), np.int64(0)
    key_bytes, value_bytes = np.int64(0), np.int64(0)
    is_full = False
    while state[_READY] and taken < ids.shape[0] and begun < most_chains and not is_full:
        chain = ready[state[_READY_AT]]
        row = chains[chain, _FIRST]
        if taken and key_bytes + value_bytes + _size(rows, row) > _MOST_BYTES:
            break
        state[_READY_AT] = (state[_READY_AT] + 1) & (ready.shape[0] - 1)
        state[_READY] -= 1
        state[_TAKEABLE] -= chains[chain, _WAITING]
        chains[chain, _IN_WORK] = 1
        begun += 1
        while chains[chain, _WAITING] and taken < ids.shape[0] and not is_full:
            ids[taken] = row
            taken += 1
            key_bytes += max(rows[row, _KEY_SIZE], 0)
            value_bytes += max(rows[row, _VALUE_SIZE], 0)
            following = rows[row, _NEXT]
            rows[row, _NEXT] = _TAKEN
            chains[chain, _FIRST] = following
            chains[chain, _WAITING] -= 1
            row = following
            is_full = row >= 0 and key_bytes + value_bytes + _size(rows, row) > _MOST_BYTES
    state[_KEY_BYTES], state[_VALUE_BYTES] = key_bytes, value_bytes
    state[_LIVE_BYTES] -= value_bytes
    return taken


@njit
def copy_rows(rows, arena, ids, facts, ends, small, content):
    """Copy taken rows into columns: `facts` their offsets and timestamps, `ends` where keys and values end, `small` the
    types of their timestamps and then a bitmap of the keys and one of the values that are there,
    `content` all keys and then all values."""
    count = ids.shape[0]
    bitmap = (count + 7) >> 3
    first_value = np.int64(0)
    for i in range(count):
        first_value += max(rows[ids[i], _KEY_SIZE], 0)
    key_to, value_to = np.int64(0), np.int64(0)
    ends[0, 0], ends[1, 0] = 0, 0
    small[count:] = 0
    for i in range(count):
        row = ids[i]
        at, key_size, value_size = rows[row, _AT], rows[row, _KEY_SIZE], rows[row, _VALUE_SIZE]
        facts[0, i], facts[1, i] = rows[row, _OFFSET], rows[row, _TIMESTAMP]
        small[i] = rows[row, _TYPE]
        if key_size >= 0:
            small[count + (i >> 3)] |= np.uint8(1 << (i & 7))
            _copy(content, key_to, arena, at, key_size)
            key_to += key_size
            at += key_size
        if value_size >= 0:
            small[count + bitmap + (i >> 3)] |= np.uint8(1 << (i & 7))
            _copy(content, first_value + value_to, arena, at, value_size)
            value_to += value_size
        ends[0, i + 1], ends[1, i + 1] = key_to, value_to


@njit
def split_newest(state, rows, ids, out):
    """Split taken rows: `out` gets the numbers of the newest row of each key, then the offsets of the others. Returns
    how many are newest. Rows without a key all count as newest."""
    last = ids.shape[0] - 1
    newest, skipped = np.int64(0), ids.shape[0]
    key_bytes, value_bytes = np.int64(0), np.int64(0)
    for i in range(ids.shape[0]):
        row = ids[i]
        if i == last or rows[row, _KEY_SIZE] < 0 or rows[ids[i + 1], _CHAIN] != rows[row, _CHAIN]:
            out[newest] = row
            newest += 1
            key_bytes += max(rows[row, _KEY_SIZE], 0)
            value_bytes += max(rows[row, _VALUE_SIZE], 0)
        else:
            skipped -= 1
            out[skipped] = rows[row, _OFFSET]
    state[_KEY_BYTES], state[_VALUE_BYTES] = key_bytes, value_bytes
    return newest


@njit
def release_rows(state, rows, chains, table, ready, ids):
    """Release all rows that were taken together: the rows after them may be taken."""
    for i in range(ids.shape[0]):
        row = ids[i]
        chain = rows[row, _CHAIN]
        if chains[chain, _IN_WORK]:  # else an earlier row of the same key has released it
            chains[chain, _IN_WORK] = 0
            waiting = chains[chain, _WAITING]
            if waiting == 0:
                if rows[row, _KEY_SIZE] >= 0:
                    _forget(chains, table, chain)
                chains[chain, _FIRST] = state[_FREE_CHAIN]
                state[_FREE_CHAIN] = chain
            else:
                # A chain with more than a lane's share of the waiting rows goes first: the partition waits for it.
                mask = ready.shape[0] - 1
                if waiting * state[_LANES] > state[_TAKEABLE]:
                    state[_READY_AT] = (state[_READY_AT] - 1) & mask
                    ready[state[_READY_AT]] = chain
                else:
                    ready[(state[_READY_AT] + state[_READY]) & mask] = chain
                state[_READY] += 1
                state[_TAKEABLE] += waiting
        state[_LIVE_BYTES] -= max(rows[row, _KEY_SIZE], 0)
        rows[row, _CHAIN] = -1
        rows[row, _NEXT] = state[_FREE_ROW]
        state[_FREE_ROW] = row


# --- settling --------------------------------------------------------------------------------------------------------


@njit
def _place_of(values, first, last, wanted):
    """The position of a value in a sorted array, or `last`. Values mostly have no gaps between them."""
    guess = first + wanted - values[first] if first < last else last
    if first <= guess < last and values[guess] == wanted:
        return guess
    low, high = first, last
    while low < high:
        middle = (low + high) >> 1
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low if low < last and values[low] == wanted else last


@njit
def clear_flags(values, flags, first, last, wanted):
    """Clear the flags of these values, which are sorted in [first, last); returns -1, or the index in `wanted` of one
    that is missing or whose flag is not set: then nothing is changed."""
    for i in range(wanted.shape[0]):
        place = _place_of(values, first, last, wanted[i])
        if place < last and flags[place]:
            flags[place] = 0
            continue
        for k in range(i):
            flags[_place_of(values, first, last, wanted[k])] = 1
        return i
    return -1


# --- more room -------------------------------------------------------------------------------------------------------


@njit
def move_rows(state, rows, old, new):
    """Move the live rows to the beginning of another arena."""
    to = np.int64(0)
    for row in range(state[_ROWS]):
        if rows[row, _CHAIN] < 0:
            continue
        size = max(rows[row, _KEY_SIZE], 0)
        if rows[row, _NEXT] != _TAKEN:
            size = _size(rows, row)
        _copy(new, to, old, rows[row, _AT], size)
        rows[row, _AT] = to
        to += size
    state[_ARENA_END] = to


@njit
def index_chains(state, rows, chains, table):
    """Fill an empty table with the chains that have a key."""
    mask = table.shape[0] - 1
    for row in range(state[_ROWS]):
        chain = rows[row, _CHAIN]
        if chain < 0 or rows[row, _KEY_SIZE] < 0 or chains[chain, _LAST] != row:
            continue
        place = chains[chain, _HASH] & mask
        while table[place]:
            place = (place + 1) & mask
        table[place] = chain + 1
