"""Requests to frames and frames to responses, through kio."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from kio.schema.errors import ErrorCode
from kio.schema.index import api_key_map, schema_name_map

from multilane.broker_codes import BROKER_CODES
from multilane.errors import FrameError, UnknownBrokerCode
from multilane.wire.messages import (
    KIO_NAMES,
    ApiKey,
    check_frame_length,
    decode_response,
    encode_request,
    request_type,
    response_type,
)

HEARTBEAT_4 = response_type(request_type(ApiKey.HEARTBEAT, 4))
METADATA_1 = response_type(request_type(ApiKey.METADATA, 1))
METADATA_9 = response_type(request_type(ApiKey.METADATA, 9))
# correlation id 7, header tags, throttle 5 ms, error code, body tags
HEARTBEAT_FRAME = struct.pack(">iBihB", 7, 0, 5, 27, 0)


def test_names_and_codes_are_those_of_the_schema() -> None:
    assert {int(api): name for api, name in KIO_NAMES.items()}.items() <= dict(api_key_map).items()
    assert {int(code) for code in ErrorCode} == {0, *BROKER_CODES}


@pytest.mark.parametrize("api", list(ApiKey))
def test_types_of_every_version(api: ApiKey) -> None:
    for version in schema_name_map[KIO_NAMES[api]]:
        request = request_type(api, version)
        response = response_type(request)
        assert (request.__api_key__, request.__version__) == (api, version)
        assert (response.__api_key__, response.__version__) == (api, version)
        assert request.__name__.endswith("Request")
        assert response.__name__.endswith("Response")


def test_request_frame_by_hand() -> None:
    request = request_type(ApiKey.METADATA, 9)(
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=True,
    )
    frame = encode_request(request, 258, "me")
    # length, api 3, version 9, correlation id, client id in its old form, header tags, null topics, 3 bools, body tags
    expected = struct.pack(">hhih2sB", 3, 9, 258, 2, b"me", 0) + b"\0\0\0\1\0"
    assert frame == struct.pack(">i", len(expected)) + expected


def test_request_without_client_id() -> None:
    request = request_type(ApiKey.API_VERSIONS, 0)()
    assert encode_request(request, 1, None) == struct.pack(">ihhih", 10, 18, 0, 1, -1)


@pytest.mark.parametrize("wrap", [bytes, bytearray, memoryview, lambda b: np.frombuffer(b, np.uint8).copy()])
def test_response_from_every_kind_of_buffer(wrap: Any) -> None:
    response = decode_response(HEARTBEAT_4, wrap(HEARTBEAT_FRAME), 7)
    assert response.throttle_time == timedelta(milliseconds=5)
    assert response.error_code == 27


def test_correlation_id_is_checked_before_the_body() -> None:
    with pytest.raises(FrameError, match="answers request 7, but request 8"):
        decode_response(HEARTBEAT_4, HEARTBEAT_FRAME[:4], 8)


@pytest.mark.parametrize("size", range(len(HEARTBEAT_FRAME)))
def test_truncated_frame(size: int) -> None:
    with pytest.raises(FrameError):
        decode_response(HEARTBEAT_4, HEARTBEAT_FRAME[:size], 7)


def test_trailing_bytes() -> None:
    with pytest.raises(FrameError, match="HeartbeatResponse v4: 1 bytes after the end"):
        decode_response(HEARTBEAT_4, HEARTBEAT_FRAME + b"\0", 7)


def test_unknown_error_code_is_typed() -> None:
    with pytest.raises(UnknownBrokerCode, match="HeartbeatResponse v4") as caught:
        decode_response(HEARTBEAT_4, struct.pack(">iBihB", 7, 0, 0, 999, 0), 7)
    assert caught.value.code == 999
    assert not caught.value.retriable


def test_a_malformed_frame_is_that_and_not_an_unknown_code() -> None:
    with pytest.raises(FrameError):
        decode_response(HEARTBEAT_4, struct.pack(">iBihB", 7, 0, 0, 999, 0) + b"!", 7)


def test_tagged_fields_newer_than_the_schema_are_left_out() -> None:
    frame = struct.pack(">iB", 7, 1) + b"\x09\2hi" + struct.pack(">ihB", 5, 27, 1) + b"\0\3new"
    assert decode_response(HEARTBEAT_4, frame, 7).error_code == 27


# Lengths at which kio's native reader allocates and aborts, or runs on, when nobody looks at them first.
@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (METADATA_9, b"\0\0\0\0\0" + b"\xff\xff\xff\xff\x0f" + b"\0" * 10),
        (METADATA_9, b"\0\0\0\0\0" + b"\xff\xff\xff\x7f" + b"\0" * 10),
        (METADATA_9, b"\0\0\0\0\0" + b"\x80" * 10 + b"\1"),
        (METADATA_9, b"\0\0\0"),
        (METADATA_1, struct.pack(">i", 2**31 - 1)),
        (METADATA_1, struct.pack(">i", -2)),
        (METADATA_1, struct.pack(">i", -(2**31))),
    ],
)
def test_hostile_lengths(kind: type, body: bytes) -> None:
    with pytest.raises(FrameError, match=r"MetadataResponse v[19]: "):
        decode_response(kind, struct.pack(">i", 7) + body, 7)


def test_values_that_only_the_parser_sees_are_frame_errors() -> None:
    cluster_id = b"\2\xff"
    frame = struct.pack(">iBiB", 7, 0, 0, 1) + cluster_id + struct.pack(">iBiB", 1, 1, 0, 0)
    with pytest.raises(FrameError, match="UTF-8"):
        decode_response(METADATA_9, frame, 7)
    authenticate = response_type(request_type(ApiKey.SASL_AUTHENTICATE, 1))
    endless = struct.pack(">ihhiq", 7, 0, -1, 0, 2**63 - 1)
    with pytest.raises(FrameError, match="SaslAuthenticateResponse v1"):
        decode_response(authenticate, endless, 7)


@pytest.mark.parametrize("length", [4, 5, 1000])
def test_frame_lengths_within_the_cap(length: int) -> None:
    check_frame_length(length, 1000, "1 (b:9092)")


@pytest.mark.parametrize(
    ("length", "says"),
    [
        (1001, "more than the cap of 1000$"),
        (3, "fewer than a frame's 4$"),
        (0, "fewer than a frame's 4$"),
        (-1, "fewer than a frame's 4$"),
        (-(2**31), "fewer than a frame's 4$"),
        (0x15030300, "TLS listener: security.protocol does not match"),
        (0x15030100, "TLS listener: security.protocol does not match"),
        (0x16030300, "TLS listener"),
        (int.from_bytes(b"HTTP", "big"), "HTTP listener.*security.protocol does not match"),
        (int.from_bytes(b"SSH-", "big"), "spell 'SSH-'"),
    ],
)
def test_frame_lengths_that_are_none(length: int, says: str) -> None:
    with pytest.raises(FrameError, match=says) as caught:
        check_frame_length(length, 1000, "1 (b:9092)")
    assert "broker 1 (b:9092) announced a frame" in str(caught.value)
