"""Composes requests about groups and their offsets, and reads the one opaque value in their responses.

Thread: none (pure).

The same rules as in `wire.compose`: plain values in, a kio entity of the negotiated version out, and `*_AT_LEAST` is
the lowest version that keeps the meaning. Assignments of classic members are bytes that another client wrote into the
group: they are checked before they are read, and malformed ones are an error, not a crash.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

from multilane.errors import FrameError
from multilane.types import TopicPartition
from multilane.wire.compose import _make, _parts
from multilane.wire.messages import ApiKey

FIND_COORDINATOR_AT_LEAST: Final = 1
COORDINATORS_TOGETHER: Final = 4  # many groups in one request
OFFSET_FETCH_AT_LEAST: Final = (
    6  # null topics mean all topics since version 2; flexible, like the composed request, since 6
)
DESCRIBE_GROUPS_AT_LEAST: Final = 4  # static members
LIST_GROUPS_AT_LEAST: Final = 1

_GROUP_KEY: Final = 0
_BROKER_RESOURCE: Final = 4
_GROUP_RESOURCE: Final = 32
_NO_MEMBER_EPOCH: Final = -1
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_SMALLEST_TOPIC: Final = 6  # an empty name and an empty list of partitions


def find_coordinator_request(version: int, group: str) -> Any:
    return find_coordinators_request(version, (group,))


def find_coordinators_request(version: int, groups: Sequence[str]) -> Any:
    """The coordinators of these groups; versions below COORDINATORS_TOGETHER request only the first one."""
    return _make(
        _parts(ApiKey.FIND_COORDINATOR, version).FindCoordinatorRequest,
        key=groups[0],
        key_type=_GROUP_KEY,
        coordinator_keys=tuple(groups),
    )


def list_groups_request(version: int) -> Any:
    return _make(_parts(ApiKey.LIST_GROUPS, version).ListGroupsRequest, states_filter=(), types_filter=())


def describe_groups_request(version: int, groups: Sequence[str]) -> Any:
    return _make(
        _parts(ApiKey.DESCRIBE_GROUPS, version).DescribeGroupsRequest,
        groups=tuple(groups),
        include_authorized_operations=False,
    )


def consumer_group_describe_request(version: int, groups: Sequence[str]) -> Any:
    return _make(
        _parts(ApiKey.CONSUMER_GROUP_DESCRIBE, version).ConsumerGroupDescribeRequest,
        group_ids=tuple(groups),
        include_authorized_operations=False,
    )


def offset_fetch_request(version: int, group: str) -> Any:
    """All offsets of one group. Responses have topic ids since version 10, names before."""
    parts = _parts(ApiKey.OFFSET_FETCH, version)
    groups: tuple[Any, ...] = ()
    if hasattr(parts, "OffsetFetchRequestGroup"):
        requested = _make(
            parts.OffsetFetchRequestGroup,
            group_id=group,
            member_id=None,
            member_epoch=_NO_MEMBER_EPOCH,
            topics=None,
        )
        groups = (requested,)
    return _make(parts.OffsetFetchRequest, group_id=group, topics=None, groups=groups, require_stable=False)


def broker_settings_request(version: int, node: int, names: Sequence[str]) -> Any:
    """The values of some settings of a broker."""
    parts = _parts(ApiKey.DESCRIBE_CONFIGS, version)
    resource = _make(
        parts.DescribeConfigsResource,
        resource_type=_BROKER_RESOURCE,
        resource_name=str(node),
        configuration_keys=tuple(names),
    )
    return _make(
        parts.DescribeConfigsRequest, resources=(resource,), include_synonyms=False, include_documentation=False
    )


def group_settings_request(version: int, group: str, names: Sequence[str]) -> Any:
    """The values of some settings of a group: its own or the broker's defaults."""
    parts = _parts(ApiKey.DESCRIBE_CONFIGS, version)
    resource = _make(
        parts.DescribeConfigsResource,
        resource_type=_GROUP_RESOURCE,
        resource_name=group,
        configuration_keys=tuple(names),
    )
    return _make(
        parts.DescribeConfigsRequest, resources=(resource,), include_synonyms=False, include_documentation=False
    )


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions in a classic member's assignment; none for the empty bytes of a waiting member.

    Newer versions only append fields, so every version is read as version 0.
    """
    if not data:
        return ()
    try:
        return tuple(sorted(_assigned(data)))
    except (struct.error, UnicodeDecodeError) as error:
        raise FrameError(f"a member's assignment of {len(data)} bytes cannot be read: {error}") from None


def _assigned(data: bytes) -> Iterator[TopicPartition]:
    if _INT16.unpack_from(data)[0] < 0:
        raise FrameError("a member's assignment has a negative version")
    topics, position = _count(data, 2, _SMALLEST_TOPIC)
    for _ in range(topics):
        length = _INT16.unpack_from(data, position)[0]
        position += 2
        if not 0 <= length <= len(data) - position:
            raise FrameError("a member's assignment names a topic longer than itself")
        topic = data[position : position + length].decode()
        partitions, position = _count(data, position + length, 4)
        for _ in range(partitions):
            yield TopicPartition(topic, _INT32.unpack_from(data, position)[0])
            position += 4


def _count(data: bytes, position: int, smallest: int) -> tuple[int, int]:
    """The length of an array and the position of its items; a length that exceeds the bytes is refused."""
    count = _INT32.unpack_from(data, position)[0]
    position += 4
    if not 0 <= count <= (len(data) - position) // smallest:
        raise FrameError(f"a member's assignment announces {count} items in {len(data) - position} bytes")
    return count, position
