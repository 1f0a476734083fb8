"""The only module that calls kio: requests to frames, frames to responses.

Thread: none (pure).

Owns the list of APIs that this client uses and the framing around kio's entities. A response frame starts at its
correlation id; the four length bytes before it belong to the connection. Every frame is walked against its schema
before kio reads it (see `wire.walk`), because kio's native reader trusts lengths enough to abort the process.

Never reads a Fetch response in normal use (`wire.fetch` does, without copying records), never keeps state.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cache
from importlib import import_module
from io import BytesIO
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import multilane.wire.kio_alone  # noqa: F401 - before kio

# isort: split
from kio.serial import entity_reader, entity_writer
from kio.serial.errors import SerialError

from multilane.errors import FrameError, UnknownBrokerCode
from multilane.wire.walk import compile_schema, walk, walk_tags, without_unknown_tags

if TYPE_CHECKING:
    import numpy as np
    from kio.static.protocol import RequestPayload

    ResponseBytes: TypeAlias = memoryview | np.ndarray[Any, np.dtype[np.uint8]] | bytes | bytearray

T = TypeVar("T")

_INT32: Final = Struct(">i")
_LEAST_FRAME: Final = 4


class ApiKey(IntEnum):
    """The APIs that this client uses, by their numbers in the protocol."""

    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    OFFSET_FOR_LEADER_EPOCH = 23
    DESCRIBE_CONFIGS = 32
    SASL_AUTHENTICATE = 36
    DESCRIBE_CLUSTER = 60
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    DESCRIBE_TOPIC_PARTITIONS = 75


# The package of each API below kio.schema; its classes are the same words in camel case.
KIO_NAMES: Final[Mapping[ApiKey, str]] = {api: api.name.lower() for api in ApiKey}


def request_type(api_key: ApiKey, version: int) -> type[Any]:
    """kio's request class; its module is imported at the first use of this version."""
    return _load(ApiKey(api_key), version, "request")


def response_type(request: type[Any]) -> type[Any]:
    """The class that answers a request class."""
    return _load(ApiKey(request.__api_key__), request.__version__, "response")


@cache
def _load(api: ApiKey, version: int, side: str) -> type[Any]:
    name = KIO_NAMES[api]
    module = import_module(f"kio.schema.{name}.v{int(version)}.{side}")
    kind: type[Any] = getattr(module, "".join(word.capitalize() for word in (*name.split("_"), side)))
    return kind


def encode_request(request: RequestPayload, correlation_id: int, client_id: str | None) -> bytes:
    """A kio request as a whole frame: length, header, body."""
    kind = type(request)
    header: type[Any] = kind.__header_schema__
    out = BytesIO()
    out.write(b"\0\0\0\0")
    entity_writer(header)(
        out,
        header(
            request_api_key=kind.__api_key__,
            request_api_version=kind.__version__,
            correlation_id=correlation_id,
            client_id=client_id,
        ),
    )
    entity_writer(kind)(out, request)
    view = out.getbuffer()
    _INT32.pack_into(view, 0, len(view) - 4)
    view.release()
    return out.getvalue()


def decode_response(kind: type[T], frame: ResponseBytes, correlation_id: int) -> T:
    """The response in a frame that starts at its correlation id.

    Raises FrameError if the frame is not exactly one such response, UnknownBrokerCode if it contains an error code that
    this client does not know. Tagged fields newer than the schema are left out. The frame may be reused afterwards.
    """
    # A copy, because the receive buffer is writable: kio must read the same bytes that the walk checked.
    data = bytes(frame)
    check_correlation(data, correlation_id)
    what = f"{kind.__name__} v{kind.__version__}"  # type: ignore[attr-defined]
    try:
        body = walk_response_header(kind, data)
        findings = walk(compile_schema(kind), data, body)
    except FrameError as error:
        raise FrameError(f"{what}: {error}") from None
    if findings.codes:
        raise UnknownBrokerCode(findings.codes[0], what)
    return _read(kind, without_unknown_tags(data, findings), body, what)


def _read(kind: type[T], data: bytes, position: int, what: str) -> T:
    try:
        entity, size = entity_reader(kind)(data, position)  # type: ignore[type-var]
    except (SerialError, ValueError, LookupError, ArithmeticError, TypeError) as error:
        # kio still checks values: text that is not UTF-8, booleans, times out of range.
        raise FrameError(f"{what}: {error}") from error
    if position + size != len(data):
        raise FrameError(f"{what}: read {size} of {len(data) - position} bytes")
    return entity


def check_correlation(data: bytes | memoryview, correlation_id: int) -> None:
    """A frame must answer the oldest open request, else the connection is out of step."""
    if len(data) < _LEAST_FRAME:
        raise FrameError(f"a frame of {len(data)} bytes has no correlation id")
    found = _INT32.unpack_from(data)[0]
    if found != correlation_id:
        raise FrameError(f"the frame answers request {found}, but request {correlation_id} is the oldest one open")


def walk_response_header(kind: type[Any], data: bytes) -> int:
    """The position after the header. ApiVersions answers with header 0 in every version, and its schema says so."""
    return walk_tags(data, _LEAST_FRAME) if kind.__header_schema__.__flexible__ else _LEAST_FRAME


def check_frame_length(length: int, cap: int, broker: str) -> None:
    """Refuse an impossible frame length (the four bytes as a signed int), and guess the protocol of the listener."""
    if _LEAST_FRAME <= length <= cap:
        return
    limit = f"more than the cap of {cap}" if length > cap else f"fewer than a frame's {_LEAST_FRAME}"
    raise FrameError(f"broker {broker} announced a frame of {length} bytes, {limit}{_guess(length)}")


def _guess(length: int) -> str:
    spelled = (length & 0xFFFFFFFF).to_bytes(4, "big")
    # A TLS record opens with its type (0x15 alert, 0x16 handshake) and the major version 3.
    if spelled[0] in (0x15, 0x16) and spelled[1] == 0x03:
        return "; this looks like a TLS listener: security.protocol does not match"
    if spelled == b"HTTP":
        return "; this looks like an HTTP listener: the address or security.protocol does not match"
    if spelled.isascii() and spelled.decode("ascii").isprintable():
        return f"; the bytes spell {spelled.decode('ascii')!r}: this does not look like a Kafka listener"
    return ""
