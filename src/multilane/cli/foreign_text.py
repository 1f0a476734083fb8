"""Makes record contents safe to print: times, texts, bytes and JSON.

Thread: none (pure).

Records come from anywhere. Their contents are truncated and control characters are escaped, so that no record can
control the terminal.
"""

from __future__ import annotations

import base64
import json
import re
from datetime import UTC, datetime
from typing import Any, Final

from multilane.escaping import escape_controls, escaped, lines_of
from multilane.secret import without_credentials

__all__ = ["as_json", "by_line", "error_text", "escaped", "moment", "payload"]

_NOT_ASCII: Final = re.compile(r"[^\x0a\x20-\x7e]")
_LARGEST: Final = 1_000_000


def moment(milliseconds: float) -> str:
    """ISO 8601 in UTC, or the number itself if it is not a valid date."""
    try:
        return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return f"{milliseconds:.0f}"


def payload(content: bytes | None) -> dict[str, Any] | None:
    """Bytes for JSON: text if they are UTF-8, else base64. Includes the size, because the content may be truncated."""
    if content is None:
        return None
    part = content[:_LARGEST]
    try:
        return {"size": len(content), "text": part.decode()}
    except UnicodeDecodeError:
        return {"size": len(content), "base64": base64.b64encode(part).decode()}


def as_json(facts: Any, indent: int | None = 2) -> str:
    """JSON that is safe on a terminal: printable characters as they are, all others as JSON escapes."""
    return _NOT_ASCII.sub(_in_json, json.dumps(facts, indent=indent, ensure_ascii=False))


def _in_json(found: re.Match[str]) -> str:
    return found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1] if found[0] != "\x7f" else "\\u007f"


def by_line(text: str) -> str:
    """Escapes each line of a text and keeps the line breaks."""
    return "\n".join(map(escape_controls, text.split("\n")))


def error_text(message: str) -> str:
    """The message of an error for the terminal."""
    return "error: " + "\n".join(lines_of(without_credentials(message)))
