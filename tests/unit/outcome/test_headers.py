"""Our headers: how invalid values are read, and what a copy's headers look like."""

from __future__ import annotations

import pytest

from multilane.outcome.failure_headers import error_in, origin_in, target_in
from multilane.outcome.headers import (
    ERROR_COUNT,
    ERROR_MESSAGE,
    RETRY_COUNT,
    TARGET_TOPIC,
    described,
    error_count,
    error_message,
    number,
    replaced,
    retry_count,
    target_topic,
)


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (b"0", 0),
        (b"7", 7),
        (b"+7", 7),
        (b"-1", -1),
        (b"-2", 0),
        (b"2147483647", 2147483647),
        (b"2147483648", 0),
        (b"9" * 5_000, 0),
        (b"", 0),
        (None, 0),
        (b" 3", 0),
        (b"1_0", 0),
        (b"3.0", 0),
        (b"three", 0),
        ("\u0663".encode(), 0),
        (b"\xff\xfe", 0),
    ],
)
def test_a_retry_count_is_a_plain_number_or_nothing(value, count):
    assert retry_count(((RETRY_COUNT, value),)) == count


def test_an_error_count_is_never_negative():
    assert error_count(((ERROR_COUNT, b"-1"),)) == 0
    assert error_count(()) == 0


def test_the_last_of_several_counts():
    headers = ((RETRY_COUNT, b"9"), ("x", b"1"), (RETRY_COUNT, b"2"))
    assert retry_count(headers) == 2
    assert retry_count((*headers, (RETRY_COUNT, b"junk"))) == 0


def test_names_are_compared_to_the_letter():
    assert retry_count((("x-retrycount", b"5"),)) == 0


@pytest.mark.parametrize("value", [None, b"", b"\xff", "zähler".encode(), b"t" * 250])
def test_what_cannot_be_a_topic_is_none(value):
    assert target_topic(((TARGET_TOPIC, value),)) is None


def test_ours_are_replaced_in_place_and_others_are_left_alone():
    headers = (
        ("a", b"1"),
        (RETRY_COUNT, b"0"),
        ("a", b"1"),
        ("b", None),
        (RETRY_COUNT, b"8"),
        (TARGET_TOPIC, b"gone"),
        ("a", b"2"),
    )
    assert replaced(headers, {RETRY_COUNT: b"1", TARGET_TOPIC: None, ERROR_COUNT: b"4"}) == (
        ("a", b"1"),
        (RETRY_COUNT, b"1"),
        ("a", b"1"),
        ("b", None),
        ("a", b"2"),
        (ERROR_COUNT, b"4"),
    )


def test_a_count_stays_readable():
    assert error_count(((ERROR_COUNT, number(2**31)),)) == 2**31 - 1


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("no stock"), b"ValueError: no stock"),
        (ValueError(), b"ValueError"),
        ("plain", b"plain"),
        (Unspeakable(), b"Unspeakable: (Unspeakable without a printable text)"),
        (ValueError("\ud800"), b"ValueError: ?"),
    ],
)
def test_an_error_is_described_by_type_and_text(error, text):
    assert described(error) == text


@pytest.mark.parametrize("letter", ["x", "ä", "\u20ac", "\U0001f600"])
def test_a_long_text_is_cut_at_a_character_and_the_note_is_kept(letter):
    made = described(ValueError(letter * 10_000_000), "reached the end")
    assert 997 <= len(made) <= 1_000
    assert made.decode().endswith(letter + "; reached the end")


def test_an_error_message_that_is_no_text_can_be_read():
    assert error_message(((ERROR_MESSAGE, b"\xffx"),)) == "\ufffdx"
    assert error_message(()) is None


def test_springs_headers_are_read_where_ours_are_absent():
    spring = (
        ("kafka_dlt-exception-fqcn", b"org.example.Wrapper"),
        ("kafka_dlt-exception-cause-fqcn", b"org.example.NoStock"),
        ("kafka_dlt-exception-message", b"none left"),
        ("kafka_dlt-original-topic", b"orders"),
        ("kafka_dlt-original-partition", (3).to_bytes(4, "big")),
        ("kafka_dlt-original-offset", (2**40).to_bytes(8, "big")),
    )
    assert error_in(spring) == "org.example.NoStock: none left"
    assert target_in(spring) == "orders"
    assert origin_in(spring) == f"orders-3@{2**40}"
    assert error_in((*spring, (ERROR_MESSAGE, b"ours"))) == "ours"
    assert target_in((*spring, (TARGET_TOPIC, b"ours"))) == "ours"
    assert origin_in((("kafka_dlt-original-topic", b"o"), ("kafka_dlt-original-offset", b"12"))) == "o"
    assert (error_in(()), target_in(()), origin_in(())) == ("", None, None)
