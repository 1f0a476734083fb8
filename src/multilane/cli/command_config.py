"""`--bootstrap-server` and `--command-config`, as Kafka's own tools have them.

Thread: none (pure, except for reading the file).

Reads Java's properties format: comments, continued lines, escapes. The result may hold secrets: it is passed to a
client and never shown.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import typer

_SEPARATOR: Final = re.compile(r"(?<!\\)(?:\s*[=:]\s*|\s+)")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def client_properties(bootstrap_server: str | None, command_config: Path | None, timeout: float) -> dict[str, object]:
    """The properties of a client. Without any broker address this is a usage error (exit code 2)."""
    found: dict[str, object] = {}
    if command_config is not None:
        found |= parse_properties(command_config.read_text(encoding="utf-8"))
    if bootstrap_server is not None:
        found["bootstrap.servers"] = bootstrap_server
    if not found.get("bootstrap.servers"):
        raise typer.BadParameter("name the brokers: --bootstrap-server HOST:PORT", param_hint="bootstrap")
    return {"default.api.timeout.ms": round(timeout * 1_000), **found}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values; for a repeated key the last value wins."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        parts = _SEPARATOR.split(line, maxsplit=1)
        found[_unescaped(parts[0])] = _unescaped(parts[1]) if len(parts) > 1 else ""
    return found


def _logical_lines(text: str) -> list[str]:
    """Lines without comments; a line that ends in an odd number of backslashes continues on the next."""
    lines: list[str] = []
    pending = ""
    for natural in text.splitlines():
        line = natural.lstrip()
        if not pending and (not line or line[0] in "#!"):
            continue
        pending += line
        if (len(pending) - len(pending.rstrip("\\"))) % 2:
            pending = pending[:-1]
            continue
        lines.append(pending)
        pending = ""
    return [*lines, pending] if pending else lines


def _unescaped(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _LETTERS.get(escaped, escaped)

    return _ESCAPE.sub(replacement, text)
