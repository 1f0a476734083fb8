"""Compiles the kernels to machine code for this processor, once per machine.

Thread: any; takes seconds and imports numba, which is why its result is kept (see `loading`).
Owns: how each kernel is called from outside: by plain addresses and numbers, as C would; and what stands in for numba's
runtime, which is not there when the code is loaded.
Never: used where the machine code is at hand.
"""

# ruff: noqa: ANN001, ANN202, PLR0913, PLR0917
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from typing import Any, Final

import llvmlite.binding as llvm
from numba import carray, cfunc, int64, types, uint8, uint64, void  # type: ignore[attr-defined, unused-ignore]

from multilane.wire.records.image import Image, target_machine
from multilane.wire.records.kernels import decode_batches, gather_headers, mark_nulls, scan_headers
from multilane.wire.records.layout import COLUMNS, PLAN_COLUMNS, STATE_SIZE, TALLY_SIZE
from multilane.wire.records.lz4_kernels import unlz4
from multilane.wire.records.sum_kernels import check_sums

_BYTES: Final = types.CPointer(uint8)
_INTS: Final = types.CPointer(int64)
_WORDS: Final = types.CPointer(uint64)
_RUNTIME: Final = ("NRT_", "Py", "_Py", "numba_")  # numba's and Python's, whether or not this process shows them


def _scan_headers(data, size, start, end, rows, room, found):
    told = carray(found, 3)
    told[0], told[1], told[2] = scan_headers(carray(data, size), start, end, carray(rows, (room, COLUMNS)))


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


def _unlz4(data, size, spans, count, out, room, cap, places, done, told):
    ended = carray(told, 3)
    ended[0], ended[1], ended[2] = unlz4(
        carray(data, size), carray(spans, (count, 2)), carray(out, room), cap, carray(places, (count, 2)), done
    )


def _check_sums(data, size, rows, count, floor, function):
    return check_sums(carray(data, size), carray(rows, (count, COLUMNS)), floor, function)


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
    """What numba's error paths would call. No kernel raises, so nobody comes there; whoever does ends loudly.

    They are defined among the kernels' own objects, where nobody else finds them. What the C library has is left to it.
    """
    process = ctypes.CDLL(None)
    ours = [s for s in symbols if s.startswith(_RUNTIME) or not hasattr(process, s)]
    ends = [f'define void @"{symbol}"() {{\n  call void @abort()\n  unreachable\n}}\n' for symbol in ours]
    return "declare void @abort()\n" + "".join(ends)
