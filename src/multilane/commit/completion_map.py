"""What is settled beyond the committed offset, as the text that is committed with it.

Thread: none (pure).

Owns the format. A text is sections between semicolons: the format's name and version first, then `r=` with the runs of
settled offsets; a later version may add named sections, and unknown ones are passed over. Runs are written as distances
(gap, length, gap, length, ...), seven bits a byte, in base64 behind a checksum.

Never trusts what it reads: others may write commits too, and a wrong map would skip records that nobody handled. The
checksum covers the offset that the map was committed with, so that a tool which moves the offset and keeps the text
does not move the map. Of whatever is not exactly what we write, nothing is used.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Final

Run = tuple[int, int]  # first and last settled offset

MOST_BYTES: Final = 4096  # what brokers keep by default (offset.metadata.max.bytes)
_FORMAT: Final = "multilane/1"
_RUNS: Final = "r="
_SUM_BYTES: Final = 4
_LONGEST_NUMBER: Final = 9  # bytes of seven bits: 63 bits, as offsets have
MOST_RUNS: Final = 2_000  # no text holds as many: each takes two bytes at the least
_MOST_CONTENT: Final = (MOST_BYTES - len(_FORMAT) - len(_RUNS) - 1) // 4 * 3 - _SUM_BYTES


def encode(frontier: int, runs: Sequence[Run]) -> str:
    """The text for these runs, which are in order, apart from each other and beyond `frontier`. Those that do not fit
    are left out from the far end: they are repeated after a restart, not lost."""
    content = bytearray()
    before = frontier
    for first, last in runs:
        piece = _number(first - before) + _number(last - first + 1)
        if len(content) + len(piece) > _MOST_CONTENT:
            break
        content += piece
        before = last + 1
    if not content:
        return ""
    packed = base64.b64encode(_checksum(frontier, content) + content).decode()
    return f"{_FORMAT};{_RUNS}{packed}"


def decode(text: str, frontier: int) -> tuple[Run, ...]:
    """The runs of a text that was committed with `frontier`; none when it is not exactly ours."""
    content = _content(text, frontier)
    return () if content is None else tuple(_runs(content, frontier) or ())


def _content(text: str, frontier: int) -> bytes | None:
    if frontier < 0 or len(text) > MOST_BYTES or not text.isascii():
        return None
    name, *sections = text.split(";")
    found = [s.removeprefix(_RUNS) for s in sections if s.startswith(_RUNS)]
    if name != _FORMAT or len(found) != 1:
        return None
    try:
        packed = base64.b64decode(found[0], validate=True)
    except binascii.Error:
        return None
    sum_, content = packed[:_SUM_BYTES], packed[_SUM_BYTES:]
    return content if sum_ == _checksum(frontier, content) else None


def _runs(content: bytes, frontier: int) -> list[Run] | None:
    runs: list[Run] = []
    before = frontier
    numbers = list(_numbers(content))
    if len(numbers) % 2 or None in numbers:
        return None
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        if not gap or not length:  # the frontier itself is not settled, and two runs that touch are one
            return None
        first = before + gap
        before = first + length
        if before >= 2**63:
            return None
        runs.append((first, before - 1))
    return runs


def _checksum(frontier: int, content: bytes | bytearray) -> bytes:
    return binascii.crc32(content, binascii.crc32(frontier.to_bytes(8, "big"))).to_bytes(_SUM_BYTES, "big")


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _numbers(content: bytes) -> Iterator[int | None]:
    """Each number; None for one that is cut off, too long, or written longer than it has to be."""
    value = length = 0
    for byte in content:
        value |= (byte & 0x7F) << (7 * length)
        length += 1
        if length > _LONGEST_NUMBER:
            yield None
            return
        if byte < 0x80:
            yield None if byte == 0 and length > 1 else value
            value = length = 0
    if length:
        yield None
