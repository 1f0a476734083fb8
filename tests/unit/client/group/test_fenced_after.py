"""When a member must count as expelled: a session after the last answered heartbeat was sent."""

from __future__ import annotations

from math import inf

import pytest

from classic_harness import Harness as ClassicHarness
from classic_harness import partitions as classic_partitions
from consumer_harness import INTERVAL, Harness, T
from multilane.client.group.membership import HEARTBEAT_FRACTION
from multilane.client.group.session import GroupSession
from multilane.client.net.request_state import RequestBackoff
from multilane.errors import NetworkError, UnsupportedVersion
from multilane.wire.messages import ApiKey
from response_builder import make, response_parts


def test_under_kip_848_without_a_word_about_the_session_it_is_three_intervals():
    harness = Harness()
    harness.subscribe("t")
    assert harness.member.fenced_after(None) == inf
    harness.said(100.0)
    harness.now = 103.0
    harness.answer(1, {T: []})
    assert harness.member.fenced_after(None) == pytest.approx(100.0 + 3 * INTERVAL / HEARTBEAT_FRACTION), (
        "since it was sent"
    )
    assert harness.member.fenced_after(45.0) == 145.0


def test_a_heartbeat_that_fails_or_whose_answer_comes_late_does_not_prolong():
    harness = Harness()
    harness.settle(0)
    before = harness.member.fenced_after(45.0)
    harness.said(harness.now + INTERVAL)
    harness.fail(NetworkError("gone"))
    assert harness.member.fenced_after(45.0) == before
    harness.said(harness.now + 10)
    sent, harness.now = harness.now, harness.now + 1_000.0
    harness.answer(1)
    assert harness.member.fenced_after(45.0) == sent + 45.0


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
    harness = ClassicHarness()
    harness.subscribe("t")
    harness.sent(ApiKey.JOIN_GROUP)
    for _ in range(100):  # nobody has answered yet, and the member is looked at now and then
        harness.poll(harness.wait)
        assert harness.member.fenced_after(None) > harness.now
    harness = ClassicHarness()
    harness.settle(classic_partitions("t", 0))
    session = harness.member._policy.group.session_timeout
    harness.sent(ApiKey.HEARTBEAT, later=30.0)
    sent = harness.now
    assert harness.member.fenced_after(None) < sent + session
    harness.now += 1_000.0
    harness.answer(ApiKey.HEARTBEAT)
    assert harness.member.fenced_after(None) == sent + session, "since it was sent, not since it was answered"


def held(where):
    """A cooperative member that holds a partition while the coordinator holds its JoinGroup or SyncGroup."""
    harness = ClassicHarness("cooperative-sticky")
    harness.settle(classic_partitions("t", 0), protocol="cooperative-sticky")
    harness.now += 10.0
    harness.answer(ApiKey.HEARTBEAT, error_code=27)  # the group rebalances
    harness.sent(ApiKey.JOIN_GROUP)
    if where is ApiKey.SYNC_GROUP:
        harness.join(2, protocol="cooperative-sticky")
        harness.sent(ApiKey.SYNC_GROUP)
    assert harness.member.owned
    return harness, harness.member._policy.group.session_timeout


@pytest.mark.parametrize("where", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_nor_is_one_with_partitions_however_long_the_others_take(where):
    harness, session = held(where)
    began = harness.now
    while harness.now < began + 3 * session:
        harness.poll(min(harness.wait, session))
        assert harness.member.fenced_after(None) > harness.now
        if any(request.api is ApiKey.HEARTBEAT for request in harness.open):
            harness.answer(ApiKey.HEARTBEAT)


@pytest.mark.parametrize("where", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP])
def test_one_that_was_stopped_meanwhile_is_fenced_until_a_heartbeat_is_answered(where):
    harness, session = held(where)
    harness.now += 2 * session  # the answer came, and after it the session ended, while the process was stopped
    assert harness.member.fenced_after(None) < harness.now
    harness.poll()
    assert harness.member.fenced_after(None) < harness.now, "to look again is not to have been heard"
    if where is ApiKey.JOIN_GROUP:
        harness.join(2, protocol="cooperative-sticky")
        harness.poll()
        assert harness.member.fenced_after(None) < harness.now, "an old answer"
    harness.answer(ApiKey.HEARTBEAT)
    harness.sync(classic_partitions("t", 0))
    harness.poll()
    assert harness.member.fenced_after(None) > harness.now
