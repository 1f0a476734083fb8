"""The whole way of a record that never succeeds: how often it is attempted, and what it looks like at each hop."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from multilane.outcome.error_policy import ErrorRules, GiveUp, KeepRecord, Republish, WaitUntilDue, error_topics, judge
from multilane.outcome.headers import (
    ERROR_CLASS,
    ERROR_COUNT,
    ERROR_MESSAGE,
    ERROR_MESSAGE_BYTES,
    ERROR_STACK,
    RETRY_COUNT,
    TARGET_TOPIC,
    retry_count,
)
from multilane.outcome.next_step import LastStep, RetryPolicy, after_failure, attempt, follow, undecodable
from multilane.wire.records.record import Record
from unit.outcome.records import read_back

NOW = 2_000_000_000_000
OWN_VALUES = st.one_of(
    st.none(), st.binary(max_size=12), st.sampled_from([b"0", b"-1", b"1", b"99999999999", b"x", b"payments"])
)
OURS = frozenset({RETRY_COUNT, ERROR_COUNT, TARGET_TOPIC, ERROR_MESSAGE, ERROR_CLASS, ERROR_STACK})
OTHERS = st.lists(st.tuples(st.text(max_size=4).filter(lambda n: n not in OURS), st.none() | st.binary(max_size=4)))
HOSTILE = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(sorted(OURS)), OWN_VALUES),
        st.tuples(st.text(max_size=4), st.none() | st.binary(max_size=4)),
        st.tuples(st.sampled_from(["x-retrycount", "X-Retrycount"]), OWN_VALUES),
    )
).map(tuple)
FLOWS = st.builds(
    RetryPolicy,
    main=st.just("main"),
    retry=st.sampled_from([None, "retry"]),
    error=st.sampled_from([None, "error"]),
    retry_count=st.integers(0, 4),
    max_error_count=st.integers(0, 3),
    keeps_partition=st.booleans(),
)
PAYLOAD = st.none() | st.binary(max_size=8)


def others(headers):
    return [(name, value) for name, value in headers if name not in OURS]


def rules_of(retry_policy):
    return ErrorRules(error_topics([retry_policy]), retry_policy.max_error_count)


def journey(retry_policy, record, *, fails=after_failure):
    """Every record that a handler gets on the way, until there is no way left."""
    handled = []
    while True:
        assert len(handled) < 1_000, "it goes round for ever"
        handled.append(record)
        outcome = fails(retry_policy, record, ValueError(f"attempt {len(handled)}" + "!" * 5_000))
        if isinstance(outcome, LastStep):
            return handled
        record = read_back(outcome)
        if outcome.topic == retry_policy.error:
            verdict = judge(rules_of(retry_policy), record, NOW)
            if not isinstance(verdict, Republish):
                assert isinstance(verdict, GiveUp)
                return handled
            record = read_back(verdict.copy)


def attempts_expected(retry_policy):
    per_round, rounds = max(1, retry_policy.retry_count), 1 + retry_policy.max_error_count
    if retry_policy.error is None:
        return 1 if retry_policy.retry is None else 1 + per_round
    return 1 + rounds if retry_policy.retry is None else 1 + per_round * rounds


@given(FLOWS, OTHERS.map(tuple), PAYLOAD, PAYLOAD)
def test_attempts_are_one_plus_n_times_one_plus_m(retry_policy, headers, key, value):
    start = Record("main", 2, 5, 0, 0, key, value, headers)
    handled = journey(retry_policy, start)
    assert len(handled) == attempts_expected(retry_policy)
    assert [attempt(r, retry_policy) for r in handled] == list(range(1, len(handled) + 1))
    for record in handled:
        assert (record.key, record.value) == (key, value)
        assert others(record.headers) == list(headers), "others' headers keep order, doubles and bytes"
        assert len(record.headers) - len(headers) <= len(OURS)
        message = dict(record.headers).get(ERROR_MESSAGE)
        assert message is None or len(message) <= ERROR_MESSAGE_BYTES


@given(FLOWS.filter(lambda f: f.retry is not None), OTHERS.map(tuple))
def test_who_followed_its_key_has_as_many_attempts(retry_policy, headers):
    start = read_back(follow(retry_policy, Record("main", 2, 5, 0, 0, b"k", b"v", headers)))
    assert retry_count(start.headers) == -1
    handled = journey(retry_policy, start)
    assert len(handled) == attempts_expected(retry_policy)
    assert [attempt(r, retry_policy) for r in handled] == list(range(1, len(handled) + 1))


@given(FLOWS, HOSTILE, st.sampled_from(["main", "retry"]))
def test_hostile_headers_neither_loop_nor_grow(retry_policy, headers, topic):
    for record in journey(retry_policy, Record(topic, 0, 0, 0, 0, b"k", b"v", headers)):
        assert others(record.headers) == others(headers)
        assert len(record.headers) <= len(headers) + len(OURS)


@given(FLOWS, HOSTILE)
def test_what_cannot_be_decoded_ends(retry_policy, headers):
    handled = journey(retry_policy, Record("main", 0, 0, 0, 0, None, b"\xff", headers), fails=undecodable)
    assert len(handled) <= retry_policy.max_error_count + 2
    assert all(r.value == b"\xff" for r in handled)


@given(st.lists(FLOWS, min_size=1, max_size=3), HOSTILE, st.sampled_from(["error", "other"]), st.booleans())
def test_a_forged_header_never_chooses(retry_policies, headers, topic, is_new):
    """Whatever is in the headers, a record only goes back to a topic of a group that uses this error topic."""
    rules = ErrorRules(error_topics(retry_policies))
    verdict = judge(rules, Record(topic, 0, 0, NOW if is_new else 0, 0, None, None, headers), NOW)
    using = [f for f in retry_policies if f.error == topic]
    if isinstance(verdict, Republish):
        assert verdict.copy.topic in {f.main for f in using} | {f.retry for f in using}
        assert others(verdict.copy.headers) == others(headers)
    else:
        assert isinstance(verdict, WaitUntilDue) if is_new else isinstance(verdict, KeepRecord | GiveUp)


@given(FLOWS.filter(lambda f: f.error is not None), HOSTILE, st.sampled_from(["main", "retry"]))
def test_an_error_record_always_names_its_target(retry_policy, headers, topic):
    for fails in (after_failure, undecodable):
        outcome = fails(retry_policy, Record(topic, 0, 0, 0, 0, None, None, headers), ValueError())
        if outcome.topic == retry_policy.error:
            assert [v for n, v in outcome.headers if n == TARGET_TOPIC] == [
                (retry_policy.retry or retry_policy.main).encode()
            ]
