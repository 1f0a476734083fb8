"""`from` of a consumer and `begin` of a subscription."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.config.app.kinds import Unfit
from multilane.config.app.late_start import LOG_END, LOG_START, checked_late_start, milliseconds_of, parse_late_start
from multilane.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("earliest", LOG_START),
        ("Oldest", LOG_START),
        ("latest", LOG_END),
        ("newest", LOG_END),
        ("2026-05-01", "2026-05-01T00:00:00+00:00"),
        ("2026-05-01T12:00:00Z", "2026-05-01T12:00:00+00:00"),
        ("2026-05-01T12:00:00+02:00", "2026-05-01T10:00:00+00:00"),
        (datetime(2026, 5, 1, tzinfo=UTC), "2026-05-01T00:00:00+00:00"),
    ],
)
def test_words_and_times(text, means):
    assert parse_late_start(text) == checked_late_start(text) == means


def test_a_time_counts_in_milliseconds():
    assert milliseconds_of(parse_late_start("1970-01-02T00:00:00.005Z")) == 86_400_005


@pytest.mark.parametrize("text", ["", "soon", "1969-12-31", "9999-12-31T23:59:59-23:00", "12", None, [], "2026-13-01"])
def test_anything_else_is_refused(text):
    with pytest.raises(ConfigError, match=r"write (earliest, latest, or a time such as|a string)"):
        checked_late_start(text)


@given(st.text())
def test_no_text_is_a_surprise(text):
    try:
        means = parse_late_start(text)
    except Unfit:
        return
    assert means in (LOG_START, LOG_END) or milliseconds_of(means) >= 0
