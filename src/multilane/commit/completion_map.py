"""What is settled beyond the committed offset, as the text that is committed with it.

Thread: none (pure).

Owns the format. A text is sections between semicolons: the format's name and version first, then `r=` with the runs of
settled offsets; a later version may add named sections, and unknown ones are passed over. Runs are written as distances
(gap, length, gap, length, ...), seven bits a byte, in base64 behind a checksum. `l=` binds the runs to the log they are
offsets of: the newest leader epoch up to their end and the topic's id. Versions before it wrote none and pass it over.

Never trusts what it reads: others may write commits too, and a wrong map would skip records that nobody handled. The
checksum covers the offset that the map was committed with, so that a tool which moves the offset and keeps the text
does not move the map. Of whatever is not exactly what we write, nothing is used. Whether the log is still the one that
the map speaks of is not known here: `log_fit` says so.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

Run = tuple[int, int]  # first and last settled offset

MOST_BYTES: Final = 4096  # what brokers keep by default (offset.metadata.max.bytes)
_FORMAT: Final = "multilane/1"
_RUNS: Final = "r="
_LOG: Final = "l="
_NO_TOPIC_ID: Final = UUID(int=0)  # Kafka's own way to write that there is none
_ID_BYTES: Final = 16
_SUM_BYTES: Final = 4
_LONGEST_NUMBER: Final = 9  # bytes of seven bits: 63 bits, as offsets have
MOST_RUNS: Final = 2_000  # no text holds as many: each takes two bytes at the least
_MOST_LOG: Final = 1 + len(_LOG) + 36  # base64 of a checksum, an epoch of five bytes and an id
_MOST_CONTENT: Final = (MOST_BYTES - len(_FORMAT) - len(_RUNS) - 1 - _MOST_LOG) // 4 * 3 - _SUM_BYTES


@dataclass(frozen=True, slots=True)
class LogMark:
    """Which log runs are offsets of: the leader epoch of their end, or a newer one that was read in the same log, and
    the topic's id, which brokers before 2.8 do not have."""

    leader_epoch: int
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class CompletionMap:
    """What a text says. Without `log` it is from a version that did not write it."""

    runs: tuple[Run, ...] = ()
    log: LogMark | None = None


NOTHING: Final = CompletionMap()


def encode(frontier: int, runs: Sequence[Run], log: LogMark | None = None) -> str:
    """The text for these runs, which are in order, apart from each other and beyond `frontier`. Those that do not fit
    are left out from the far end: they are repeated after a restart, not lost. Without runs it is empty."""
    return write(frontier, runs, log) if runs else ""


def write(frontier: int, runs: Sequence[Run], log: LogMark | None = None) -> str:
    """The same, also where there are no runs: whoever reads it may still want to know which log `frontier` is in."""
    content = bytearray()
    before = frontier
    for first, last in runs:
        piece = _number(first - before) + _number(last - first + 1)
        if len(content) + len(piece) > _MOST_CONTENT:
            break
        content += piece
        before = last + 1
    text = f"{_FORMAT};{_RUNS}{_packed(frontier, content)}"
    if log is None or log.leader_epoch < 0:
        return text
    bound = _number(log.leader_epoch) + (log.topic_id or _NO_TOPIC_ID).bytes
    return f"{text};{_LOG}{_packed(frontier, bound, content)}"


def decode(text: str, frontier: int) -> tuple[Run, ...]:
    """The runs of a text that was committed with `frontier`; none when it is not exactly ours."""
    return read(text, frontier).runs


def read(text: str, frontier: int) -> CompletionMap:
    """What a text says that was committed with `frontier`; nothing when it is not exactly ours."""
    if not 0 <= frontier < 2**63 or len(text) > MOST_BYTES or not text.isascii():
        return NOTHING
    name, *sections = text.split(";")
    content = _content(_named(sections, _RUNS), frontier)
    runs = None if content is None else _runs(content, frontier)
    if name != _FORMAT or content is None or runs is None:
        return NOTHING
    bound = _named(sections, _LOG)
    log = None if not bound else _log_mark(_content(bound, frontier, content))
    return NOTHING if bound and log is None else CompletionMap(tuple(runs), log)


def _named(sections: Sequence[str], name: str) -> list[str]:
    return [section.removeprefix(name) for section in sections if section.startswith(name)]


def _packed(frontier: int, content: bytes | bytearray, beside: bytes | bytearray = b"") -> str:
    return base64.b64encode(_checksum(frontier, content, beside) + content).decode()


def _content(found: Sequence[str], frontier: int, beside: bytes = b"") -> bytes | None:
    """Of a section that is there once; `beside` is what its checksum covers too."""
    if len(found) != 1:
        return None
    try:
        packed = base64.b64decode(found[0], validate=True)
    except binascii.Error:
        return None
    sum_, content = packed[:_SUM_BYTES], packed[_SUM_BYTES:]
    return content if sum_ == _checksum(frontier, content, beside) else None


def _log_mark(content: bytes | None) -> LogMark | None:
    if content is None or len(content) <= _ID_BYTES:
        return None
    numbers = list(_numbers(content[:-_ID_BYTES]))
    if len(numbers) != 1 or numbers[0] is None or numbers[0] >= 2**31:
        return None
    topic_id = UUID(bytes=content[-_ID_BYTES:])
    return LogMark(numbers[0], None if topic_id == _NO_TOPIC_ID else topic_id)


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


def _checksum(frontier: int, content: bytes | bytearray, beside: bytes | bytearray = b"") -> bytes:
    begun = binascii.crc32(beside, binascii.crc32(frontier.to_bytes(8, "big")))
    return binascii.crc32(content, begun).to_bytes(_SUM_BYTES, "big")


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
