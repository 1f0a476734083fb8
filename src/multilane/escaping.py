"""Makes foreign text safe to log or print: escapes control characters, bounds the length.

Thread: none (pure).

Keys, headers, error messages and names come from anywhere. A newline in them must not start a log line, and an escape
sequence must not reach a terminal.
"""

from __future__ import annotations

from typing import Final

_LONGEST: Final = 2_000


def escaped(content: bytes | str | None, limit: int = _LONGEST) -> str:
    """Text with unprintable characters escaped, bytes that are not UTF-8 as backslash escapes; cut at the limit."""
    if content is None:
        return "null"
    is_bytes = isinstance(content, bytes)
    text = content[: 4 * limit + 4].decode("utf-8", "backslashreplace") if isinstance(content, bytes) else content
    visible = escape_controls(text[:limit])
    return visible if len(text) <= limit else f"{visible}... ({len(content)} {'bytes' if is_bytes else 'characters'})"


def escape_controls(text: str) -> str:
    """The whole text: controls (C0, C1), line separators, bidirectional marks, ... become `\\x9b`, `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def lines_of(text: str) -> list[str]:
    """The lines of a message that may quote foreign text: escaped, and all but the first indented, so that none looks
    like a message of its own."""
    first, *others = map(escape_controls, text.split("\n"))
    return [first, *(line if line.startswith("  ") else f"  {line}" for line in others)]


def text_of(value: object) -> str:
    """`str(value)`, with a fallback if that raises: an error whose text fails still has to be reported."""
    try:
        return str(value)
    except Exception:  # noqa: BLE001 - __str__ is the user's
        return f"({type(value).__name__} without a printable text)"
