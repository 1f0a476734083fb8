"""Error codes that brokers return, as errors.

Thread: any (values).
"""

from __future__ import annotations

from typing import Final

from multilane.broker_codes import BROKER_CODES
from multilane.errors.root import MultilaneError

_BROKER_TEXT_LIMIT: Final = 512
_UNKNOWN: Final = ("UNKNOWN_CODE", False, False)


def printable(text: str | None, limit: int = _BROKER_TEXT_LIMIT) -> str:
    """A text made safe to log: without control characters, of limited length."""
    if not text:
        return ""
    clean = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return clean if len(clean) <= limit else clean[:limit] + "..."


class BrokerError(MultilaneError):
    """A broker returned an error code."""

    def __init__(self, code: int, context: str = "", text: str | None = None) -> None:
        self.code = code
        self.name, self.retriable, self.refresh_metadata = BROKER_CODES.get(code, _UNKNOWN)
        detail = printable(text)
        parts = [f"broker answered {self.name} ({code})"]
        if context:
            parts.append(f"to {context}")
        super().__init__(" ".join(parts) + (f": {detail}" if detail else ""))


class UnknownBrokerCode(BrokerError):
    """An error code that is not in this client's tables: the broker is newer than the client."""


def broker_error(code: int, context: str = "", text: str | None = None) -> BrokerError:
    """The error for a code; an unknown code also has a type and is not retried."""
    kind = BrokerError if code in BROKER_CODES else UnknownBrokerCode
    return kind(code, context, text)
