"""A length walk over a Kafka protocol message: proves that bytes fit their schema before a parser sees them.

Thread: none (pure).

Owns the programs, one per schema class, compiled once from the class's dataclass fields. A program checks every length,
count, null marker and tag of a message against the bytes that remain, so that a false length cannot make the parser
allocate, loop or abort. It also finds two things that the protocol allows and the parser rejects: error codes newer
than our tables, and tagged fields newer than the schema.

Never reads a value that is not a length, never allocates by a length, never reads record bytes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from struct import Struct
from types import NoneType, UnionType
from typing import Any, Final, NamedTuple, TypeAlias, Union, get_args, get_origin

from multilane.broker_codes import BROKER_CODES
from multilane.errors import FrameError

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_LARGEST: Final = 2**31 - 1
_KNOWN_CODES: Final = frozenset(BROKER_CODES) | {0}
_FIXED_SIZES: Final[Mapping[str, int]] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float64": 8,
    "uuid": 16,
    "error_code": 2,
    "timedelta_i32": 4,
    "timedelta_i64": 8,
    "datetime_i64": 8,
}
_BLOBS: Final = frozenset({"string", "bytes", "records"})


class Findings:
    """Legal content that is newer than this client.

    `codes` are error codes missing from our tables. `edits` are (start, end, replacement) of byte ranges; applied, they
    remove unknown tagged fields from the message.
    """

    __slots__ = ("codes", "edits")

    def __init__(self) -> None:
        self.codes: list[int] = []
        self.edits: list[tuple[int, int, bytes]] = []


WalkStep: TypeAlias = Callable[[bytes, int, int, Any, Findings], int]
WalkSteps: TypeAlias = tuple[tuple[WalkStep, Any], ...]


class Program(NamedTuple):
    """The steps that walk one schema class, and the fewest bytes that can satisfy them."""

    steps: WalkSteps
    least: int


class _Elements(NamedTuple):
    """The elements of an array; no steps if they are fixed bytes that need no check."""

    nullable: bool
    steps: WalkSteps
    least: int


def walk(program: Program, data: bytes, position: int) -> Findings:
    """Walk one message that must fill `data` from `position` to its end; FrameError if it does not."""
    findings = Findings()
    end = len(data)
    stop = _run(program.steps, data, position, end, findings)
    if stop != end:
        raise FrameError(f"{end - stop} bytes after the end of the message at byte {stop}")
    return findings


def walk_tags(data: bytes, position: int) -> int:
    """Walk a section of tagged fields without known tags; returns its end."""
    return _tags(data, position, len(data), {}, Findings())


def without_unknown_tags(data: bytes, findings: Findings) -> bytes:
    """The message without unknown tags, as an older broker would send it; `data` itself if it has none."""
    if not findings.edits:
        return data
    pieces: list[bytes] = []
    position = 0
    for start, end, replacement in sorted(findings.edits):
        pieces += (data[position:start], replacement)
        position = end
    pieces.append(data[position:])
    return b"".join(pieces)


def read_uvarint(data: bytes | memoryview, position: int, end: int) -> tuple[int, int]:
    """An unsigned varint of at most five bytes and 31 bits, and the position after it."""
    if position < end and data[position] < 0x80:
        return data[position], position + 1
    value = shift = 0
    for at in range(position, min(position + 5, end)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > _LARGEST:
                raise FrameError(f"varint {value} at byte {position} is larger than any length can be")
            return value, at + 1
        shift += 7
    raise FrameError(f"varint at byte {position} does not end")


def write_uvarint(value: int) -> bytes:
    """The shortest varint of a value."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


# --- steps: (data, position, end, argument, findings) -> position after --------------------------------------------


def _run(steps: WalkSteps, data: bytes, position: int, end: int, findings: Findings) -> int:
    for step, argument in steps:
        position = step(data, position, end, argument, findings)
    return position


def _advance(position: int, size: int, end: int, what: str) -> int:
    if size > end - position:
        raise FrameError(f"{what} of {size} bytes at byte {position}, but {end - position} remain")
    return position + size


def _fixed(data: bytes, position: int, end: int, argument: tuple[int, tuple[int, ...]], findings: Findings) -> int:
    size, code_offsets = argument
    after = position + size
    if after > end:
        raise FrameError(f"fixed fields of {size} bytes at byte {position}, but {end - position} remain")
    for offset in code_offsets:
        code = _INT16.unpack_from(data, position + offset)[0]
        if code not in _KNOWN_CODES:
            findings.codes.append(code)
    return after


def _short_blob(data: bytes, position: int, end: int, nullable: bool, findings: Findings) -> int:
    after = _advance(position, 2, end, "length")
    return _blob(after, _INT16.unpack_from(data, position)[0], end, nullable)


def _long_blob(data: bytes, position: int, end: int, nullable: bool, findings: Findings) -> int:
    after = _advance(position, 4, end, "length")
    return _blob(after, _INT32.unpack_from(data, position)[0], end, nullable)


def _compact_blob(data: bytes, position: int, end: int, nullable: bool, findings: Findings) -> int:
    length, after = read_uvarint(data, position, end)
    return _blob(after, length - 1, end, nullable)


def _blob(position: int, length: int, end: int, nullable: bool) -> int:
    if length >= 0:
        return _advance(position, length, end, "string or bytes")
    if length == -1 and nullable:
        return position
    raise FrameError(f"length {length} before byte {position} is not allowed")


def _array(data: bytes, position: int, end: int, argument: _Elements, findings: Findings) -> int:
    after = _advance(position, 4, end, "array length")
    return _elements(data, after, end, (_INT32.unpack_from(data, position)[0], argument), findings)


def _compact_array(data: bytes, position: int, end: int, argument: _Elements, findings: Findings) -> int:
    count, after = read_uvarint(data, position, end)
    return _elements(data, after, end, (count - 1, argument), findings)


def _elements(data: bytes, position: int, end: int, argument: tuple[int, _Elements], findings: Findings) -> int:
    count, (nullable, steps, least) = argument
    if count < 0:
        if count == -1 and nullable:
            return position
        raise FrameError(f"array length {count} before byte {position} is not allowed")
    if count * least > end - position:
        raise FrameError(f"array of {count} elements at byte {position}, but {end - position} bytes remain")
    if not steps:
        return position + count * least
    for _ in range(count):
        for step, inner in steps:
            position = step(data, position, end, inner, findings)
    return position


def _nullable_struct(data: bytes, position: int, end: int, steps: WalkSteps, findings: Findings) -> int:
    after = _advance(position, 1, end, "null marker")
    marker = data[position]
    if marker == 0xFF:
        return after
    if marker != 1:
        raise FrameError(f"null marker {marker} at byte {position} is neither -1 nor 1")
    return _run(steps, data, after, end, findings)


def _tags(data: bytes, position: int, end: int, known: Mapping[int, WalkSteps], findings: Findings) -> int:
    if position < end and data[position] == 0:
        return position + 1
    count, after = read_uvarint(data, position, end)
    if count * 2 > end - after:
        raise FrameError(f"{count} tagged fields at byte {position}, but {end - after} bytes remain")
    head, previous, unknown = (position, after), -1, 0
    for _ in range(count):
        start = after
        tag, at = read_uvarint(data, start, end)
        if tag <= previous:
            raise FrameError(f"tag {tag} at byte {start} is out of order")
        previous = tag
        steps = known.get(tag)
        after = _skip_tag(data, at, end) if steps is None else _known_tag(data, at, end, steps, findings)
        if steps is None:
            unknown += 1
            findings.edits.append((start, after, b""))
    if unknown:
        findings.edits.append((*head, write_uvarint(count - unknown)))
    return after


def _skip_tag(data: bytes, position: int, end: int) -> int:
    size, after = read_uvarint(data, position, end)
    return _advance(after, size, end, "tagged field")


def _known_tag(data: bytes, position: int, end: int, steps: WalkSteps, findings: Findings) -> int:
    size, start = read_uvarint(data, position, end)
    limit = _advance(start, size, end, "tagged field")
    before = len(findings.edits)
    stop = _run(steps, data, start, limit, findings)
    if stop != limit:
        raise FrameError(f"tagged field at byte {position} has {size} bytes, but its fields take {stop - start}")
    inner = findings.edits[before:]
    if inner:
        shrunk = sum(last - first - len(replacement) for first, last, replacement in inner)
        findings.edits.append((position, start, write_uvarint(size - shrunk)))
    return limit


# --- compiling a schema class ----------------------------------------------------------------------------------------

# Two threads may compile the same class at once; both programs are equal, and one of them stays.
_PROGRAMS: Final[dict[type, Program]] = {}


def compile_schema(kind: type) -> Program:
    """The program of a schema class: a dataclass whose fields carry `kafka_type` and `tag` in their metadata."""
    program = _PROGRAMS.get(kind)
    if program is None:
        program = _PROGRAMS[kind] = _compile_struct(kind)
    return program


def _compile_struct(kind: type) -> Program:
    flexible: bool = kind.__flexible__  # type: ignore[attr-defined]
    steps: list[tuple[WalkStep, Any]] = []
    least = 0
    tagged: dict[int, WalkSteps] = {}
    for field in dataclasses.fields(kind):
        tag = field.metadata.get("tag")
        # The client id keeps its old format in the flexible request header (KIP-511).
        compact = flexible and not (kind.__name__ == "RequestHeader" and field.name == "client_id")
        program = _compile_field(field, compact, tagged=tag is not None)
        if tag is not None:
            tagged[tag] = program.steps
        else:
            steps.extend(program.steps)
            least += program.least
    if flexible:
        steps.append((_tags, tagged))
        least += 1
    return Program(_joined(steps), least)


def _compile_field(field: dataclasses.Field[Any], compact: bool, *, tagged: bool) -> Program:
    inner, nullable = _without_none(field.type)
    # A tagged field is absent instead of null.
    nullable = nullable and not tagged
    if get_origin(inner) is not tuple:
        return _compile_value(inner, field.metadata.get("kafka_type"), compact, nullable)
    element = _compile_value(get_args(inner)[0], field.metadata.get("kafka_type"), compact, False)
    step: WalkStep = _compact_array if compact else _array
    plain = len(element.steps) == 1 and element.steps[0][0] is _fixed and not element.steps[0][1][1]
    elements = _Elements(nullable, () if plain else element.steps, element.least)
    return Program(((step, elements),), 1 if compact else 4)


def _compile_value(kind: object, kafka_type: str | None, compact: bool, nullable: bool) -> Program:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        program = compile_schema(kind)
        return Program(((_nullable_struct, program.steps),), 1) if nullable else program
    if kafka_type in _BLOBS:
        if compact:
            return Program(((_compact_blob, nullable),), 1)
        short = kafka_type == "string"
        return Program(((_short_blob if short else _long_blob, nullable),), 2 if short else 4)
    if kafka_type is None or kafka_type not in _FIXED_SIZES:
        raise TypeError(f"no walk for a field of type {kafka_type!r} ({kind!r})")
    size = _FIXED_SIZES[kafka_type]
    return Program(((_fixed, (size, (0,) if kafka_type == "error_code" else ())),), size)


def _without_none(kind: object) -> tuple[object, bool]:
    if get_origin(kind) not in (UnionType, Union):
        return kind, False
    arms = [arm for arm in get_args(kind) if arm is not NoneType]
    if len(arms) != 1:
        raise TypeError(f"no walk for a union of {arms!r}")
    return arms[0], True


def _joined(steps: list[tuple[WalkStep, Any]]) -> WalkSteps:
    """Merges neighbouring fixed fields into one step, since most of a message consists of them."""
    joined: list[tuple[WalkStep, Any]] = []
    for step, argument in steps:
        if step is _fixed and joined and joined[-1][0] is _fixed:
            size, offsets = joined[-1][1]
            joined[-1] = (_fixed, (size + argument[0], offsets + tuple(size + offset for offset in argument[1])))
        else:
            joined.append((step, argument))
    return tuple(joined)
