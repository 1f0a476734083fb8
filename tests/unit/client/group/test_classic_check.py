"""A consumer with group.protocol=auto asks whether classic members are in the group before each join."""

from __future__ import annotations

from typing import Any

import pytest

from consumer_desk import Desk, T
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


def asked(desk: Desk) -> Any:
    (request,) = desk.poll()
    assert request.api is ApiKey.DESCRIBE_GROUPS
    assert request.build(VERSION).groups == ("g",)
    return desk.requests.pop(0)


def joining() -> Desk:
    desk = Desk(group_protocol="auto")
    desk.subscribe("t")
    return desk


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance"])
def test_a_live_classic_group_is_not_converted(state):
    desk = joining()
    asked(desk).on_response(described(state, 2, "roundrobin"), 0.0)
    assert desk.poll() == [], "no heartbeat"
    [error] = desk.unsupported
    assert isinstance(error, LiveClassicGroup)
    assert (error.assignor, desk.failures) == ("roundrobin", [])
    assert "2 members" in str(error)


@pytest.mark.parametrize("answer", [described("Empty"), described("Dead"), described("", code=69)])
def test_a_group_without_members_is_joined(answer):
    desk = joining()
    asked(desk).on_response(answer, 0.0)
    assert desk.said().member_epoch == 0


@pytest.mark.parametrize("code", [30, 24, 35])
def test_a_group_that_cannot_be_described_is_not_converted(code):
    """To join a group, Read is enough: a classic one that may not be described was converted."""
    desk = joining()
    asked(desk).on_response(described("", code=code), 0.0)
    assert desk.poll() == [], "no heartbeat"
    [error] = desk.unsupported
    assert isinstance(error, HiddenGroup)
    assert "Allow Describe on the group" in str(error)
    assert desk.failures == []


def test_nor_is_one_whose_description_fails_for_good():
    desk = joining()
    asked(desk).on_failure(UnsupportedVersion("too old"), 0.0)
    assert [type(error) for error in desk.unsupported] == [HiddenGroup]


def test_a_refused_login_is_told_and_tried_again():
    desk = joining()
    asked(desk).on_failure(AuthenticationError("wrong password"), 0.0)
    assert [type(error) for error in desk.failures] == [AuthenticationError]
    assert (desk.unsupported, desk.forgotten, desk.poll()) == ([], [1], [])
    desk.now = 5.0
    asked(desk).on_response(described("Empty"), 5.0)
    assert desk.said().member_epoch == 0


def test_each_join_asks_anew():
    desk = joining()
    first = asked(desk)
    first.on_response(described("Empty"), 0.0)
    desk.said()
    desk.answer(1, {T: []})
    desk.done(Change.ASSIGNED, frozenset())
    desk.said()
    desk.answer(code=110)  # fenced: what the group is by now nobody knows
    desk.now = 20.0
    first.on_response(described("Empty"), 20.0)  # an answer of another time
    asked(desk).on_response(described("Stable", 1), 20.0)
    assert len(desk.unsupported) == 1


def test_a_coordinator_that_has_moved_is_asked_elsewhere():
    desk = joining()
    asked(desk).on_response(described("", code=16), 0.0)
    assert desk.forgotten == [1]
    assert desk.poll() == []
    desk.now = 5.0
    asked(desk).on_failure(NetworkError("gone"), 5.0)
    desk.now = 10.0
    asked(desk).on_response(described("Empty"), 10.0)
    assert desk.said().member_epoch == 0


def test_who_leaves_before_the_answer_hears_nothing_of_it():
    desk = joining()
    request = asked(desk)
    desk.leave()
    request.on_response(described("Stable", 1), 0.0)
    assert (desk.left, desk.unsupported, desk.member.state) == (1, [], MemberState.UNSUBSCRIBED)


def test_who_asked_for_the_newer_protocol_converts():
    desk = Desk(group_protocol="consumer")
    desk.subscribe("t")
    assert desk.said().member_epoch == 0
