"""Durations and sizes as people write them: Go durations (`1h30m`, `1.5s`) and byte counts (`64kb`, `1,5mb`).

Thread: none (pure).

Owns both directions: parsing, and formatting the shortest text that parses to the same value. Errors never repeat the
text: only the caller knows whether it is a secret.
"""

from __future__ import annotations

import re
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1, "us": 1_000, "\u00b5s": 1_000, "\u03bcs": 1_000, "ms": 10**6, "s": 10**9, "m": 60 * 10**9,
    "h": 3_600 * 10**9,
}  # fmt: skip
_PART: Final = re.compile(r"([0-9]{1,20}(?:\.[0-9]{0,20})?|\.[0-9]{1,20})(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_LARGEST: Final = 2**63 - 1  # Go's, in nanoseconds
_TEXT_LIMIT: Final = 80
_NUMBER: Final = re.compile(r"[0-9]{1,20}(?:[.,][0-9]{1,20})?", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]{1,20}(?:[.,][0-9]{1,20})?)\s*([a-z]*)", re.ASCII)
_BYTES: Final = {
    "": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "kib": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "mib": 1 << 20,
    "g": 1 << 30, "gb": 1 << 30, "gib": 1 << 30,
}  # fmt: skip
LARGEST_SIZE: Final = 2**63 - 1


class NotAUnit(ValueError):
    """The text is not a duration or size; the message states what to write."""


def parse_duration(text: str) -> float:
    """Seconds of a Go duration. A bare number is refused: Go reads it as nanoseconds, but people mean seconds."""
    text = text.strip()
    if text == "0":
        return 0.0
    if text.startswith("-"):
        raise NotAUnit("a duration cannot be negative; write for example 5m")
    if _NUMBER.fullmatch(text) is not None:
        raise NotAUnit("a duration needs a unit; write for example 10s, 5m, 1.5s or 1h30m")
    return _nanoseconds(text.removeprefix("+")) / 10**9


def _nanoseconds(text: str) -> int:
    total, end = Decimal(0), 0
    for part in _PART.finditer(text[:_TEXT_LIMIT]):
        if part.start() != end:
            break
        total += Decimal(part[1]) * _NANOSECONDS[part[2]]
        end = part.end()
    if not end or end != len(text):
        raise NotAUnit("this is not a duration; write for example 300ms, 10s, 5m or 1h30m")
    if total > _LARGEST:
        raise NotAUnit("this is longer than 292 years; write for example 5m")
    return int(total.to_integral_value(ROUND_HALF_EVEN))


def format_duration(seconds: float) -> str:
    """The shortest of our spellings: 5m, 1h30m, 1.5s, 300ms."""
    left = int((Decimal(repr(float(seconds))) * 10**9).to_integral_value())  # a product of floats would lose digits
    if not left:
        return "0s"
    made = ""
    for unit in ("h", "m"):
        count, left = divmod(left, _NANOSECONDS[unit])
        made += f"{count}{unit}" if count else ""
    if not left:
        return made
    unit = "s" if made or left >= 10**9 else next(u for u in ("ms", "us", "ns") if left >= _NANOSECONDS[u])
    amount = f"{Decimal(left) / _NANOSECONDS[unit]:f}"
    return made + (amount.rstrip("0").rstrip(".") if "." in amount else amount) + unit


def parse_size(text: str) -> int:
    """Bytes of a size. Units are multiples of 1024, in any case; a decimal comma counts as a point."""
    match = _SIZE.fullmatch(text.strip().lower()) if len(text) <= _TEXT_LIMIT else None
    if match is None or match[2] not in _BYTES:
        raise NotAUnit("this is not a size; write bytes (65536) or a number with a unit (64kb, 1mb, 1,5mb)")
    amount = Decimal(match[1].replace(",", ".")) * _BYTES[match[2]]
    if match[2] in ("", "b") and amount != amount.to_integral_value():
        raise NotAUnit("bytes must be whole; write for example 1536, or 1,5kb")
    if amount > LARGEST_SIZE:
        raise NotAUnit("this is more than any machine has; write for example 64mb")
    return int(amount)


def format_size(size: int) -> str:
    """The size in the largest unit that divides it: 64kb, 1mb; bytes have no unit."""
    for unit in ("gb", "mb", "kb"):
        if size and size % _BYTES[unit] == 0:
            return f"{size // _BYTES[unit]}{unit}"
    return str(size)
