"""Parses the values of options: times, durations, rates. An invalid value is a usage error (exit code 2).

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
    """The values of `--output`."""

    table = "table"
    json = "json"


def moment(text: str | None, name: str) -> int | None:
    """Milliseconds since 1970."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a time; write it as 2026-01-31T12:00:00", param_hint=name) from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1_000)


def duration(text: str, name: str) -> float:
    """Seconds, more than zero."""
    from multilane.config.app.units import NotAUnit, parse_duration  # `multilane --help` does not need it

    try:
        seconds = parse_duration(text)
    except NotAUnit as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint=name) from None
    if seconds <= 0:
        raise typer.BadParameter(f"{text!r}: it must be longer than zero", param_hint=name)
    return seconds


def rate_of(text: str | None) -> float | None:
    """Records per second."""
    if text is None:
        return None
    found = _RATE.fullmatch(text.strip())
    if found is None or float(found["rate"]) <= 0:
        raise typer.BadParameter(f"{text!r} is not a rate; write it as 100/s", param_hint="rate")
    return float(found["rate"])


def time_span(last: str | None, since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """[from, to) in ms since 1970; None means unbounded."""
    begin, end = moment(since, "since"), moment(until, "until")
    if last is not None:
        from multilane.clock import SystemClock

        if begin is not None or end is not None:
            raise typer.BadParameter("--last excludes --since and --until: omit one or the other", param_hint="last")
        return round((SystemClock().wall() - duration(last, "last")) * 1_000), None
    if begin is not None and end is not None and begin >= end:
        raise typer.BadParameter("--since is not before --until", param_hint="since")
    return begin, end
