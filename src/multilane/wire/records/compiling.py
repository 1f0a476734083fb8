"""Compiles the kernels to machine code for this processor, once per machine.

Thread: any; takes seconds and imports numba, which is why its result is cached (see `loading`).
Owns: the external signature of each kernel, with plain addresses and numbers as in C; and the stubs for numba's
runtime, which is missing when the code is loaded.
Never: used if the machine code is cached.
"""

# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any, Final

import llvmlite.binding as llvm
from numba import carray, cfunc, int32, int64, types, uint8, uint64, void  # type: ignore[attr-defined, unused-ignore]

from multilane.wire.records.image import Image, target_machine
from multilane.wire.records.kernels import decode_batches, gather_headers, mark_nulls, scan_headers
from multilane.wire.records.keyed_kernels import (
    clear_flags,
    copy_rows,
    index_chains,
    keep_rows,
    move_rows,
    release_rows,
    split_newest,
    take_rows,
)
from multilane.wire.records.layout import (
    CHAIN_COLUMNS,
    COLUMNS,
    KEEP_SIZE,
    KEPT_COLUMNS,
    PLAN_COLUMNS,
    STATE_SIZE,
    TALLY_SIZE,
)
from multilane.wire.records.lz4_kernels import unlz4
from multilane.wire.records.sum_kernels import check_sums

_BYTES: Final = types.CPointer(uint8)
_INTS: Final = types.CPointer(int64)
_WORDS: Final = types.CPointer(uint64)
_ENDS: Final = types.CPointer(int32)
_RUNTIME: Final = (
    "NRT_",
    "Py",
    "_Py",
    "numba_",
)  # symbols of numba and Python, whether or not this process exports them


def _scan_headers(data, size, start, end, rows, room, found):
    result = carray(found, 3)
    result[0], result[1], result[2] = scan_headers(carray(data, size), start, end, carray(rows, (room, COLUMNS)))


def _decode_batches(
    frame, frame_size, arena, arena_size, secret, plans, planned, floor, largest,
    offsets, timestamps, keys, values, headers, room, tally, state,
):  # fmt: skip
    columns = (
        carray(offsets, room),
        carray(timestamps, room),
        carray(keys, (room, 2)),
        carray(values, (room, 2)),
        carray(headers, room),
    )
    decode_batches(
        carray(frame, frame_size),
        carray(arena, arena_size),
        secret,
        carray(plans, (planned, PLAN_COLUMNS)),
        floor,
        largest,
        columns,
        carray(tally, TALLY_SIZE),
        carray(state, STATE_SIZE),
    )


def _mark_nulls(views, rows, bitmap, size):
    mark_nulls(carray(views, (rows, 2)), carray(bitmap, size))


def _gather_headers(first, first_size, second, second_size, spans, rows, out, room, moved):
    return gather_headers(
        carray(first, first_size),
        carray(second, second_size),
        carray(spans, rows),
        carray(out, room),
        carray(moved, rows),
    )


def _unlz4(data, size, spans, count, out, room, cap, places, done, result):
    ended = carray(result, 3)
    ended[0], ended[1], ended[2] = unlz4(
        carray(data, size), carray(spans, (count, 2)), carray(out, room), cap, carray(places, (count, 2)), done
    )


def _check_sums(data, size, rows, count, floor, function):
    return check_sums(carray(data, size), carray(rows, (count, COLUMNS)), floor, function)


# --- kept rows: the table has room for twice as many chains as there can be, the ring of ready chains for all ---


def _keep_rows(
    state, rows, chains, table, ready, capacity, arena, arena_size,
    offsets, timestamps, segments, segment_count, keys, values, reach, key_valid, key_bits, value_valid, value_bits,
    first, first_size, second, second_size, fresh, fresh_count, start, stop,
):  # fmt: skip
    return keep_rows(
        carray(state, KEEP_SIZE),
        carray(rows, (capacity, KEPT_COLUMNS)),
        carray(chains, (capacity, CHAIN_COLUMNS)),
        carray(table, 2 * capacity),
        carray(ready, capacity),
        carray(arena, arena_size),
        (
            carray(offsets, reach),
            carray(timestamps, reach),
            carray(segments, (segment_count, 3)),
            carray(keys, (reach, 2)),
            carray(values, (reach, 2)),
        ),
        (carray(key_valid, key_bits), carray(value_valid, value_bits)),
        (carray(first, first_size), carray(second, second_size)),
        carray(fresh, fresh_count),
        start,
        stop,
    )


def _take_rows(state, rows, chains, ready, capacity, ids, count, most_chains):
    return take_rows(
        carray(state, KEEP_SIZE),
        carray(rows, (capacity, KEPT_COLUMNS)),
        carray(chains, (capacity, CHAIN_COLUMNS)),
        carray(ready, capacity),
        carray(ids, count),
        most_chains,
    )


def _copy_rows(rows, capacity, arena, arena_size, ids, count, facts, ends, small, small_size, content, content_size):
    copy_rows(
        carray(rows, (capacity, KEPT_COLUMNS)),
        carray(arena, arena_size),
        carray(ids, count),
        carray(facts, (2, count)),
        carray(ends, (2, count + 1)),
        carray(small, small_size),
        carray(content, content_size),
    )


def _split_newest(state, rows, capacity, ids, count, out):
    return split_newest(
        carray(state, KEEP_SIZE),
        carray(rows, (capacity, KEPT_COLUMNS)),
        carray(ids, count),
        carray(out, count),
    )


def _release_rows(state, rows, chains, table, ready, capacity, ids, count):
    release_rows(
        carray(state, KEEP_SIZE),
        carray(rows, (capacity, KEPT_COLUMNS)),
        carray(chains, (capacity, CHAIN_COLUMNS)),
        carray(table, 2 * capacity),
        carray(ready, capacity),
        carray(ids, count),
    )


def _clear_flags(values, flags, first, last, wanted, count):
    return clear_flags(carray(values, last), carray(flags, last), first, last, carray(wanted, count))


def _move_rows(state, rows, capacity, old, old_size, new, new_size):
    move_rows(
        carray(state, KEEP_SIZE), carray(rows, (capacity, KEPT_COLUMNS)), carray(old, old_size), carray(new, new_size)
    )


def _index_chains(state, rows, chains, table, capacity):
    index_chains(
        carray(state, KEEP_SIZE),
        carray(rows, (capacity, KEPT_COLUMNS)),
        carray(chains, (capacity, CHAIN_COLUMNS)),
        carray(table, 2 * capacity),
    )


_ENTRIES: Final[dict[str, tuple[Any, Callable[..., Any]]]] = {
    "scan_headers": (void(_BYTES, int64, int64, int64, _INTS, int64, _INTS), _scan_headers),
    "decode_batches": (
        void(
            _BYTES, int64, _BYTES, int64, uint64, _INTS, int64, int64, int64,
            _INTS, _INTS, _WORDS, _WORDS, _INTS, int64, _INTS, _INTS,
        ),
        _decode_batches,
    ),
    "mark_nulls": (void(_WORDS, int64, _BYTES, int64), _mark_nulls),
    "gather_headers": (int64(_BYTES, int64, _BYTES, int64, _INTS, int64, _BYTES, int64, _INTS), _gather_headers),
    "check_sums": (int64(_BYTES, int64, _INTS, int64, int64, int64), _check_sums),
    "unlz4": (void(_BYTES, int64, _INTS, int64, _BYTES, int64, int64, _INTS, int64, _INTS), _unlz4),
    "keep_rows": (
        int64(
            *[_INTS] * 5, int64, _BYTES, int64,
            _INTS, _INTS, _INTS, int64, _WORDS, _WORDS, int64, _BYTES, int64, _BYTES, int64,
            _BYTES, int64, _BYTES, int64, _BYTES, int64, int64, int64,
        ),
        _keep_rows,
    ),
    "take_rows": (int64(_INTS, _INTS, _INTS, _INTS, int64, _INTS, int64, int64), _take_rows),
    "copy_rows": (
        void(_INTS, int64, _BYTES, int64, _INTS, int64, _INTS, _ENDS, _BYTES, int64, _BYTES, int64),
        _copy_rows,
    ),
    "split_newest": (int64(_INTS, _INTS, int64, _INTS, int64, _INTS), _split_newest),
    "release_rows": (void(*[_INTS] * 5, int64, _INTS, int64), _release_rows),
    "clear_flags": (int64(_INTS, _BYTES, int64, int64, _INTS, int64), _clear_flags),
    "move_rows": (void(_INTS, _INTS, int64, _BYTES, int64, _BYTES, int64), _move_rows),
    "index_chains": (void(_INTS, _INTS, _INTS, _INTS, int64), _index_chains),
}  # fmt: skip


def compile_kernels() -> Image:
    objects = []
    names = {}
    foreign: set[str] = set()
    machine = target_machine()
    for name, (signature, function) in _ENTRIES.items():
        entry = cfunc(signature)(function)
        module = llvm.parse_assembly(entry.inspect_llvm())
        declared = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.")]
        declared += [v.name for v in module.global_variables if v.is_declaration]
        foreign.update(declared)
        objects.append(bytes(machine.emit_object(module)))
        names[name] = entry.native_name
    objects.append(bytes(machine.emit_object(llvm.parse_assembly(_ends(sorted(foreign))))))
    return Image(tuple(objects), names)


def _ends(symbols: Iterable[str]) -> str:
    """Stubs for the functions of numba's error paths. No kernel raises, so they are never called; a call aborts.

    They are defined among the kernels' own objects, where no other code finds them. Functions of the C library are not
    replaced.
    """
    process = ctypes.CDLL(None)
    ours = [s for s in symbols if s.startswith(_RUNTIME) or not hasattr(process, s)]
    ends = [f'define void @"{symbol}"() {{\n  call void @abort()\n  unreachable\n}}\n' for symbol in ours]
    return "declare void @abort()\n" + "".join(ends)
