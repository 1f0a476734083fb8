"""`--bootstrap-server` and `--command-config`, as Kafka's own tools have them.

Thread: none (pure, but for reading the file).

Reads Java's properties format: comments, continued lines, escapes. What it returns may hold secrets: it is handed to a
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
    """The properties of a client; exits with code 2 when nothing says where the brokers are."""
    found: dict[str, object] = {}
    if command_config is not None:
        found |= parse_properties(command_config.read_text(encoding="utf-8"))
    if bootstrap_server is not None:
        found["bootstrap.servers"] = bootstrap_server
    if not found.get("bootstrap.servers"):
        raise typer.BadParameter("say where the brokers are: --bootstrap-server HOST:PORT", param_hint="bootstrap")
    return {"default.api.timeout.ms": round(timeout * 1_000), **found}


def parse_properties(text: str) -> dict[str, str]:
    """Keys and values; of a key that is given twice the last counts."""
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        parts = _SEPARATOR.split(line, maxsplit=1)
        found[_plain(parts[0])] = _plain(parts[1]) if len(parts) > 1 else ""
    return found


def _logical_lines(text: str) -> list[str]:
    """Lines without comments; one that ends in an odd number of backslashes goes on in the next."""
    lines: list[str] = []
    begun = ""
    for natural in text.splitlines():
        line = natural.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        begun += line
        if (len(begun) - len(begun.rstrip("\\"))) % 2:
            begun = begun[:-1]
            continue
        lines.append(begun)
        begun = ""
    return [*lines, begun] if begun else lines


def _plain(text: str) -> str:
    def put(match: re.Match[str]) -> str:
        escaped = match[1]
        return chr(int(escaped[1:], 16)) if len(escaped) > 1 else _LETTERS.get(escaped, escaped)

    return _ESCAPE.sub(put, text)
