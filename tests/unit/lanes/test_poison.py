"""A record that probably crashes its process: where it goes, and that it is never dropped."""

from __future__ import annotations

import logging

import pytest

from lane_world import PARTITION, World, until
from multilane.lanes.begun import Name
from multilane.lanes.crashes import Suspicion
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.watch import SuspectIsolation, Watch
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.interceptors import InterceptorChain
from multilane.outcome.backoff import RetryDelay
from multilane.outcome.error_policy import ErrorRules, GiveUp, error_topics, judge, republished_headers
from multilane.outcome.headers import RETRY_COUNT, SUSPECTED_POISON, TARGET_TOPIC, error_message, last_value
from multilane.outcome.next_step import LastStep, RetryPolicy, poisoned
from multilane.outcome.poison import SuspectedPoison
from multilane.wire.records.record import Record

FLOW = RetryPolicy("t", "t.retry", "t.error", retry_count=3)
HOUR = 3_600_000


def test_it_is_an_error_at_once_whatever_attempts_are_left_and_says_why():
    copy = poisoned(FLOW, Record("t.retry", 0, 7, 0, 0, b"k", b"v", ((RETRY_COUNT, b"0"),)), SuspectedPoison(3))
    assert (copy.topic, copy.key, copy.value) == ("t.error", b"k", b"v")
    assert last_value(copy.headers, SUSPECTED_POISON) == b"3"
    assert last_value(copy.headers, TARGET_TOPIC) == b"t.retry"
    assert "the process died 3 times while handling this record" in error_message(copy.headers)
    assert isinstance(poisoned(RetryPolicy("t"), Record("t", 0, 7, 0, 0, b"k", b"v"), SuspectedPoison(3)), LastStep)


def test_an_error_consumer_leaves_it_and_a_replay_takes_the_mark_off():
    headers = ((SUSPECTED_POISON, b"3"), (TARGET_TOPIC, b"t.retry"))
    rules = ErrorRules(error_topics([FLOW]), max_error_count=9)
    verdict = judge(rules, Record("t.error", 0, 0, 0, 0, b"k", b"v", headers), HOUR)
    assert isinstance(verdict, GiveUp)
    assert "probably crashes its process" in verdict.reason
    assert last_value(republished_headers(headers), SUSPECTED_POISON) is None


class Poisoned(World):
    """The record at offset 1 is convicted, and no topic takes it."""

    def __init__(self, keeping: RetryDelay | None) -> None:
        self.handled: list[int] = []
        isolation = SuspectIsolation()
        name = Name("brokers", "group", *PARTITION)
        watch = Watch(isolation, names={PARTITION.topic: name})
        rules = WorkRules(max_processing_time=60.0, retries_in_place=keeping is not None, watch=watch)
        super().__init__(self.one, rules=rules)
        self.work.settling.failures = Failing(
            FailureRoutes(RetryPolicy("t"), None, keeping=keeping), InterceptorChain("g"), self.clock
        )
        isolation.begin(name, Suspicion(convicted={1: 3}), lambda: self.frontier)

    async def one(self, record: Record) -> None:
        self.handled.append(record.offset)


@pytest.mark.parametrize("keeping", [RetryDelay("fixed", delay=0.01), None], ids=["kept", "onFailure: drop"])
async def test_without_a_place_to_go_it_stays_unhandled_and_nothing_is_committed_past_it(keeping, caplog):
    caplog.set_level(logging.WARNING)
    async with Poisoned(keeping) as world:
        await world.give(*"abcd")
        await until(lambda: len(world.handled) == 3)
        assert sorted(world.handled) == [0, 2, 3]
        assert world.frontier == 1
        assert "the process died 3 times" in caplog.text or "partition stopped at" in caplog.text
