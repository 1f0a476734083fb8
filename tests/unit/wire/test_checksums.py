"""Checksums of a span: by the library's C function without the GIL, or by its Python function."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import google_crc32c
import pytest

from batch_builder import Batch, Rec, join, rows
from multilane.wire.records import checksums
from multilane.wire.records.batches import scan
from span_reading import frame_of

LARGE = [Rec(i, value=bytes([i]) * 100_000) for i in range(4)]  # more than is summed with the GIL


@pytest.fixture(params=["quick", "slow"])
def way(request, monkeypatch):
    if request.param == "slow":
        monkeypatch.setattr(checksums, "_function", lambda: None)
    return request.param


def first_wrong(*batches: Batch, floor: int = 0) -> int | None:
    data = frame_of(join(batches))
    return checksums.first_wrong(data, scan(data, 0, data.size, 0).rows, floor)


@pytest.mark.parametrize("records", [[], rows(1), LARGE], ids=["empty", "one", "large"])
def test_the_first_wrong_one(way, records):
    good = [Batch(records, 10 * i) for i in range(4)]
    assert first_wrong(*good) is None
    for wrong in range(4):
        mixed = [b.with_(crc=0xFFFFFFFF) if i >= wrong else b for i, b in enumerate(good)]
        assert first_wrong(*mixed) == wrong


def test_one_that_ends_below_the_floor_is_not_looked_at(way):
    batches = [Batch(rows(3), crc=1), Batch(rows(3), 3, crc=1), Batch(rows(3), 6)]
    assert [first_wrong(*batches, floor=floor) for floor in (2, 3, 5, 6)] == [0, 1, 1, None]


def test_any_byte_behind_the_checksum_counts(way):
    data = frame_of(join([Batch(rows(2))]))
    table = scan(data, 0, data.size, 0).rows
    for at in range(21, data.size):
        data[at] ^= 1
        assert checksums.first_wrong(data, table, 0) == 0
        data[at] ^= 1
    assert checksums.first_wrong(data, table, 0) is None


def test_nothing_to_check(way):
    data = frame_of(join([Batch(rows(2))]))
    assert checksums.first_wrong(data, scan(data, 0, data.size, 0).rows[:0], 0) is None


def test_the_function_is_found():
    address = checksums._function()
    assert address is not None
    function = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)(address)
    assert function(b"some bytes", 10) == google_crc32c.value(b"some bytes")


@pytest.mark.parametrize("module", ["none", "no file", "no symbol", "another function"])
def test_a_library_that_is_built_otherwise(module, monkeypatch):
    def imported(_name):
        if module == "none":
            raise ImportError("no extension")
        return SimpleNamespace(__file__="/nowhere" if module == "no file" else None)

    monkeypatch.setattr(checksums.importlib, "import_module", imported)
    if module == "another function":
        wrong = ctypes.CFUNCTYPE(ctypes.c_uint32, ctypes.c_char_p, ctypes.c_size_t)(lambda _data, _size: 7)
        monkeypatch.setattr(checksums.ctypes, "CDLL", lambda _path: SimpleNamespace(crc32c_value=wrong))
    assert checksums._function.__wrapped__() is None
