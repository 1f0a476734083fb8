"""When a member must count as expelled: a session after the last answered heartbeat was sent."""

from __future__ import annotations

from math import inf

import pytest

from classic_desk import Desk as ClassicDesk
from classic_desk import partitions as classic_partitions
from consumer_desk import INTERVAL, Desk, T
from multilane.client.group.membership import HEARTBEAT_FRACTION
from multilane.client.group.session import GroupSession
from multilane.client.net.request_state import RequestBackoff
from multilane.errors import NetworkError, UnsupportedVersion
from multilane.wire.messages import ApiKey
from response_builder import make, response_parts


def test_under_kip_848_without_a_word_about_the_session_it_is_three_intervals():
    desk = Desk()
    desk.subscribe("t")
    assert desk.member.fenced_after(None) == inf
    desk.said(100.0)
    desk.now = 103.0
    desk.answer(1, {T: []})
    assert desk.member.fenced_after(None) == pytest.approx(100.0 + 3 * INTERVAL / HEARTBEAT_FRACTION), (
        "since it was sent"
    )
    assert desk.member.fenced_after(45.0) == 145.0


def test_a_heartbeat_that_fails_or_whose_answer_comes_late_does_not_prolong():
    desk = Desk()
    desk.settle(0)
    before = desk.member.fenced_after(45.0)
    desk.said(desk.now + INTERVAL)
    desk.fail(NetworkError("gone"))
    assert desk.member.fenced_after(45.0) == before
    desk.said(desk.now + 10)
    sent, desk.now = desk.now, desk.now + 1_000.0
    desk.answer(1)
    assert desk.member.fenced_after(45.0) == sent + 45.0


class SessionQuestion:
    def __init__(self):
        self.seconds = []
        self.now = 0.0
        self.session = GroupSession("g", self, RequestBackoff(1.0, 8.0, jitter=0.0), self.seconds.append)

    def of(self, group):
        return 1

    def ask(self):
        (request,) = self.session.poll(self.now).requests
        assert not self.session.poll(self.now).requests, "one at a time"
        return request, request.build(1)

    def waits(self):
        return self.session.poll(self.now).wait


def answer(name, value, code=0):
    parts = response_parts(ApiKey.DESCRIBE_CONFIGS, 1)
    config = make(
        parts.DescribeConfigsResourceResult,
        name=name,
        value=value,
        read_only=False,
        is_sensitive=False,
        config_source=1,
        synonyms=(),
    )
    result = make(
        parts.DescribeConfigsResult,
        error_code=code,
        error_message=None,
        resource_type=32,
        resource_name="g",
        configs=(config,),
    )
    return make(parts.DescribeConfigsResponse, results=(result,))


def test_the_groups_own_setting_counts_then_the_brokers():
    asked = SessionQuestion()
    request, entity = asked.ask()
    assert [(r.resource_type, r.resource_name) for r in entity.resources] == [(32, "g")]
    request.on_response(answer("consumer.session.timeout.ms", "12000"), 0.0)
    assert asked.seconds == [12.0]
    assert not asked.session.poll(0.0).requests, "once"


@pytest.mark.parametrize("refused", ["code", "failure", "absent"])
def test_whoever_may_not_read_one_asks_for_the_other(refused):
    asked = SessionQuestion()
    request, _ = asked.ask()
    if refused == "failure":
        request.on_failure(UnsupportedVersion("too old"), 0.0)
    else:
        name = "other" if refused == "absent" else "consumer.session.timeout.ms"
        request.on_response(answer(name, "1", 30 if refused == "code" else 0), 0.0)
    request, entity = asked.ask()
    assert [(r.resource_type, r.resource_name) for r in entity.resources] == [(4, "1")]
    request.on_response(answer("group.consumer.session.timeout.ms", "1", 31), 0.0)
    assert (asked.seconds, not asked.session.poll(0.0).requests) == ([], True)


@pytest.mark.parametrize("kind", ["failure", "code"])
def test_what_fails_for_the_moment_is_asked_again(kind):
    """The broker's default counted for good, and may be longer than the group's setting."""
    asked = SessionQuestion()
    for wait in (1.0, 2.0, 4.0):
        request, _ = asked.ask()
        if kind == "failure":
            request.on_failure(NetworkError("gone"), asked.now)
        else:
            request.on_response(answer("consumer.session.timeout.ms", "1", 14), asked.now)  # it loads its groups
        assert asked.waits() == wait
        asked.now += wait
    request, entity = asked.ask()
    assert [(r.resource_type, r.resource_name) for r in entity.resources] == [(32, "g")]
    request.on_response(answer("consumer.session.timeout.ms", "6000"), asked.now)
    assert asked.seconds == [6.0]


def test_a_classic_member_has_the_session_that_it_asked_for_and_is_not_fenced_while_it_joins():
    desk = ClassicDesk()
    desk.subscribe("t")
    desk.sent(ApiKey.JOIN_GROUP)
    for _ in range(100):  # nobody has answered yet, and the member is looked at now and then
        desk.poll(desk.wait)
        assert desk.member.fenced_after(None) > desk.now
    desk = ClassicDesk()
    desk.settle(classic_partitions("t", 0))
    session = desk.member._policy.group.session_timeout
    desk.sent(ApiKey.HEARTBEAT, later=30.0)
    sent = desk.now
    assert desk.member.fenced_after(None) < sent + session
    desk.now += 1_000.0
    desk.answer(ApiKey.HEARTBEAT)
    assert desk.member.fenced_after(None) == sent + session, "since it was sent, not since it was answered"


def held(where):
    """A cooperative member that holds a partition while the coordinator holds its JoinGroup or SyncGroup."""
    desk = ClassicDesk("cooperative-sticky")
    desk.settle(classic_partitions("t", 0), protocol="cooperative-sticky")
    desk.now += 10.0
    desk.answer(ApiKey.HEARTBEAT, error_code=27)  # the group rebalances
    desk.sent(ApiKey.JOIN_GROUP)
    if where is ApiKey.SYNC_GROUP:
        desk.join(2, protocol="cooperative-sticky")
        desk.sent(ApiKey.SYNC_GROUP)
    assert desk.member.owned
    return desk, desk.member._policy.group.session_timeout


@pytest.mark.parametrize("where", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_nor_is_one_with_partitions_however_long_the_others_take(where):
    desk, session = held(where)
    began = desk.now
    while desk.now < began + 3 * session:
        desk.poll(min(desk.wait, session))
        assert desk.member.fenced_after(None) > desk.now
        if any(request.api is ApiKey.HEARTBEAT for request in desk.open):
            desk.answer(ApiKey.HEARTBEAT)


@pytest.mark.parametrize("where", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_one_that_was_stopped_meanwhile_is_fenced_until_a_heartbeat_is_answered(where):
    desk, session = held(where)
    desk.now += 2 * session  # the answer came, and after it the session ended, while the process was stopped
    assert desk.member.fenced_after(None) < desk.now
    desk.poll()
    assert desk.member.fenced_after(None) < desk.now, "to look again is not to have been heard"
    if where is ApiKey.JOIN_GROUP:
        desk.join(2, protocol="cooperative-sticky")
        desk.poll()
        assert desk.member.fenced_after(None) < desk.now, "an old answer"
    desk.answer(ApiKey.HEARTBEAT)
    desk.sync(classic_partitions("t", 0))
    desk.poll()
    assert desk.member.fenced_after(None) > desk.now
