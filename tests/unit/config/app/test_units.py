"""Durations and sizes: parsing Go's notation, and formatting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.config.app.units import (
    LARGEST_SIZE,
    NotAUnit,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300.0),
        ("1.5s", 1.5),
        ("1h30m", 5400.0),
        ("300ms", 0.3),
        ("10us", 1e-5),
        ("10\u00b5s", 1e-5),
        ("10\u03bcs", 1e-5),
        ("1ns", 1e-9),
        (".5s", 0.5),
        ("1.s", 1.0),
        ("+2s", 2.0),
        (" 2s ", 2.0),
        ("0", 0.0),
        ("0s", 0.0),
        ("1h1m1s1ms", 3661.001),
    ],
)
def test_go_durations(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", ".s", "5 m", "5x", "5m 3s", "1,5s", "m5", "5d", "1e3s", "\u0665s", "9" * 500]
)
def test_invalid_durations(text):
    with pytest.raises(NotAUnit, match="write for example"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["30", "1.5", "300"])
def test_a_number_alone_is_refused_with_the_reason(text):
    with pytest.raises(NotAUnit, match="needs a unit"):
        parse_duration(text)


def test_negative_and_endless_durations():
    with pytest.raises(NotAUnit, match="negative"):
        parse_duration("-5s")
    with pytest.raises(NotAUnit, match="292 years"):
        parse_duration("9999999999999999999h")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("1mb", 1 << 20),
        ("1,5mb", 3 << 19),
        ("1.5MB", 3 << 19),
        ("64kb", 1 << 16),
        ("64 KiB", 1 << 16),
        ("2gb", 2 << 30),
        ("100B", 100),
        ("100", 100),
        ("0", 0),
        ("5k", 5120),
        ("0,0001kb", 0),
    ],
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "mb", "-1", "1tb", "1.5", "1.5b", "1_000", "1e6", "\u0661", "9" * 30, "9" * 20 + "gb"]
)
def test_invalid_sizes(text):
    with pytest.raises(NotAUnit):
        parse_size(text)


@given(st.integers(0, 2**52))
def test_durations_come_back(nanoseconds):
    seconds = nanoseconds / 10**9
    assert parse_duration(format_duration(seconds)) == seconds


@given(st.integers(0, LARGEST_SIZE))
def test_sizes_come_back(size):
    assert parse_size(format_size(size)) == size


@given(st.text(max_size=30))
def test_any_text_is_read_or_refused(text):
    for parse in (parse_duration, parse_size):
        try:
            assert parse(text) >= 0
        except NotAUnit:
            continue


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(300.0, "5m"), (5400.0, "1h30m"), (90.5, "1m30.5s"), (0.3, "300ms"), (1e-9, "1ns"), (0.0, "0s"), (10.0, "10s")],
)
def test_durations_are_written_short(seconds, text):
    assert format_duration(seconds) == text
