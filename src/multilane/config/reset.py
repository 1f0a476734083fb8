"""`auto.offset.reset` and `lost.position.reset`: where a partition without a valid position starts.

Thread: none (pure).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final

from multilane.errors import ConfigError, printable


class ResetPolicy(Enum):
    """NONE is an error for the caller; the others choose a new position."""

    NONE = "none"
    EARLIEST = "earliest"
    LATEST = "latest"
    BY_DURATION = "by_duration"


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The policy; `duration` (seconds back from now) applies only to BY_DURATION."""

    policy: ResetPolicy = ResetPolicy.NONE
    duration: float = 0.0


_WORDS: Final = {
    "none": ResetPolicy.NONE,
    "error": ResetPolicy.NONE,
    "earliest": ResetPolicy.EARLIEST,
    "smallest": ResetPolicy.EARLIEST,
    "beginning": ResetPolicy.EARLIEST,
    "oldest": ResetPolicy.EARLIEST,
    "latest": ResetPolicy.LATEST,
    "largest": ResetPolicy.LATEST,
    "end": ResetPolicy.LATEST,
    "newest": ResetPolicy.LATEST,
}
_BY_DURATION: Final = "by_duration:"

# Java's Duration: a sign for the whole and for each part, days of 24 hours, a fraction in the seconds only.
_DURATION: Final = re.compile(
    r"(?P<sign>[-+]?)P(?:(?P<days>[-+]?\d{1,12})D)?"
    r"(?P<time>T(?:(?P<hours>[-+]?\d{1,12})H)?(?:(?P<minutes>[-+]?\d{1,12})M)?"
    r"(?:(?P<seconds>[-+]?\d{1,12})(?:[.,](?P<fraction>\d{1,9}))?S)?)?",
    re.ASCII | re.IGNORECASE,
)


def parse_duration(text: str) -> float | None:
    """Seconds of an ISO 8601 duration as Java parses it, or None if it is not one."""
    match = _DURATION.fullmatch(text)
    if match is None or match["time"] in ("T", "t"):
        return None
    parts = [match[name] for name in ("days", "hours", "minutes", "seconds")]
    if all(part is None for part in parts):
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in parts)
    fraction = float(f"0.{match['fraction'] or 0}")
    if (match["seconds"] or "").startswith("-"):
        fraction = -fraction
    total = days * 86_400 + hours * 3_600 + minutes * 60 + seconds + fraction
    return -total if match["sign"] == "-" else total


def parse_reset(key: str, text: str) -> OffsetReset:
    """The policy with this name."""
    word = text.strip()
    policy = _WORDS.get(word.lower())
    if policy is not None:
        return OffsetReset(policy)
    if not word.lower().startswith(_BY_DURATION):
        raise ConfigError(
            f"{key}: {printable(text, 80)!r} is not valid; write none, earliest, latest or by_duration:<ISO 8601>, "
            "for example by_duration:P1DT12H"
        )
    seconds = parse_duration(word[len(_BY_DURATION) :])
    if seconds is None:
        raise ConfigError(
            f"{key}: {printable(text, 80)!r} has no ISO 8601 duration; write for example by_duration:P1DT12H"
        )
    if seconds < 0:
        raise ConfigError(f"{key}: {printable(text, 80)!r} is negative; the duration counts back from now")
    return OffsetReset(ResetPolicy.BY_DURATION, seconds)


def reset_of_lost(reset: OffsetReset, word: str) -> OffsetReset:
    """The policy for a position that the log no longer has: NONE stays an error."""
    if word == "earliest" and reset.policy is not ResetPolicy.NONE:
        return OffsetReset(ResetPolicy.EARLIEST)
    return reset
