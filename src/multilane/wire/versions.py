"""Chooses the version of each request for one broker.

Thread: none (pure).

Owns the range of versions this client supports per API, and the decoding of ApiVersions responses with their fallback.
Never sends anything: the connection sends the request and keeps the response.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from struct import Struct
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from multilane.errors import FrameError, UnsupportedVersion, broker_error
from multilane.wire.messages import ApiKey, check_correlation, decode_response, request_type, response_type

if TYPE_CHECKING:
    from multilane.wire.messages import ResponseBytes

_INT16: Final = Struct(">h")
_UNSUPPORTED_VERSION: Final = 35
_ERROR_CODE_END: Final = 6

# Written out although kio has it: a newer kio must not enable versions that are untested here.
SPOKEN: Final[Mapping[ApiKey, tuple[int, int]]] = MappingProxyType(
    {
        ApiKey.FETCH: (4, 18),
        ApiKey.LIST_OFFSETS: (1, 11),
        ApiKey.METADATA: (0, 13),
        ApiKey.OFFSET_COMMIT: (2, 10),
        ApiKey.OFFSET_FETCH: (1, 10),
        ApiKey.FIND_COORDINATOR: (0, 6),
        ApiKey.JOIN_GROUP: (0, 9),
        ApiKey.HEARTBEAT: (0, 4),
        ApiKey.LEAVE_GROUP: (0, 5),
        ApiKey.SYNC_GROUP: (0, 5),
        ApiKey.DESCRIBE_GROUPS: (0, 6),
        ApiKey.LIST_GROUPS: (0, 5),
        ApiKey.SASL_HANDSHAKE: (0, 1),
        ApiKey.API_VERSIONS: (0, 4),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
        ApiKey.DESCRIBE_CONFIGS: (1, 4),
        ApiKey.SASL_AUTHENTICATE: (0, 2),
        ApiKey.DESCRIBE_CLUSTER: (0, 2),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
    }
)


@dataclass(frozen=True, slots=True)
class Versions:
    """The versions that one broker offers: API number to its lowest and highest version.

    `retry_with` is set if the broker did not know the version of our ApiVersions request: send it again with that
    version; until then `offered` may be empty.
    """

    offered: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    retry_with: int | None = None

    def pick(self, api: ApiKey, *, at_least: int = 0, at_most: int | None = None) -> int:
        """The highest version that the broker, this client and the bounds allow; UnsupportedVersion if none."""
        lowest, highest = SPOKEN[api]
        lowest, highest = max(lowest, at_least), highest if at_most is None else min(highest, at_most)
        theirs = self.offered.get(api)
        if theirs is None:
            raise UnsupportedVersion(
                f"no common version of {api.name}: the broker does not offer it, "
                f"this client needs {_text(lowest, highest)}"
            )
        version = min(highest, theirs[1])
        if version < max(lowest, theirs[0]):
            raise UnsupportedVersion(
                f"no common version of {api.name}: the broker offers {_text(*theirs)}, "
                f"this client needs {_text(lowest, highest)}"
            )
        return version

    def supports(self, api: ApiKey, *, at_least: int = 0) -> bool:
        """Whether `pick` would find a version."""
        theirs = self.offered.get(api)
        lowest, highest = SPOKEN[api]
        return theirs is not None and min(highest, theirs[1]) >= max(lowest, at_least, theirs[0])


def first_api_versions() -> int:
    """The version of the first ApiVersions request on a connection."""
    return SPOKEN[ApiKey.API_VERSIONS][1]


def decode_api_versions(frame: ResponseBytes, correlation_id: int, version: int) -> Versions:
    """Decode the response to an ApiVersions request of `version`.

    A broker that does not know the version answers UNSUPPORTED_VERSION in the format of version 0 (KIP-511). The header
    always has version 0, so the error code is at the same position in every format.
    """
    data = bytes(frame)
    check_correlation(data, correlation_id)
    if len(data) < _ERROR_CODE_END:
        raise FrameError(f"ApiVersionsResponse v{version}: a frame of {len(data)} bytes has no error code")
    code = _INT16.unpack_from(data, 4)[0]
    declined = code == _UNSUPPORTED_VERSION
    request = request_type(ApiKey.API_VERSIONS, 0 if declined else version)
    response = decode_response(response_type(request), data, correlation_id)
    offered = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    if declined:
        return Versions(offered, _retry_version(offered, version))
    if code != 0:
        raise broker_error(code, f"ApiVersions v{version}")
    return Versions(offered)


def _retry_version(offered: Mapping[int, tuple[int, int]], asked: int) -> int:
    # Brokers before 2.4 decline with an empty list; all of them support version 0.
    lowest, highest = offered.get(ApiKey.API_VERSIONS, (0, 0))
    version = min(highest, SPOKEN[ApiKey.API_VERSIONS][1])
    if not max(lowest, 0) <= version < asked:
        raise UnsupportedVersion(
            f"no common version of API_VERSIONS: the broker declined {asked} and offers {_text(lowest, highest)}, "
            f"this client supports {_text(*SPOKEN[ApiKey.API_VERSIONS])}"
        )
    return version


def _text(lowest: int, highest: int) -> str:
    return f"version {lowest}" if lowest == highest else f"versions {lowest} to {highest}"
