"""The walk over a Fetch response in the receive buffer: finds each partition's records without copying them.

Thread: none (pure); runs on the network thread, between receiving a frame and sending the next fetch.

Owns the layout of Fetch responses, versions 4 to 18. Allocates one small tuple per partition and nothing by a length
field: a false length raises FrameError. Never reads record batches (`wire.records.batches` does) and never interprets
error codes; they stay numbers, so that an unknown code affects one partition and not the whole response.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from multilane.errors import FrameError
from multilane.types import Node, NodeId
from multilane.wire.messages import check_correlation
from multilane.wire.walk import read_uvarint

if TYPE_CHECKING:
    import numpy as np

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
# partition, error code, high watermark, last stable offset, and from version 5 the log start offset
_HEAD_4: Final = Struct(">ihqq")
_HEAD_5: Final = Struct(">ihqqq")
# the same, then the first byte of the aborted transactions' length and, when there are none, the preferred replica
_HEAD_12: Final = Struct(">ihqqqBi")
_TOP_12: Final = Struct(">ihi")
_ABORTED: Final = Struct(">qq")
# tagged fields 0 diverging epoch (epoch, end offset), 1 current leader (id, epoch), 2 snapshot id (end offset, epoch)
_PARTITION_TAGS: Final = (Struct(">iq"), Struct(">ii"), Struct(">qi"))
_OLDEST: Final = 4
_NEWEST: Final = 18
# the first versions with compact lengths and tags, with topic ids instead of names, and with addresses of new leaders
_FLEXIBLE: Final = 12
_TOPIC_IDS: Final = 13
_ENDPOINTS: Final = 16


class FetchedPartition(NamedTuple):
    """One partition of a response; its records are the bytes [records_start, records_end) of the frame.

    A named tuple, since a response may have thousands and a frozen dataclass takes four times as long to create.
    `diverging_epoch` is (epoch, end offset), `current_leader` is (node id, epoch); None if the broker sends none.
    """

    topic_id: UUID | None
    topic: str | None
    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[tuple[int, int], ...]
    preferred_read_replica: int
    diverging_epoch: tuple[int, int] | None
    current_leader: tuple[int, int] | None
    records_start: int
    records_end: int


@dataclass(frozen=True, slots=True)
class FetchedFrame:
    """The contents of a Fetch response. `endpoints` are the addresses of new leaders (KIP-951)."""

    throttle_ms: int
    error_code: int
    session_id: int
    partitions: tuple[FetchedPartition, ...]
    endpoints: tuple[Node, ...]


def walk_fetch_response(
    frame: np.ndarray[Any, np.dtype[np.uint8]] | memoryview | bytes, version: int, correlation_id: int
) -> FetchedFrame:
    """Walk a whole response frame, from its correlation id to its last byte; FrameError if it is malformed."""
    if not _OLDEST <= version <= _NEWEST:
        raise ValueError(f"Fetch version {version} is not one of {_OLDEST} to {_NEWEST}")
    data = memoryview(frame).cast("B")  # type: ignore[arg-type, unused-ignore]
    check_correlation(data, correlation_id)
    try:
        return (_walk_flexible if version >= _FLEXIBLE else _walk_legacy)(data, version)
    except FrameError as error:
        raise FrameError(f"Fetch response v{version}: {error}") from None
    except (StructError, IndexError):
        raise FrameError(f"Fetch response v{version}: the frame of {len(data)} bytes ends inside a field") from None
    except UnicodeDecodeError as error:
        raise FrameError(f"Fetch response v{version}: {error}") from None


def _count(count: int, least: int, position: int, end: int) -> int:
    """An array's length, checked against the remaining bytes."""
    if count < 0 or count * least > end - position:
        raise FrameError(f"array of {count} elements at byte {position}, but {end - position} bytes remain")
    return count


def _refuse_duplicates(partitions: list[FetchedPartition]) -> None:
    if len({(p.topic_id, p.topic, p.partition) for p in partitions}) == len(partitions):
        return
    seen = set()
    for p in partitions:
        key = (p.topic_id, p.topic, p.partition)
        if key in seen:
            raise FrameError(f"partition {p.topic or p.topic_id}-{p.partition} comes twice")
        seen.add(key)


# --- versions 4 to 11 ------------------------------------------------------------------------------------------------


def _walk_legacy(data: memoryview, version: int) -> FetchedFrame:
    end = len(data)
    throttle, error, session = _INT32.unpack_from(data, 4)[0], 0, 0
    position = 8
    if version >= 7:
        error, session = _INT16.unpack_from(data, 8)[0], _INT32.unpack_from(data, 10)[0]
        position = 14
    topics = _count(_INT32.unpack_from(data, position)[0], 6, position + 4, end)
    position += 4
    partitions: list[FetchedPartition] = []
    for _ in range(topics):
        name, position = _short_string(data, position, end)
        count = _count(_INT32.unpack_from(data, position)[0], 30, position + 4, end)
        position += 4
        for _ in range(count):
            partition, position = _legacy_partition(data, position, name, version)
            partitions.append(partition)
    _require_end(position, end)
    _refuse_duplicates(partitions)
    return FetchedFrame(throttle, error, session, tuple(partitions), ())


def _legacy_partition(data: memoryview, position: int, topic: str, version: int) -> tuple[FetchedPartition, int]:
    end = len(data)
    if version >= 5:
        index, error, high, stable, log_start = _HEAD_5.unpack_from(data, position)
        position += _HEAD_5.size
    else:
        index, error, high, stable = _HEAD_4.unpack_from(data, position)
        log_start = -1
        position += _HEAD_4.size
    count = _INT32.unpack_from(data, position)[0]
    position += 4
    aborted: tuple[tuple[int, int], ...] = ()
    # Null (-1) and empty are the same here.
    if count not in (0, -1):
        after = position + _count(count, _ABORTED.size, position, end) * _ABORTED.size
        aborted = tuple(_ABORTED.iter_unpack(data[position:after]))
        position = after
    replica = -1
    if version >= 11:
        replica = _INT32.unpack_from(data, position)[0]
        position += 4
    length = _INT32.unpack_from(data, position)[0]
    start = position + 4
    stop = _records_end(start, length, end)
    return (
        FetchedPartition(None, topic, index, error, high, stable, log_start, aborted, replica, None, None, start, stop),
        stop,
    )


def _records_end(start: int, length: int, end: int) -> int:
    if length < -1 or length > end - start:
        raise FrameError(f"{length} bytes of records at byte {start}, but {end - start} remain")
    return start + length if length > 0 else start


def _short_string(data: memoryview, position: int, end: int) -> tuple[str, int]:
    length = _INT16.unpack_from(data, position)[0]
    return _text(data, position + 2, length, end)


def _text(data: memoryview, start: int, length: int, end: int) -> tuple[str, int]:
    if not 0 <= length <= end - start:
        raise FrameError(f"string of {length} bytes at byte {start}, but {end - start} remain")
    return str(data[start : start + length], "utf-8"), start + length


def _require_end(position: int, end: int) -> None:
    if position != end:
        raise FrameError(f"{end - position} bytes after the end of the message at byte {position}")


# --- versions 12 to 18: compact lengths and tagged fields ------------------------------------------------------------


def _walk_flexible(data: memoryview, version: int) -> FetchedFrame:
    end = len(data)
    position = _skip_tags(data, 4, end)
    throttle, error, session = _TOP_12.unpack_from(data, position)
    count, position = read_uvarint(data, position + _TOP_12.size, end)
    partitions: list[FetchedPartition] = []
    for _ in range(_count(count - 1, 3, position, end)):
        topic_id, name, position = _topic(data, position, version)
        count, position = read_uvarint(data, position, end)
        for _ in range(_count(count - 1, 37, position, end)):
            partition, position = _flexible_partition(data, position, topic_id, name)
            partitions.append(partition)
        position = _skip_tags(data, position, end)
    endpoints, position = _top_tags(data, position, end, version)
    _require_end(position, end)
    _refuse_duplicates(partitions)
    return FetchedFrame(throttle, error, session, tuple(partitions), endpoints)


def _topic(data: memoryview, position: int, version: int) -> tuple[UUID | None, str | None, int]:
    end = len(data)
    if version < _TOPIC_IDS:
        length, position = read_uvarint(data, position, end)
        name, position = _text(data, position, length - 1, end)
        return None, name, position
    raw = bytes(data[position : position + 16])
    if len(raw) < 16:
        raise FrameError(f"topic id at byte {position} is truncated")
    # The zero id means no id.
    return (UUID(bytes=raw) if any(raw) else None), None, position + 16


def _flexible_partition(
    data: memoryview, position: int, topic_id: UUID | None, topic: str | None
) -> tuple[FetchedPartition, int]:
    end = len(data)
    index, error, high, stable, log_start, count, replica = _HEAD_12.unpack_from(data, position)
    position += _HEAD_12.size
    aborted: tuple[tuple[int, int], ...] = ()
    if count > 1:
        aborted, position = _aborted(data, position - 5, end)
        replica = _INT32.unpack_from(data, position)[0]
        position += 4
    length = data[position]
    if length < 0x80:
        position += 1
    else:
        length, position = read_uvarint(data, position, end)
    stop = position + length - 1 if length else position
    diverging = leader = None
    # Raises IndexError, hence FrameError, if the records reach beyond the frame.
    if data[stop]:
        diverging, leader, after = _partition_tags(data, stop, end)
    else:
        after = stop + 1
    return (
        FetchedPartition(
            topic_id, topic, index, error, high, stable, log_start, aborted, replica, diverging, leader, position, stop
        ),
        after,
    )


def _aborted(data: memoryview, position: int, end: int) -> tuple[tuple[tuple[int, int], ...], int]:
    count, position = read_uvarint(data, position, end)
    found: list[tuple[int, int]] = []
    # A varint may be longer than necessary, so null (0) and empty (1) get here as well.
    for _ in range(_count(max(count, 1) - 1, _ABORTED.size + 1, position, end)):
        found.append(_ABORTED.unpack_from(data, position))
        position = _skip_tags(data, position + _ABORTED.size, end)
    return tuple(found), position


def _partition_tags(
    data: memoryview, position: int, end: int
) -> tuple[tuple[int, int] | None, tuple[int, int] | None, int]:
    found: list[tuple[int, int] | None] = [None, None, None]
    for tag, start, stop in (spans := _tag_spans(data, position, end))[0]:
        if tag < len(_PARTITION_TAGS):
            layout = _PARTITION_TAGS[tag]
            inner = start + layout.size
            if _skip_tags(data, inner, stop) != stop:
                raise FrameError(f"tagged field {tag} at byte {start} does not fill its {stop - start} bytes")
            first, second = layout.unpack_from(data, start)
            found[tag] = (first, second) if first >= 0 else None
    return found[0], found[1], spans[1]


def _tag_spans(data: memoryview, position: int, end: int) -> tuple[list[tuple[int, int, int]], int]:
    """Every tagged field of a section as (tag, start, end), and the end of the section."""
    count, position = read_uvarint(data, position, end)
    if count * 2 > end - position:
        raise FrameError(f"{count} tagged fields at byte {position}, but {end - position} bytes remain")
    spans: list[tuple[int, int, int]] = []
    previous = -1
    for _ in range(count):
        tag, position = read_uvarint(data, position, end)
        size, start = read_uvarint(data, position, end)
        if tag <= previous or size > end - start:
            raise FrameError(f"tag {tag} of {size} bytes at byte {position} is out of order or too long")
        previous, position = tag, start + size
        spans.append((tag, start, position))
    return spans, position


def _skip_tags(data: memoryview, position: int, end: int) -> int:
    return _tag_spans(data, position, end)[1] if data[position] else position + 1


def _top_tags(data: memoryview, position: int, end: int, version: int) -> tuple[tuple[Node, ...], int]:
    spans, position = _tag_spans(data, position, end)
    if version >= _ENDPOINTS and spans and spans[0][0] == 0:
        return _endpoints(data, *spans[0][1:]), position
    return (), position


def _endpoints(data: memoryview, position: int, end: int) -> tuple[Node, ...]:
    count, position = read_uvarint(data, position, end)
    nodes: list[Node] = []
    for _ in range(_count(count - 1, 11, position, end)):
        node_id = _INT32.unpack_from(data, position)[0]
        length, position = read_uvarint(data, position + 4, end)
        host, position = _text(data, position, length - 1, end)
        port = _INT32.unpack_from(data, position)[0]
        length, position = read_uvarint(data, position + 4, end)
        rack = None
        if length:
            rack, position = _text(data, position, length - 1, end)
        position = _skip_tags(data, position, end)
        nodes.append(Node(NodeId(node_id), host, port, rack))
    _require_end(position, end)
    return tuple(nodes)
