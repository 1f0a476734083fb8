"""What records hold, made fit to be shown: times, texts and bytes.

Thread: none (pure).

Records come from anywhere: what is shown of them is cut, and control characters are escaped, so that no record can
write to the terminal in its own way.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final

_LONGEST: Final = 2_000
_LARGEST: Final = 1_000_000


def moment(milliseconds: float) -> str:
    """ISO 8601 in UTC; the number itself where that is no date."""
    try:
        return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds:.0f}"


def escaped(content: bytes | str | None, limit: int = _LONGEST) -> str:
    """Text as it is but for what is not printable; bytes that are no text with backslashes; cut."""
    if content is None:
        return "null"
    is_bytes = isinstance(content, bytes)
    text = content[: 4 * limit + 4].decode("utf-8", "backslashreplace") if isinstance(content, bytes) else content
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:limit])
    return shown if len(text) <= limit else f"{shown}... ({len(content)} {'bytes' if is_bytes else 'characters'})"


def payload(content: bytes | None) -> dict[str, Any] | None:
    """Bytes for JSON: as text where they are text, else in base64; with their size, for they may be cut."""
    if content is None:
        return None
    part = content[:_LARGEST]
    try:
        return {"size": len(content), "text": part.decode()}
    except UnicodeDecodeError:
        return {"size": len(content), "base64": base64.b64encode(part).decode()}
