"""Where failed records go, rule by rule."""

from __future__ import annotations

import pytest

from multilane.outcome.headers import (
    ERROR_CLASS,
    ERROR_COUNT,
    ERROR_MESSAGE,
    ERROR_STACK,
    ERROR_STACK_BYTES,
    RETRY_COUNT,
    TARGET_TOPIC,
)
from multilane.outcome.next_step import LastStep, Publish, RetryPolicy, after_failure, attempt, follow, undecodable
from unit.outcome.records import read_back, record

FULL = RetryPolicy("orders", "orders.retry", "orders.error", retry_count=3)
NO_RETRY = RetryPolicy("orders", error="orders.error")
BOOM = ValueError("boom")
ABOUT = ((ERROR_CLASS, b"ValueError"), (ERROR_STACK, b"ValueError: boom"))


def test_from_the_main_topic_to_the_retry_topic():
    copy = after_failure(FULL, record(headers=(("a", b"1"),)), BOOM)
    assert copy == Publish(
        "orders.retry",
        None,
        b"k",
        b"v",
        (("a", b"1"), (RETRY_COUNT, b"0"), (ERROR_MESSAGE, b"ValueError: boom"), *ABOUT),
        "orders-3@17",
    )


@pytest.mark.parametrize(("before", "after"), [(b"0", b"1"), (b"1", b"2"), (b"junk", b"1"), (b"-1", b"0")])
def test_from_the_retry_topic_again(before, after):
    copy = after_failure(FULL, record("orders.retry", ((RETRY_COUNT, before),)), BOOM)
    assert copy.topic == "orders.retry"
    assert dict(copy.headers)[RETRY_COUNT] == after


@pytest.mark.parametrize("count", [b"2", b"3", b"2147483647"])
def test_from_the_retry_topic_to_the_error_topic(count):
    copy = after_failure(FULL, record("orders.retry", ((RETRY_COUNT, count), (ERROR_COUNT, b"4"))), BOOM)
    assert copy.topic == "orders.error"
    assert copy.headers == (
        (ERROR_COUNT, b"5"),
        (TARGET_TOPIC, b"orders.retry"),
        (ERROR_MESSAGE, b"ValueError: boom; reached the maximum retry count of 3"),
        *ABOUT,
    )


def raised():
    try:
        return list(range(3))[17]
    except IndexError as error:
        return error


def test_copies_carry_the_class_and_the_stack():
    headers = dict(after_failure(FULL, record(), raised()).headers)
    assert headers[ERROR_CLASS] == b"IndexError"
    assert b"in raised" in headers[ERROR_STACK]
    assert headers[ERROR_STACK].endswith(b"IndexError: list index out of range")


def test_the_stack_is_bounded_and_replaced_at_each_round():
    copy = after_failure(FULL, record(), ValueError("\u65e5" * 5_000))
    for _ in range(5):
        copy = after_failure(FULL, read_back(copy), ValueError("\u65e5" * 5_000))
        assert [name for name, _ in copy.headers].count(ERROR_STACK) == 1
        assert len(dict(copy.headers)[ERROR_STACK]) <= ERROR_STACK_BYTES


def test_the_stack_is_left_out_on_request_and_an_older_one_goes():
    retry_policy = RetryPolicy("orders", "orders.retry", "orders.error", with_stack=False)
    headers = dict(after_failure(retry_policy, record(headers=((ERROR_STACK, b"of last week"),)), raised()).headers)
    assert ERROR_STACK not in headers
    assert headers[ERROR_CLASS] == b"IndexError"


def test_an_error_record_without_a_retry_topic_still_names_its_target():
    """Without a retry topic the error record had no target, and the error consumer dropped it silently."""
    copy = after_failure(NO_RETRY, record(), BOOM)
    assert copy.topic == "orders.error"
    written = {ERROR_COUNT: b"0", TARGET_TOPIC: b"orders", ERROR_MESSAGE: b"ValueError: boom"}
    assert dict(copy.headers) == written | dict(ABOUT)


def test_rounds_without_a_retry_topic_are_counted():
    """Its count was set to 0 each time: such a record would have been retried for ever."""
    copy = after_failure(NO_RETRY, record(headers=((ERROR_COUNT, b"0"),)), BOOM)
    assert dict(copy.headers)[ERROR_COUNT] == b"1"


def test_without_topics_the_last_step_remains():
    assert after_failure(RetryPolicy("orders"), record(), BOOM) == LastStep(
        "the handler failed, and there is no error topic"
    )
    retry_policy = RetryPolicy("orders", "orders.retry", retry_count=1)
    step = after_failure(retry_policy, record("orders.retry"), BOOM)
    assert step == LastStep("reached the maximum retry count of 1, and there is no error topic")


def test_a_retry_topic_means_at_least_one_attempt():
    retry_policy = RetryPolicy("orders", "orders.retry", "orders.error", retry_count=0)
    assert after_failure(retry_policy, record(), BOOM).topic == "orders.retry"
    assert after_failure(retry_policy, record("orders.retry", ((RETRY_COUNT, b"0"),)), BOOM).topic == "orders.error"


@pytest.mark.parametrize("topic", ["orders", "orders.retry"])
def test_what_cannot_be_decoded_is_an_error_at_once(topic):
    copy = undecodable(FULL, record(topic, value=b"\xff{"), BOOM)
    assert (copy.topic, copy.value) == ("orders.error", b"\xff{")
    headers = dict(copy.headers)
    assert headers[TARGET_TOPIC] == b"orders.retry"
    assert headers[ERROR_MESSAGE] == b"ValueError: boom; the payload cannot be decoded"


def test_what_can_never_be_decoded_ends():
    """Each time it comes back its count grows, until the error consumer sends it to the last step."""
    copy = undecodable(FULL, record(), BOOM)
    assert dict(copy.headers)[ERROR_COUNT] == b"1"
    again = undecodable(FULL, record("orders.retry", copy.headers), BOOM)
    assert dict(again.headers)[ERROR_COUNT] == b"2"
    assert len(again.headers) == len(copy.headers)


def test_what_cannot_be_decoded_without_an_error_topic():
    step = undecodable(RetryPolicy("orders", "orders.retry", retry_count=1), record(), BOOM)
    assert step == LastStep("the payload cannot be decoded, and there is no error topic")


@pytest.mark.parametrize(("key", "value"), [(None, None), (None, b""), (b"", None), (b"\x00\xff", b"\xff" * 10)])
def test_key_and_value_are_not_touched(key, value):
    for copy in (
        after_failure(FULL, record(key=key, value=value), BOOM),
        after_failure(NO_RETRY, record(key=key, value=value), BOOM),
        follow(FULL, record(key=key, value=value)),
    ):
        assert (copy.key, copy.value) == (key, value)


def test_with_order_by_key_copies_stay_in_their_partition():
    retry_policy = RetryPolicy("orders", "orders.retry", "orders.error", retry_count=1, keeps_partition=True)
    assert after_failure(retry_policy, record(partition=5), BOOM).partition == 5
    assert follow(retry_policy, record(partition=5)).partition == 5
    error = after_failure(retry_policy, record("orders.retry", partition=5), BOOM)
    assert (error.topic, error.partition) == ("orders.error", None)


def test_a_follower_has_all_its_attempts_before_it():
    copy = follow(FULL, record(headers=(("a", b"1"), (RETRY_COUNT, b"7"))))
    assert copy.headers == (("a", b"1"), (RETRY_COUNT, b"-1"))
    assert attempt(read_back(copy), FULL) == 1
    failed = after_failure(FULL, read_back(copy), BOOM)
    assert dict(failed.headers)[RETRY_COUNT] == b"0"
    assert attempt(read_back(failed), FULL) == 2


def test_a_follower_that_is_in_the_retry_topic_keeps_its_count():
    headers = ((RETRY_COUNT, b"2"), ("a", b"1"))
    assert follow(FULL, record("orders.retry", headers)).headers == headers
    assert follow(FULL, record("orders.retry")).headers == ()


def test_nobody_follows_without_a_retry_topic():
    with pytest.raises(ValueError, match="no retry topic"):
        follow(NO_RETRY, record())


@pytest.mark.parametrize(
    ("retry_policy", "topic", "headers", "number"),
    [
        (FULL, "orders", (), 1),
        (FULL, "orders.retry", ((RETRY_COUNT, b"0"),), 2),
        (FULL, "orders.retry", ((RETRY_COUNT, b"2"),), 4),
        (FULL, "orders.retry", ((ERROR_COUNT, b"1"),), 5),
        (FULL, "orders.retry", ((ERROR_COUNT, b"2"), (RETRY_COUNT, b"1")), 9),
        (NO_RETRY, "orders", (), 1),
        (NO_RETRY, "orders", ((ERROR_COUNT, b"0"),), 2),
        (NO_RETRY, "orders", ((ERROR_COUNT, b"3"),), 5),
    ],
)
def test_attempts_are_counted_from_one(retry_policy, topic, headers, number):
    assert attempt(record(topic, headers), retry_policy) == number
