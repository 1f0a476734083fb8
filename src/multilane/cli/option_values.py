"""Texts of options as values: times, durations, rates. What is wrong with one is exit code 2.

Thread: none (pure).
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

import typer

_RATE: Final = re.compile(r"(?P<rate>[0-9]{1,9}(?:\.[0-9]+)?)(?:/s)?")


class Output(StrEnum):
    """What `--output` accepts."""

    table = "table"
    json = "json"


def moment(text: str | None, name: str) -> int | None:
    """Milliseconds since 1970."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no time; write 2026-01-31T12:00:00", param_hint=name) from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)


def duration(text: str, name: str) -> float:
    """Seconds, more than none."""
    from multilane.config.app.units import NotAUnit, parse_duration  # with `multilane --help` nobody needs it

    try:
        seconds = parse_duration(text)
    except NotAUnit as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=name) from None
    if seconds <= 0:
        raise typer.BadParameter(f"{text!r}: it has to be longer than nothing", param_hint=name)
    return seconds


def rate_of(text: str | None) -> float | None:
    """Records a second."""
    if text is None:
        return None
    found = _RATE.fullmatch(text.strip())
    if found is None or float(found["rate"]) <= 0:
        raise typer.BadParameter(f"{text!r} is no rate; write 100/s", param_hint="rate")
    return float(found["rate"])


def time_span(last: str | None, since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """[from, to) in ms since 1970; None: without a bound."""
    begin, end = moment(since, "since"), moment(until, "until")
    if last is not None:
        from multilane.clock import SystemClock

        if begin is not None or end is not None:
            raise typer.BadParameter("--last is a time by itself: leave --since and --until out", param_hint="last")
        return round((SystemClock().wall() - duration(last, "last")) * 1_000), None
    if begin is not None and end is not None and begin >= end:
        raise typer.BadParameter("--since is not before --until", param_hint="since")
    return begin, end
