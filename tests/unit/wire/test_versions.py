"""Negotiation of versions, and the fall-back of ApiVersions."""

from __future__ import annotations

import struct

import pytest
from kio.schema.index import schema_name_map

from multilane.errors import BrokerError, FrameError, UnknownBrokerCode, UnsupportedVersion
from multilane.wire.messages import KIO_NAMES, ApiKey
from multilane.wire.versions import SPOKEN, Versions, decode_api_versions, first_api_versions


def _legacy(code: int, *entries: tuple[int, int, int]) -> bytes:
    return struct.pack(">ihi", 7, code, len(entries)) + b"".join(struct.pack(">hhh", *entry) for entry in entries)


def _flexible(code: int, *entries: tuple[int, int, int]) -> bytes:
    listed = b"".join(struct.pack(">hhhB", *entry, 0) for entry in entries)
    return struct.pack(">ihB", 7, code, len(entries) + 1) + listed + struct.pack(">iB", 0, 0)


def test_what_we_speak_is_what_the_schemas_have() -> None:
    for api, (lowest, highest) in SPOKEN.items():
        assert sorted(schema_name_map[KIO_NAMES[api]]) == list(range(lowest, highest + 1))
    assert set(SPOKEN) == set(ApiKey)


@pytest.mark.parametrize(
    ("theirs", "bounds", "expected"),
    [
        ((0, 99), {}, 18),
        ((0, 13), {}, 13),
        ((18, 99), {}, 18),
        ((0, 99), {"at_most": 12}, 12),
        ((0, 99), {"at_most": 40}, 18),
        ((0, 15), {"at_least": 15}, 15),
        ((4, 4), {}, 4),
    ],
)
def test_pick_takes_the_highest_common(theirs: tuple[int, int], bounds: dict[str, int], expected: int) -> None:
    assert Versions({1: theirs}).pick(ApiKey.FETCH, **bounds) == expected


@pytest.mark.parametrize(
    ("theirs", "bounds"),
    [
        ((0, 3), {}),
        ((19, 20), {}),
        ((0, 12), {"at_least": 13}),
        ((13, 18), {"at_most": 12}),
        ((5, 4), {}),
        ((0, -1), {}),
        ((0, 99), {"at_least": 19}),
    ],
)
def test_pick_without_a_common_version(theirs: tuple[int, int], bounds: dict[str, int]) -> None:
    versions = Versions({1: theirs})
    with pytest.raises(UnsupportedVersion, match="no common version of FETCH"):
        versions.pick(ApiKey.FETCH, **bounds)


def test_the_error_names_both_ranges() -> None:
    with pytest.raises(UnsupportedVersion) as caught:
        Versions({1: (0, 12)}).pick(ApiKey.FETCH, at_least=13)
    assert str(caught.value) == (
        "no common version of FETCH: the broker offers versions 0 to 12, this client needs versions 13 to 18"
    )
    with pytest.raises(UnsupportedVersion) as caught:
        Versions().pick(ApiKey.DESCRIBE_TOPIC_PARTITIONS)
    assert str(caught.value) == (
        "no common version of DESCRIBE_TOPIC_PARTITIONS: the broker does not offer it, this client needs version 0"
    )


def test_supports_agrees_with_pick() -> None:
    for high in range(-1, 22):
        for low in range(0, 22):
            for at_least in (0, 13):
                versions = Versions({1: (low, high)})
                try:
                    versions.pick(ApiKey.FETCH, at_least=at_least)
                except UnsupportedVersion:
                    assert not versions.supports(ApiKey.FETCH, at_least=at_least)
                else:
                    assert versions.supports(ApiKey.FETCH, at_least=at_least)
    assert not Versions().supports(ApiKey.FETCH)


@pytest.mark.parametrize("version", [3, 4])
def test_answer_in_the_form_that_was_asked_for(version: int) -> None:
    # API 9999 is one we have never heard of.
    versions = decode_api_versions(_flexible(0, (1, 4, 17), (9999, 0, 3)), 7, version)
    assert versions.offered == {1: (4, 17), 9999: (0, 3)}
    assert versions.retry_with is None
    assert versions.pick(ApiKey.FETCH) == 17


def test_version_0() -> None:
    assert decode_api_versions(_legacy(0, (18, 0, 0)), 7, 0).offered == {18: (0, 0)}


@pytest.mark.parametrize(("entries", "expected"), [([(18, 0, 3)], 3), ([], 0), ([(18, 0, 2), (1, 0, 11)], 2)])
def test_declined_answer_says_what_to_ask_next(entries: list[tuple[int, int, int]], expected: int) -> None:
    assert decode_api_versions(_legacy(35, *entries), 7, first_api_versions()).retry_with == expected


@pytest.mark.parametrize(("asked", "entry"), [(4, (18, 5, 9)), (4, (18, 0, 4)), (0, (18, 1, 4)), (3, (18, 0, 3))])
def test_declined_without_a_way_on(asked: int, entry: tuple[int, int, int]) -> None:
    with pytest.raises(UnsupportedVersion, match=f"the broker declined {asked}"):
        decode_api_versions(_legacy(35, entry), 7, asked)


def test_other_errors() -> None:
    with pytest.raises(BrokerError, match=r"UNKNOWN_SERVER_ERROR.*ApiVersions v4"):
        decode_api_versions(_flexible(-1), 7, 4)
    with pytest.raises(UnknownBrokerCode):
        decode_api_versions(_flexible(999), 7, 4)


@pytest.mark.parametrize(
    "frame",
    [b"", b"\0\0\0\7", b"\0\0\0\7\0", _legacy(0), _flexible(35, (1, 0, 1)), _legacy(35) + b"\0", _flexible(0)[:-1]],
)
def test_malformed_answers(frame: bytes) -> None:
    with pytest.raises(FrameError):
        decode_api_versions(frame, 7, 4)


def test_wrong_correlation_id() -> None:
    with pytest.raises(FrameError, match="answers request 7"):
        decode_api_versions(_flexible(0), 8, 4)
