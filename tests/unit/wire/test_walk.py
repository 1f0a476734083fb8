"""The length walk: every kind of length, marker and tag, at its edges."""

from __future__ import annotations

from dataclasses import field, make_dataclass
from typing import Any
from uuid import UUID

import pytest

from multilane.broker_codes import BROKER_CODES
from multilane.errors import FrameError
from multilane.wire.walk import (
    Findings,
    compile_schema,
    read_uvarint,
    walk,
    walk_tags,
    without_unknown_tags,
    write_uvarint,
)


def _schema(name: str, flexible: bool, *fields: tuple[str, Any, dict[str, object]]) -> type:
    """A class as kio makes them: types in the annotations, wire types and tags in the metadata."""
    members = [(field_name, kind, field(metadata=metadata)) for field_name, kind, metadata in fields]
    return make_dataclass(name, members, namespace={"__flexible__": flexible})


Legacy = _schema(
    "Legacy",
    False,
    ("name", str, {"kafka_type": "string"}),
    ("note", str | None, {"kafka_type": "string"}),
    ("blob", bytes, {"kafka_type": "bytes"}),
    ("ids", tuple[int, ...] | None, {"kafka_type": "int32"}),
)
Point = _schema("Point", True, ("code", int, {"kafka_type": "error_code"}), ("x", int, {"kafka_type": "int64"}))
Flexible = _schema(
    "Flexible",
    True,
    ("name", str | None, {"kafka_type": "string"}),
    ("points", tuple[Point, ...], {}),  # type: ignore[valid-type]
    ("best", Point | None, {}),
    ("topic", UUID | None, {"kafka_type": "uuid", "tag": 1}),
    ("extra", Point, {"tag": 3}),
    ("label", str | None, {"kafka_type": "string", "tag": 5}),
)
LEGACY_OK = b"\0\1a" + b"\xff\xff" + b"\0\0\0\2bb" + b"\0\0\0\2" + b"\0" * 8
POINT = b"\0\0" + b"\0" * 8 + b"\0"
FLEXIBLE_OK = b"\2a" + b"\2" + POINT + b"\xff" + b"\0"


def _walk(kind: type, data: bytes) -> Findings:
    return walk(compile_schema(kind), data, 0)


@pytest.mark.parametrize("data", [LEGACY_OK, b"\0\0\xff\xff\0\0\0\0\xff\xff\xff\xff"])
def test_legacy_message_is_accepted(data: bytes) -> None:
    assert _walk(Legacy, data).edits == []


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\xff\xff" + LEGACY_OK[3:], id="null where the schema has none"),
        pytest.param(b"\xff\xfe" + LEGACY_OK[3:], id="string length -2"),
        pytest.param(b"\x7f\xff" + LEGACY_OK[2:], id="string longer than the frame"),
        pytest.param(LEGACY_OK[:3] + b"\xff\xfe" + LEGACY_OK[5:], id="nullable string length -2"),
        pytest.param(LEGACY_OK[:5] + b"\xff\xff\xff\xff" + LEGACY_OK[11:], id="null bytes"),
        pytest.param(LEGACY_OK[:5] + b"\x7f\xff\xff\xff" + LEGACY_OK[9:], id="bytes of 2 GB"),
        pytest.param(LEGACY_OK[:11] + b"\x7f\xff\xff\xff" + LEGACY_OK[15:], id="array of 2^31-1"),
        pytest.param(LEGACY_OK[:11] + b"\0\0\0\3" + LEGACY_OK[15:], id="array of one too many"),
        pytest.param(LEGACY_OK[:11] + b"\xff\xff\xff\xfe", id="array length -2"),
        pytest.param(LEGACY_OK + b"\0", id="a byte after the end"),
        pytest.param(LEGACY_OK[:1], id="half a length"),
        pytest.param(LEGACY_OK[:13], id="half an array length"),
        pytest.param(b"", id="nothing"),
    ],
)
def test_legacy_message_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        _walk(Legacy, data)


@pytest.mark.parametrize(
    "data",
    [
        FLEXIBLE_OK,
        b"\0\1\xff\0",
        b"\0\1\1" + POINT + b"\0",
        b"\0\1\xff\2" + b"\1\x10" + b"u" * 16 + b"\3\x0b" + POINT,
        b"\0\1\xff\1" + b"\5\3" + b"\3ab",
        pytest.param(b"\x80\0\x81\0\xff\x80\0", id="varints longer than they need be"),
    ],
)
def test_flexible_message_is_accepted(data: bytes) -> None:
    assert without_unknown_tags(data, _walk(Flexible, data)) is data


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"\0\0\xff\0", id="null array"),
        pytest.param(b"\0\xff\xff\xff\xff\x0f\xff\0", id="array of 2^32-2"),
        pytest.param(b"\0\xff\xff\xff\x7f\xff\0", id="array of 2^28-2"),
        pytest.param(b"\0\x80\x80\x80\x80\x80\1\xff\0", id="varint of six bytes"),
        pytest.param(b"\0\1\0" + POINT + b"\0", id="null marker 0"),
        pytest.param(b"\0\1\xfe" + POINT + b"\0", id="null marker -2"),
        pytest.param(b"\0\1\xff\2\3\x0b" + POINT + b"\1\x10" + b"u" * 16, id="tags out of order"),
        pytest.param(b"\0\1\xff\2\3\x0b" + POINT + b"\3\x0b" + POINT, id="tag twice"),
        pytest.param(b"\0\1\xff\1\1\x11" + b"u" * 17, id="tag says more than it holds"),
        pytest.param(b"\0\1\xff\1\1\x0f" + b"u" * 16, id="tag says less than it holds"),
        pytest.param(b"\0\1\xff\1\x09\x7fabc", id="unknown tag longer than the frame"),
        pytest.param(b"\0\1\xff\xff\xff\xff\xff\7", id="2^31-1 tags"),
        pytest.param(b"\0\1\xff\1", id="tag missing"),
        pytest.param(b"\0\1\xff\1\5\1\0", id="tag present and null"),
        pytest.param(b"\0\1\xff", id="tag count missing"),
        pytest.param(b"\0\1", id="null marker missing"),
    ],
)
def test_flexible_message_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        _walk(Flexible, data)


@pytest.mark.parametrize(
    ("kind", "data", "says"),
    [
        (
            Legacy,
            LEGACY_OK[:11] + b"\x7f\xff\xff\xff" + b"\0" * 8,
            "array of 2147483647 elements at byte 15, but 8 bytes",
        ),
        (Flexible, b"\0\xff\xff\xff\xff\7" + b"\0" * 9, "array of 2147483646 elements at byte 6, but 9 bytes"),
        (Flexible, b"\0\1\xff\xff\xff\xff\xff\7" + b"\0" * 9, "2147483647 tagged fields at byte 3, but 9 bytes"),
    ],
)
def test_a_count_that_lies_is_refused_before_its_first_element(kind: type, data: bytes, says: str) -> None:
    with pytest.raises(FrameError, match=says):
        _walk(kind, data)


def test_unknown_tags_are_left_out_at_every_depth_and_sizes_follow() -> None:
    point = POINT[:-1] + b"\1\7\2zz"
    data = b"\0" + b"\2" + point + b"\xff" + b"\3" + b"\0\1!" + b"\3\x0f" + point + b"\x81\1\0"
    plain = b"\0" + b"\2" + POINT + b"\xff" + b"\1" + b"\3\x0b" + POINT
    assert without_unknown_tags(data, _walk(Flexible, data)) == plain
    assert _walk(Flexible, plain).edits == []


def test_unknown_error_codes_are_found_wherever_they_are() -> None:
    odd = b"\x03\xe7" + POINT[2:]
    data = b"\0\2" + odd + b"\1" + odd + b"\1\3\x0b" + odd
    assert _walk(Flexible, data).codes == [999, 999, 999]


def test_every_known_error_code_passes() -> None:
    for code in (0, *BROKER_CODES):
        point = code.to_bytes(2, "big", signed=True) + POINT[2:]
        assert _walk(Point, point).codes == []


@pytest.mark.parametrize("value", [0, 1, 127, 128, 16383, 16384, 2**21, 2**28, 2**31 - 1])
def test_uvarint_round_trip(value: int) -> None:
    data = write_uvarint(value)
    assert read_uvarint(data, 0, len(data)) == (value, len(data))


@pytest.mark.parametrize(
    "data", [b"", b"\x80", b"\xff\xff\xff\xff", b"\xff\xff\xff\xff\x08", b"\xff\xff\xff\xff\xff\1"]
)
def test_uvarint_is_refused(data: bytes) -> None:
    with pytest.raises(FrameError):
        read_uvarint(data, 0, len(data))


def test_uvarint_does_not_read_beyond_its_end() -> None:
    with pytest.raises(FrameError):
        read_uvarint(b"\x80\1", 0, 1)


def test_header_tags_are_skipped() -> None:
    assert walk_tags(b"....\2\0\1a\5\0rest", 4) == 10


@pytest.mark.parametrize(("kind", "metadata"), [(int, {"kafka_type": "int24"}), (int, {}), (int | str, {})])
def test_a_type_without_a_walk_is_an_error_when_compiling(kind: Any, metadata: dict[str, object]) -> None:
    odd = _schema("Odd", False, ("value", kind, metadata))
    with pytest.raises(TypeError, match="no walk for"):
        compile_schema(odd)
