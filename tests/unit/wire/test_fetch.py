"""The walk over Fetch responses, on frames written by hand from the protocol's description."""

from __future__ import annotations

import struct
import tracemalloc
from uuid import UUID

import numpy as np
import pytest

from multilane.errors import FrameError
from multilane.types import Node, NodeId
from multilane.wire.fetch import FetchedFrame, FetchedPartition, walk_fetch_response

TOPIC = UUID("12345678-1234-5678-1234-567812345678")
OTHER = UUID(int=1)


def _walk(frame: bytes, version: int, correlation_id: int = 7) -> FetchedFrame:
    return walk_fetch_response(np.frombuffer(frame, np.uint8), version, correlation_id)


def _legacy_partition(
    version: int, index: int, records: bytes | None, aborted: tuple[tuple[int, int], ...] = ()
) -> bytes:
    out = struct.pack(">ihqq", index, 0, 90, 80)
    out += struct.pack(">q", 5) if version >= 5 else b""
    out += struct.pack(">i", len(aborted)) + b"".join(struct.pack(">qq", *pair) for pair in aborted)
    out += struct.pack(">i", 3) if version >= 11 else b""
    return out + (struct.pack(">i", -1) if records is None else struct.pack(">i", len(records)) + records)


def _legacy(version: int, *topics: tuple[str, list[bytes]]) -> bytes:
    out = struct.pack(">ii", 7, 100) + (struct.pack(">hi", 0, 55) if version >= 7 else b"")
    out += struct.pack(">i", len(topics))
    for name, partitions in topics:
        out += struct.pack(">h", len(name)) + name.encode() + struct.pack(">i", len(partitions)) + b"".join(partitions)
    return out


def _partition(index: int, records: bytes | None, tags: bytes = b"\0", aborted: bytes = b"\1", code: int = 0) -> bytes:
    out = struct.pack(">ihqqq", index, code, 90, 80, 5) + aborted + struct.pack(">i", -1)
    return out + (b"\0" if records is None else bytes([len(records) + 1]) + records) + tags


def _flexible(*topics: tuple[bytes, list[bytes]], tags: bytes = b"\0") -> bytes:
    out = struct.pack(">iBihi", 7, 0, 100, 0, 55) + bytes([len(topics) + 1])
    for name, partitions in topics:
        out += name + bytes([len(partitions) + 1]) + b"".join(partitions) + b"\0"
    return out + tags


@pytest.mark.parametrize("version", range(4, 12))
def test_legacy_versions(version: int) -> None:
    frame = _legacy(
        version,
        ("one", [_legacy_partition(version, 0, b"records", ((8, 9), (1, 2))), _legacy_partition(version, 1, None)]),
        ("two", [_legacy_partition(version, 0, b"")]),
    )
    walked = _walk(frame, version)
    assert (walked.throttle_ms, walked.error_code) == (100, 0)
    assert walked.session_id == (55 if version >= 7 else 0)
    assert [(p.topic, p.partition, p.topic_id) for p in walked.partitions] == [
        ("one", 0, None),
        ("one", 1, None),
        ("two", 0, None),
    ]
    assert [frame[p.records_start : p.records_end] for p in walked.partitions] == [b"records", b"", b""]
    first = walked.partitions[0]
    assert (first.high_watermark, first.last_stable_offset) == (90, 80)
    assert first.log_start_offset == (5 if version >= 5 else -1)
    assert first.aborted == ((8, 9), (1, 2))
    assert first.preferred_read_replica == (3 if version >= 11 else -1)


def test_version_12_has_names_and_compact_lengths() -> None:
    frame = _flexible((b"\4one", [_partition(4, b"abc")]))
    (partition,) = _walk(frame, 12).partitions
    assert partition == FetchedPartition(None, "one", 4, 0, 90, 80, 5, (), -1, None, None, 57, 60)
    assert frame[57:60] == b"abc"


@pytest.mark.parametrize("version", range(13, 19))
def test_topic_ids(version: int) -> None:
    frame = _flexible((TOPIC.bytes, [_partition(0, b"abc"), _partition(1, None)]), (OTHER.bytes, [_partition(0, b"")]))
    walked = _walk(frame, version)
    assert (walked.throttle_ms, walked.error_code, walked.session_id) == (100, 0, 55)
    assert [(p.topic_id, p.topic, p.partition) for p in walked.partitions] == [
        (TOPIC, None, 0),
        (TOPIC, None, 1),
        (OTHER, None, 0),
    ]
    assert [frame[p.records_start : p.records_end] for p in walked.partitions] == [b"abc", b"", b""]


def test_records_of_more_than_a_byte_of_length() -> None:
    records = bytes(range(256)) * 70
    compact = bytes([(len(records) + 1) & 0x7F | 0x80, (len(records) + 1) >> 7 & 0x7F | 0x80, (len(records) + 1) >> 14])
    frame = _flexible((TOPIC.bytes, [_partition(0, None)[:-2] + compact + records + b"\0"]))
    (partition,) = _walk(frame, 17).partitions
    assert frame[partition.records_start : partition.records_end] == records


def test_aborted_transactions() -> None:
    pairs = struct.pack(">qqB", 8, 9, 0) + struct.pack(">qq", 1, 2) + b"\1\7\2zz"
    frame = _flexible((TOPIC.bytes, [_partition(0, b"abc", aborted=b"\3" + pairs), _partition(1, b"d", aborted=b"\0")]))
    first, second = _walk(frame, 17).partitions
    assert first.aborted == ((8, 9), (1, 2))
    assert second.aborted == ()
    assert frame[first.records_start : first.records_end] == b"abc"
    assert frame[second.records_start : second.records_end] == b"d"


@pytest.mark.parametrize("none", [b"\0", b"\1", b"\x80\0", b"\x81\x80\0"])
def test_no_aborted_transactions_in_every_spelling(none: bytes) -> None:
    (partition,) = _walk(_flexible((TOPIC.bytes, [_partition(0, b"abc", aborted=none)])), 17).partitions
    assert partition.aborted == ()
    assert partition.records_end - partition.records_start == 3


def test_tagged_fields_of_a_partition() -> None:
    diverging = b"\0\x0d" + struct.pack(">iqB", 4, 44, 0)
    leader = b"\1\x09" + struct.pack(">iiB", 2, 6, 0)
    snapshot = b"\2\x0d" + struct.pack(">qiB", 1, 1, 0)
    unknown = b"\x09\2zz"
    tags = b"\4" + diverging + leader + snapshot + unknown
    frame = _flexible((TOPIC.bytes, [_partition(0, b"abc", tags), _partition(1, b"abc", b"\1" + leader, code=6)]))
    first, second = _walk(frame, 17).partitions
    assert (first.diverging_epoch, first.current_leader) == ((4, 44), (2, 6))
    assert (second.diverging_epoch, second.current_leader, second.error_code) == (None, (2, 6), 6)


def test_a_leader_or_epoch_of_minus_one_is_none() -> None:
    tags = b"\2" + b"\0\x0d" + struct.pack(">iqB", -1, -1, 0) + b"\1\x09" + struct.pack(">iiB", -1, -1, 0)
    (partition,) = _walk(_flexible((TOPIC.bytes, [_partition(0, b"", tags)])), 17).partitions
    assert (partition.diverging_epoch, partition.current_leader) == (None, None)


ENDPOINTS = b"\3" + struct.pack(">i2si", 1, b"\2a", 9092) + b"\0\0" + struct.pack(">i3si", 2, b"\3bb", 9093) + b"\2r\0"


@pytest.mark.parametrize("version", range(12, 19))
def test_endpoints_of_new_leaders(version: int) -> None:
    name = b"\2t" if version == 12 else TOPIC.bytes
    frame = _flexible((name, [_partition(0, b"")]), tags=b"\2\0" + bytes([len(ENDPOINTS)]) + ENDPOINTS + b"\5\1!")
    expected = (Node(NodeId(1), "a", 9092, None), Node(NodeId(2), "bb", 9093, "r")) if version >= 16 else ()
    assert _walk(frame, version).endpoints == expected


def test_unknown_error_codes_are_numbers() -> None:
    frame = (
        struct.pack(">iBihi", 7, 0, 0, 777, 0) + b"\2" + TOPIC.bytes + b"\2" + _partition(0, b"", code=999) + b"\0\0"
    )
    walked = _walk(frame, 17)
    assert (walked.error_code, walked.partitions[0].error_code) == (777, 999)


def test_records_are_not_copied() -> None:
    records = bytes(8 << 20)
    frame = np.frombuffer(_legacy(11, ("one", [_legacy_partition(11, 0, records)])), np.uint8)
    tracemalloc.start()
    try:
        (partition,) = walk_fetch_response(frame, 11, 7).partitions
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert partition.records_end - partition.records_start == len(records)
    assert peak < 64 << 10


def test_empty_response() -> None:
    assert _walk(_flexible(), 17) == FetchedFrame(100, 0, 55, (), ())
    assert _walk(_legacy(4), 4) == FetchedFrame(100, 0, 0, (), ())


def test_the_zero_topic_id_is_none() -> None:
    assert _walk(_flexible((bytes(16), [_partition(0, b"")])), 17).partitions[0].topic_id is None


@pytest.mark.parametrize("version", [12, 17])
def test_duplicates_are_refused(version: int) -> None:
    name = b"\2t" if version == 12 else TOPIC.bytes
    with pytest.raises(FrameError, match="-3 comes twice"):
        _walk(_flexible((name, [_partition(3, b""), _partition(4, b""), _partition(3, b"")])), version)
    with pytest.raises(FrameError, match="-3 comes twice"):
        _walk(_flexible((name, [_partition(3, b"")]), (name, [_partition(3, b"")])), version)


def test_one_topic_in_two_parts_is_allowed() -> None:
    walked = _walk(_flexible((TOPIC.bytes, [_partition(3, b"")]), (TOPIC.bytes, [_partition(4, b"")])), 17)
    assert [p.partition for p in walked.partitions] == [3, 4]


LEADER = b"\1\1\x09" + struct.pack(">iiB", 2, 6, 0)
WHOLE = {
    11: _legacy(11, ("one", [_legacy_partition(11, 0, b"records", ((8, 9),))])),
    4: _legacy(4, ("one", [_legacy_partition(4, 0, b"records", ((8, 9),))])),
    12: _flexible((b"\4one", [_partition(0, b"abc", LEADER)])),
    17: _flexible((TOPIC.bytes, [_partition(0, b"abc", LEADER)]), tags=b"\1\0" + bytes([len(ENDPOINTS)]) + ENDPOINTS),
}


@pytest.mark.parametrize("version", WHOLE)
def test_every_truncation_and_any_trailing_byte_is_refused(version: int) -> None:
    frame = WHOLE[version]
    assert len(_walk(frame, version).partitions) == 1
    for size in range(len(frame)):
        with pytest.raises(FrameError):
            _walk(frame[:size], version)
    with pytest.raises(FrameError, match="1 bytes after the end"):
        _walk(frame + b"\0", version)


def test_correlation_id() -> None:
    with pytest.raises(FrameError, match="answers request 7, but request 8"):
        _walk(WHOLE[17], 17, 8)


@pytest.mark.parametrize("version", [3, 19, -1])
def test_versions_we_do_not_speak(version: int) -> None:
    with pytest.raises(ValueError, match="Fetch version"):
        _walk(WHOLE[17], version)


HUGE = struct.pack(">i", 2**31 - 1)
LEGACY_TOP = struct.pack(">iihi", 7, 0, 0, 0)
LEGACY_TOPIC = LEGACY_TOP + struct.pack(">ih1s", 1, 1, b"t")
LEGACY_HEAD = LEGACY_TOPIC + struct.pack(">iihqqq", 1, 0, 0, 1, 1, 0)
TOP = struct.pack(">iBihi", 7, 0, 0, 0, 0)
TOPIC_HEAD = TOP + b"\2" + TOPIC.bytes
HEAD = TOPIC_HEAD + b"\2" + struct.pack(">ihqqq", 0, 0, 1, 1, 0)
COMPACT_HUGE = b"\xff\xff\xff\xff\x07"


@pytest.mark.parametrize(
    ("version", "frame"),
    [
        pytest.param(11, LEGACY_TOP + HUGE + b"\0" * 50, id="legacy topics"),
        pytest.param(11, LEGACY_TOP + struct.pack(">i", -1), id="legacy topics null"),
        pytest.param(11, LEGACY_TOP + struct.pack(">ih", 1, 0x7FFF) + b"\0" * 50, id="legacy name"),
        pytest.param(11, LEGACY_TOP + struct.pack(">ih", 1, -1) + b"\0" * 50, id="legacy name null"),
        pytest.param(11, LEGACY_TOP + struct.pack(">ih1si", 1, 1, b"\xff", 0), id="legacy name not text"),
        pytest.param(11, LEGACY_TOPIC + HUGE + b"\0" * 50, id="legacy partitions"),
        pytest.param(11, LEGACY_TOPIC + struct.pack(">i", -2) + b"\0" * 50, id="legacy partitions -2"),
        pytest.param(11, LEGACY_HEAD + HUGE + b"\0" * 50, id="legacy aborted"),
        pytest.param(11, LEGACY_HEAD + struct.pack(">i", -2) + b"\0" * 50, id="legacy aborted -2"),
        pytest.param(11, LEGACY_HEAD + struct.pack(">ii", -1, -1) + HUGE + b"\0" * 50, id="legacy records"),
        pytest.param(11, LEGACY_HEAD + struct.pack(">iii", -1, -1, -2), id="legacy records -2"),
        pytest.param(17, TOP + COMPACT_HUGE + b"\0" * 50, id="topics"),
        pytest.param(17, TOP + b"\0" + b"\0", id="topics null"),
        pytest.param(17, TOP + b"\xff\xff\xff\xff\xff\x01" + b"\0" * 50, id="varint of six bytes"),
        pytest.param(17, TOPIC_HEAD + COMPACT_HUGE + b"\0" * 50, id="partitions"),
        pytest.param(17, HEAD + COMPACT_HUGE + b"\0" * 50, id="aborted"),
        pytest.param(17, HEAD + b"\1" + b"\0" * 4 + COMPACT_HUGE + b"\0" * 50, id="records"),
        pytest.param(17, HEAD + b"\1" + b"\0" * 4 + b"\1" + COMPACT_HUGE + b"\0" * 50, id="partition tags"),
        pytest.param(17, HEAD + b"\1" + b"\0" * 4 + b"\1\1\x09" + COMPACT_HUGE + b"\0" * 50, id="tag size"),
        pytest.param(17, _flexible((TOPIC.bytes, [_partition(0, b"", b"\1\1\x08" + b"\0" * 8)])), id="tag too short"),
        pytest.param(17, _flexible((TOPIC.bytes, [_partition(0, b"", b"\1\1\x0a" + b"\0" * 10)])), id="tag too long"),
        pytest.param(17, _flexible((TOPIC.bytes, [_partition(0, b"", b"\2\5\0\5\0")])), id="tag twice"),
        pytest.param(17, _flexible(tags=b"\1\0\1\0"), id="endpoints null"),
        pytest.param(17, _flexible(tags=b"\1\0\5" + COMPACT_HUGE), id="endpoints"),
        pytest.param(17, _flexible(tags=b"\1\0\2\1\0"), id="bytes after the endpoints"),
    ],
)
def test_hostile_lengths(version: int, frame: bytes) -> None:
    with pytest.raises(FrameError, match=f"Fetch response v{version}: "):
        _walk(frame, version)


@pytest.mark.parametrize(
    ("version", "frame", "says"),
    [
        (11, LEGACY_TOPIC + HUGE + b"\0" * 50, "array of 2147483647 elements at byte 25, but 50 bytes remain"),
        (17, HEAD + COMPACT_HUGE + b"\0" * 50, "array of 2147483646 elements at byte 68, but 50 bytes remain"),
        (17, TOP + b"\1" + COMPACT_HUGE + b"\0" * 50, "2147483647 tagged fields at byte 21, but 50 bytes remain"),
    ],
)
def test_a_count_that_lies_is_refused_before_its_first_element(version: int, frame: bytes, says: str) -> None:
    with pytest.raises(FrameError, match=says):
        _walk(frame, version)
