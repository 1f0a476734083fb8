"""Where a trigger begins that comes later to a group that is shared already: `earliest`, `latest` or a time.

Thread: none (pure).

Owns the notation. A time is ISO 8601; without a time zone it is UTC.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from multilane.config.app.kinds import FieldKind, Unfit, text_of
from multilane.errors import ConfigError, printable

LOG_START: Final = "earliest"
LOG_END: Final = "latest"
_WORDS: Final = {"earliest": LOG_START, "oldest": LOG_START, "latest": LOG_END, "newest": LOG_END}
_FIX: Final = "write earliest, latest, or a time such as 2026-05-01T12:00:00Z"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def parse_late_start(value: object) -> str:
    """One of the words, or the time in UTC. Raises Unfit."""
    text = value.isoformat() if isinstance(value, datetime) else text_of(value)
    word = _WORDS.get(text.lower())
    if word is not None:
        return word
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Unfit(_FIX) from None
    in_utc = found.replace(tzinfo=UTC) if found.tzinfo is None else _in_utc(found)
    if in_utc < _EPOCH:
        raise Unfit(_FIX, what="it is before 1970")
    return in_utc.isoformat()


def checked_late_start(value: object) -> str:
    """The same, for a value that is given in code. Raises ConfigError."""
    try:
        return parse_late_start(value)
    except Unfit as error:
        what = f", {error.what}" if error.what else ""
        raise ConfigError(f"begin: {printable(str(value), 80)!r} is not a start{what}; {error.fix}") from None


def milliseconds_of(time: str) -> int:
    """Since 1970, of a time that `parse_late_start` returned."""
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(milliseconds=1)


def _in_utc(found: datetime) -> datetime:
    try:
        return found.astimezone(UTC)
    except OverflowError:
        raise Unfit(_FIX) from None


LateStart = Annotated[
    str, FieldKind(parse_late_start, {"type": "string", "examples": [LOG_START, LOG_END, "2026-05-01T12:00:00Z"]})
]
