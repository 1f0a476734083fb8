"""The completion map: which records beyond the committed offset are settled, as the metadata of the commit.

Thread: none (pure).

Owns the format. The text is a list of sections, separated by semicolons: first the format's name and version, then `r=`
with the runs of settled offsets. A later version may add named sections; readers ignore unknown ones. Runs are written
as distances (gap, length, gap, length, ...), seven bits a byte, in base64 after a checksum. `l=` binds the runs to the
log that they belong to: the newest leader epoch up to their end, and the topic's id. Older versions neither write nor
read it.

Never trusts what it reads: other tools may write commits too, and a wrong map would skip unhandled records. The
checksum covers the committed offset, so that a tool that moves the offset and keeps the text does not move the map. A
text that is not exactly in our format is ignored as a whole. Whether the map still fits the log is not known here: see
`log_fit`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from uuid import UUID

Run = tuple[int, int]  # first and last settled offset

MOST_BYTES: Final = 4096  # the brokers' default limit (offset.metadata.max.bytes)
_FORMAT: Final = "multilane/1"
_RUNS: Final = "r="
_LOG: Final = "l="
_NO_TOPIC_ID: Final = UUID(int=0)  # Kafka's null UUID
_ID_BYTES: Final = 16
_SUM_BYTES: Final = 4
_LONGEST_NUMBER: Final = 9  # bytes of seven bits: 63 bits, as offsets have
MOST_RUNS: Final = 2_000  # more than fit in a text: each takes at least two bytes
_MOST_LOG: Final = 1 + len(_LOG) + 36  # base64 of a checksum, an epoch of five bytes and an id
_MOST_CONTENT: Final = (MOST_BYTES - len(_FORMAT) - len(_RUNS) - 1 - _MOST_LOG) // 4 * 3 - _SUM_BYTES


@dataclass(frozen=True, slots=True)
class LogMark:
    """The log that runs belong to: the leader epoch at their end, or a newer one that was read in the same log, and the
    topic's id, which brokers before 2.8 do not have."""

    leader_epoch: int
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class CompletionMap:
    """The content of a text. Without `log` it was written by an older version."""

    runs: tuple[Run, ...] = ()
    log: LogMark | None = None


NOTHING: Final = CompletionMap()


def encode(frontier: int, runs: Sequence[Run], log: LogMark | None = None) -> str:
    """The text for these runs, which must be in order, apart from each other and beyond `frontier`. Runs that do not
    fit are omitted from the far end: their records are redelivered after a restart, not lost. Empty without runs."""
    return write(frontier, runs, log) if runs else ""


def write(frontier: int, runs: Sequence[Run], log: LogMark | None = None) -> str:
    """The same, also without runs: a reader may still need the log that `frontier` belongs to."""
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
    """The runs of a text that was committed with `frontier`; none if it is not exactly in our format."""
    return read(text, frontier).runs


def read(text: str, frontier: int) -> CompletionMap:
    """The content of a text that was committed with `frontier`; NOTHING if it is not exactly in our format."""
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
    """The content of a section that occurs once; its checksum also covers `beside`."""
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
        if not gap or not length:  # the frontier itself is not settled, and runs never touch
            return None
        first = before + gap
        before = first + length
        if before >= 2**63:
            return None
        runs.append((first, before - 1))
    return runs


def _checksum(frontier: int, content: bytes | bytearray, beside: bytes | bytearray = b"") -> bytes:
    seed = binascii.crc32(beside, binascii.crc32(frontier.to_bytes(8, "big")))
    return binascii.crc32(content, seed).to_bytes(_SUM_BYTES, "big")


def _number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _numbers(content: bytes) -> Iterator[int | None]:
    """Each number; None if it is cut off, too long, or not in its shortest form."""
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
