"""Schedules: cron, zones, `@every`; the next start after any time."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.config.app.schedule import NotASchedule, Schedule


def at(*parts):
    return datetime(*parts, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "zone", "now", "expected"),
    [
        ("*/5 * * * *", "UTC", at(2026, 3, 1, 10, 2), at(2026, 3, 1, 10, 5)),
        ("*/5 * * * *", "UTC", at(2026, 3, 1, 10, 5), at(2026, 3, 1, 10, 10)),
        ("0 */5 * * *", "UTC", at(2026, 3, 1, 10, 5), at(2026, 3, 1, 15, 0)),
        ("30 3 * * *", "Europe/Berlin", at(2026, 1, 1, 0, 0), at(2026, 1, 1, 2, 30)),
        ("30 3 * * *", "Europe/Berlin", at(2026, 7, 1, 0, 0), at(2026, 7, 1, 1, 30)),
        ("CRON_TZ=Asia/Tokyo 0 9 * * *", "Europe/Berlin", at(2026, 7, 1, 1, 0), at(2026, 7, 2, 0, 0)),
        ("TZ=Asia/Tokyo 0 9 * * *", None, at(2026, 7, 1, 1, 0), at(2026, 7, 2, 0, 0)),
        ("0 12 ? * MON-FRI", "UTC", at(2026, 8, 1, 0, 0), at(2026, 8, 3, 12, 0)),
        ("@hourly", "UTC", at(2026, 8, 1, 0, 0, 1), at(2026, 8, 1, 1, 0)),
        ("@daily", "UTC", at(2026, 8, 1, 0, 0, 1), at(2026, 8, 2)),
        ("@midnight", "UTC", at(2026, 8, 1, 0, 0, 1), at(2026, 8, 2)),
        ("@weekly", "UTC", at(2026, 8, 1), at(2026, 8, 2)),
        ("@monthly", "UTC", at(2026, 8, 1), at(2026, 9, 1)),
        ("@yearly", "UTC", at(2026, 8, 1), at(2027, 1, 1)),
        ("@annually", "UTC", at(2026, 8, 1), at(2027, 1, 1)),
        ("@every 10s", None, at(2026, 8, 1, 0, 0, 1, 999), at(2026, 8, 1, 0, 0, 11)),
        ("@every 1h30m", None, at(2026, 8, 1), at(2026, 8, 1, 1, 30)),
        ("@every 5ms", None, at(2026, 8, 1), at(2026, 8, 1, 0, 0, 1)),
    ],
)
def test_the_next_moment(text, zone, now, expected):
    assert Schedule.parse(text, zone).next_after(now) == expected


def test_an_hour_that_daylight_saving_skips():
    # 2026-03-29 02:30 does not exist in Berlin; Debian's cron runs such a job right after the change.
    schedule = Schedule.parse("30 2 * * *", "Europe/Berlin")
    assert schedule.next_after(at(2026, 3, 29, 0, 0)) == at(2026, 3, 29, 1, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "five fields"),
        ("* * * *", "this one has 4"),
        ("* * * * * *", "this one has 6"),
        ("61 * * * *", "bad minute"),
        ("* * 31 2 *", "bad day-of-month"),
        ("* * * * 1#2/3", "bad day-of-week"),
        ("* * L/2,L 2 1L/3", "write five fields"),
        ("@often", "write one of @yearly"),
        ("@daily 5", "write one of @yearly"),
        ("@every", "@every: "),
        ("@every 10", "needs a unit"),
        ("@every 0s", "above zero"),
        ("@every -5s", "negative"),
        ("CRON_TZ=Nowhere/Town * * * * *", "time zone is unknown"),
        ("CRON_TZ=../../etc/passwd * * * * *", "time zone is unknown"),
        ("CRON_TZ=UTC", "five fields"),
        ("*" * 500, "too long"),
    ],
)
def test_invalid_schedules(text, message):
    with pytest.raises(NotASchedule, match=message):
        Schedule.parse(text)


@given(st.text(alphabet="0123456789*/-,#LW @?ABCEMORNUTYevry.=_\u0660", max_size=40))
def test_any_text_is_read_or_refused(text):
    try:
        schedule = Schedule.parse(text)
    except NotASchedule:
        return
    now = at(2026, 5, 5, 5, 5, 5)
    assert schedule.next_after(now) > now


@given(st.integers(0, 366 * 24 * 60), st.sampled_from(["Europe/Berlin", "America/New_York", "UTC", None]))
def test_the_next_moment_is_ahead_with_none_in_between(minutes, zone):
    schedule = Schedule.parse("*/15 * * * *", zone)
    now = at(2026, 1, 1) + timedelta(minutes=minutes)
    found = schedule.next_after(now)
    assert timedelta(0) < found - now <= timedelta(minutes=15)


def test_without_a_zone_the_machine_counts_like_the_zone_it_is_in():
    # Across both clock changes of a year in Berlin: a missing hour and a repeated one.
    code = """
from datetime import UTC, datetime, timedelta
from multilane.config.app.schedule import Schedule
for start in (datetime(2026, 3, 28, 22, 7, tzinfo=UTC), datetime(2026, 10, 24, 22, 7, tzinfo=UTC)):
    for text in ("*/15 * * * *", "30 2 * * *", "0 * * * *"):
        here, there = Schedule.parse(text), Schedule.parse(text, "Europe/Berlin")
        for step in range(48):
            now = start + timedelta(minutes=10 * step)
            if here.next_after(now) != there.next_after(now):
                print(text, now, here.next_after(now), there.next_after(now))
"""
    env = {**os.environ, "TZ": "Europe/Berlin"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == ""
