"""A consumer with group.protocol=auto asks whether classic members are in the group before each join."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_harness import Harness, T
from multilane.client.group.consumer_protocol.classic_check import HiddenGroup, LiveClassicGroup
from multilane.client.group.consumer_protocol.states import MemberState
from multilane.client.group.membership import Change
from multilane.errors import AuthenticationError, NetworkError, UnsupportedVersion
from multilane.wire.messages import ApiKey
from response_builder import make, response_parts

VERSION = 6


def described(state: str, members: int = 0, assignor: str = "", code: int = 0) -> Any:
    parts = response_parts(ApiKey.DESCRIBE_GROUPS, VERSION)
    group = make(
        parts.DescribedGroup,
        group_id="g",
        group_state=state,
        protocol_type="consumer",
        protocol_data=assignor,
        error_code=code,
        members=tuple(
            parts.DescribedGroupMember(
                member_id=f"m{n}", client_id="c", client_host="/h", member_metadata=b"", member_assignment=b""
            )
            for n in range(members)
        ),
    )
    return make(parts.DescribeGroupsResponse, groups=(group,))


def asked(harness: Harness) -> Any:
    (request,) = harness.poll()
    assert request.api is ApiKey.DESCRIBE_GROUPS
    assert request.build(VERSION).groups == ("g",)
    return harness.requests.pop(0)


def joining() -> Harness:
    harness = Harness(group_protocol="auto")
    harness.subscribe("t")
    return harness


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance"])
def test_a_live_classic_group_is_not_converted(state):
    harness = joining()
    asked(harness).on_response(described(state, 2, "roundrobin"), 0.0)
    assert harness.poll() == [], "no heartbeat"
    [error] = harness.unsupported
    assert isinstance(error, LiveClassicGroup)
    assert (error.assignor, harness.failures) == ("roundrobin", [])
    assert "2 members" in str(error)


@pytest.mark.parametrize("answer", [described("Empty"), described("Dead"), described("", code=69)])
def test_a_group_without_members_is_joined(answer):
    harness = joining()
    asked(harness).on_response(answer, 0.0)
    assert harness.said().member_epoch == 0


@pytest.mark.parametrize("code", [30, 24, 35])
def test_a_group_that_cannot_be_described_is_not_converted(code):
    """To join a group, Read is enough: a classic one that may not be described was converted."""
    harness = joining()
    asked(harness).on_response(described("", code=code), 0.0)
    assert harness.poll() == [], "no heartbeat"
    [error] = harness.unsupported
    assert isinstance(error, HiddenGroup)
    assert "Allow Describe on the group" in str(error)
    assert harness.failures == []


def test_nor_is_one_whose_description_fails_for_good():
    harness = joining()
    asked(harness).on_failure(UnsupportedVersion("too old"), 0.0)
    assert [type(error) for error in harness.unsupported] == [HiddenGroup]


def test_a_refused_login_is_reported_and_retried():
    harness = joining()
    asked(harness).on_failure(AuthenticationError("wrong password"), 0.0)
    assert [type(error) for error in harness.failures] == [AuthenticationError]
    assert (harness.unsupported, harness.forgotten, harness.poll()) == ([], [1], [])
    harness.now = 5.0
    asked(harness).on_response(described("Empty"), 5.0)
    assert harness.said().member_epoch == 0


def test_each_join_asks_anew():
    harness = joining()
    first = asked(harness)
    first.on_response(described("Empty"), 0.0)
    harness.said()
    harness.answer(1, {T: []})
    harness.done(Change.ASSIGNED, frozenset())
    harness.said()
    harness.answer(code=110)  # fenced: what the group is by now nobody knows
    harness.now = 20.0
    first.on_response(described("Empty"), 20.0)  # an answer of another time
    asked(harness).on_response(described("Stable", 1), 20.0)
    assert len(harness.unsupported) == 1


def test_a_coordinator_that_has_moved_is_asked_elsewhere():
    harness = joining()
    asked(harness).on_response(described("", code=16), 0.0)
    assert harness.forgotten == [1]
    assert harness.poll() == []
    harness.now = 5.0
    asked(harness).on_failure(NetworkError("gone"), 5.0)
    harness.now = 10.0
    asked(harness).on_response(described("Empty"), 10.0)
    assert harness.said().member_epoch == 0


def test_who_leaves_before_the_answer_hears_nothing_of_it():
    harness = joining()
    request = asked(harness)
    harness.leave()
    request.on_response(described("Stable", 1), 0.0)
    assert (harness.left, harness.unsupported, harness.member.state) == (1, [], MemberState.UNSUBSCRIBED)


def test_who_asked_for_the_newer_protocol_converts():
    harness = Harness(group_protocol="consumer")
    harness.subscribe("t")
    assert harness.said().member_epoch == 0
