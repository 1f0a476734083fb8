"""What the error consumer decides about records and about the end of its run."""

from __future__ import annotations

import pytest

from multilane.outcome.error_policy import (
    ErrorRules,
    GiveUp,
    Handle,
    KeepRecord,
    MoveToDead,
    RedriveRun,
    Republish,
    WaitUntilDue,
    error_topics,
    judge,
    shovel_topics,
)
from multilane.outcome.headers import ERROR_COUNT, ERROR_MESSAGE, RETRY_COUNT, TARGET_TOPIC
from multilane.outcome.next_step import RetryPolicy
from unit.outcome.records import record

NOW = 10_000_000_000
OLD = NOW - 3_600_000
ORDERS = RetryPolicy("orders", "orders.retry", "shared.error", retry_count=3)
STOCK = RetryPolicy("stock", error="shared.error")
ALONE = RetryPolicy("prices", "prices.retry", "prices.error", retry_count=1)
RULES = ErrorRules(error_topics([ORDERS, STOCK, ALONE]))


def failed(topic="prices.error", headers=(), timestamp=OLD):
    return record(topic, tuple(headers), timestamp=timestamp)


def judged(error_record, rules=RULES):
    return judge(rules, error_record, NOW)


def test_back_to_its_topic_with_its_rounds_remembered():
    headers = (("a", b"1"), (ERROR_COUNT, b"1"), (TARGET_TOPIC, b"prices.retry"), (RETRY_COUNT, b"2"), ("a", b"1"))
    verdict = judged(failed(headers=headers))
    assert isinstance(verdict, Republish)
    assert (verdict.copy.topic, verdict.copy.partition, verdict.copy.key, verdict.copy.value) == (
        *("prices.retry", None),
        *(b"k", b"v"),
    )
    assert verdict.copy.headers == (("a", b"1"), (ERROR_COUNT, b"1"), (TARGET_TOPIC, b"prices.retry"), ("a", b"1"))


def test_a_record_without_a_target_goes_where_the_configuration_says():
    """An error record without X-TargetTopic (no retry topic) was dropped silently: read, ignored and committed."""
    only = ErrorRules(error_topics([RetryPolicy("stock", error="stock.error")]))
    verdict = judged(failed("stock.error"), only)
    assert isinstance(verdict, Republish)
    assert verdict.copy.topic == "stock"


@pytest.mark.parametrize(("header", "target"), [(b"orders.retry", "orders.retry"), (b"stock", "stock")])
def test_groups_that_share_an_error_topic_are_distinguished_by_the_header(header, target):
    """Of two groups with one error topic a random one got all of its records."""
    verdict = judged(failed("shared.error", [(TARGET_TOPIC, header)]))
    assert isinstance(verdict, Republish)
    assert verdict.copy.topic == target


def test_a_shared_topic_is_read_once():
    """A topic that two groups share was subscribed to twice."""
    assert sorted(RULES.topics) == ["prices.error", "shared.error"]


@pytest.mark.parametrize("topic", ["prices.error", "shared.error"])
@pytest.mark.parametrize("forged", [b"payments", b"__consumer_offsets", b"shared.error"])
def test_a_forged_header_cannot_choose(topic, forged):
    verdict = judged(failed(topic, [(TARGET_TOPIC, forged)]))
    assert isinstance(verdict, KeepRecord)
    assert forged.decode() in verdict.reason


@pytest.mark.parametrize("headers", [[(TARGET_TOPIC, b"payments")], []])
def test_with_a_dead_topic_a_record_without_a_target_goes_there_and_stops_nobody(headers):
    """One record with an unknown X-TargetTopic stopped its partition until an operator acted."""
    rules = ErrorRules(RULES.topics, dead="all.dead")
    verdict = judged(failed("shared.error", headers), rules)
    assert isinstance(verdict, MoveToDead)
    assert (verdict.copy.topic, verdict.copy.key, verdict.copy.headers) == ("all.dead", b"k", tuple(headers))
    assert "orders, orders.retry, stock" in verdict.reason


def test_what_could_be_anybodys_is_kept():
    verdict = judged(failed("shared.error"))
    assert isinstance(verdict, KeepRecord)
    assert "orders, orders.retry, stock" in verdict.reason


def test_a_topic_that_nobody_configured_is_kept():
    assert isinstance(judged(failed("other.error", [(TARGET_TOPIC, b"orders.retry")])), KeepRecord)


@pytest.mark.parametrize(
    ("age", "is_new"), [(0, True), (299_999, True), (300_000, False), (-60_000, True), (-86_400_000, False)]
)
def test_new_records_wait(age, is_new):
    assert isinstance(judged(failed(timestamp=NOW - age)), WaitUntilDue) is is_new


def test_a_record_without_a_timestamp_is_old():
    assert isinstance(judged(failed(timestamp=-1)), Republish)


@pytest.mark.parametrize(("count", "is_over"), [(b"0", False), (b"1", False), (b"2", True), (b"junk", False)])
def test_enough_rounds(count, is_over):
    assert isinstance(judged(failed(headers=[(ERROR_COUNT, count)])), GiveUp) is is_over


def test_a_new_record_waits_even_if_its_rounds_are_used_up():
    assert isinstance(judged(failed(headers=[(ERROR_COUNT, b"9")], timestamp=NOW)), WaitUntilDue)


def test_a_group_with_its_own_error_consumer_gets_its_own_records():
    rules = ErrorRules(error_topics([ORDERS, STOCK, ALONE], custom=[STOCK]))
    assert judged(failed("shared.error", [(TARGET_TOPIC, b"stock")]), rules) == Handle(STOCK)
    assert isinstance(judged(failed("shared.error", [(TARGET_TOPIC, b"orders.retry")]), rules), Republish)
    assert isinstance(judged(failed("shared.error"), rules), KeepRecord)


def test_an_error_consumer_of_the_only_group_gets_everything():
    rules = ErrorRules(error_topics([ALONE], custom=[ALONE]))
    assert judged(failed(headers=[(TARGET_TOPIC, b"whatever")]), rules) == Handle(ALONE)
    assert isinstance(judged(failed(headers=[(ERROR_COUNT, b"2")]), rules), GiveUp)


def test_two_groups_of_one_topic_that_differ_in_their_error_consumers():
    twins = [RetryPolicy("orders", None, "e"), RetryPolicy("orders", "orders.b.retry", "e", retry_count=1)]
    rules = ErrorRules(error_topics(twins, custom=twins[:1]))
    assert isinstance(judged(failed("e", [(TARGET_TOPIC, b"orders")]), rules), KeepRecord)
    assert isinstance(judged(failed("e", [(TARGET_TOPIC, b"orders.b.retry")]), rules), Republish)


def test_a_shovel_counts_and_goes_to_its_target():
    rules = ErrorRules(shovel_topics(["a", "b"], "main", []), max_error_count=3, counts_rounds=True)
    verdict = judged(failed("a", [(TARGET_TOPIC, b"forged"), (ERROR_COUNT, b"1"), (ERROR_MESSAGE, b"m")]), rules)
    assert isinstance(verdict, Republish)
    assert verdict.copy.topic == "main"
    assert verdict.copy.headers == ((TARGET_TOPIC, b"forged"), (ERROR_COUNT, b"2"), (ERROR_MESSAGE, b"m"))
    assert isinstance(judged(failed("b", [(ERROR_COUNT, b"4")]), rules), GiveUp)


def test_a_shovel_without_a_target_believes_only_what_is_allowed():
    rules = ErrorRules(shovel_topics(["a"], None, ["orders"]), counts_rounds=True)
    assert isinstance(judged(failed("a", [(TARGET_TOPIC, b"orders")]), rules), Republish)
    assert isinstance(judged(failed("a", [(TARGET_TOPIC, b"payments")]), rules), KeepRecord)
    assert isinstance(judged(failed("a"), rules), KeepRecord)


# --- the run ---------------------------------------------------------------------------------------------------------

A, B = ("e", 0), ("e", 1)


def begun():
    run = RedriveRun(ErrorRules({}, close_when_no_message=10.0), began=100.0)
    run.assign([A, B], 101.0)
    return run


def test_a_run_is_over_when_every_partition_is():
    """One quiet partition ended the whole run, and so the processing of the others."""
    run = begun()
    run.note_record(A, 110.0)
    assert run.finish_idle(111.0) == [B]
    assert not run.is_over(111.0)
    assert not run.is_finished(A)
    assert run.finish_idle(119.9) == []
    assert run.finish_idle(120.0) == [A]
    assert run.is_over(120.0)


def test_a_partition_that_stopped_is_not_waited_for():
    run = begun()
    run.finish(A, "too new")
    run.finish(B, "kept")
    run.finish(B, "later reasons do not count")
    assert run.is_over(102.0)
    assert {a.finished for a in run.partitions.values()} == {"too new", "kept"}


def test_partitions_of_a_member_that_left_begin_their_own_time():
    run = begun()
    run.finish(A, "too new")
    run.revoke([B], 105.0)
    assert run.is_over(105.0)
    run.assign([B], 109.0)
    assert not run.is_over(118.9)
    assert run.finish_idle(119.0) == [B]


def test_a_member_that_shares_with_a_newcomer_goes_on():
    """When a second member joined, the first one ended its run."""
    run = begun()
    run.revoke([B], 105.0)
    assert not run.is_over(105.0)
    assert run.is_finished(B), "it is not ours any more"
    run.note_record(B, 106.0)
    assert list(run.partitions) == [A]


def test_a_member_without_partitions_goes_when_nothing_changes():
    run = RedriveRun(ErrorRules({}, close_when_no_message=10.0), began=100.0)
    assert not run.is_over(109.9)
    assert run.is_over(110.0)
