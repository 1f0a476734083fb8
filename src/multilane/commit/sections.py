"""The sections of a commit's metadata: named texts, each a base64 of a checksum and numbers.

Thread: none (pure).

Numbers have seven bits a byte, the lowest first. The checksum also covers the committed offset, so that a tool that
moves the offset and keeps the text does not move what the text claims. Never trusts what it reads: a text that is not
exactly in this form has no content.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator, Sequence
from typing import Final

MOST_BYTES: Final = 4096  # the brokers' default limit (offset.metadata.max.bytes)
LARGEST: Final = 16_384  # where brokers allow more: one request commits many partitions, and brokers bound its size
SUM_BYTES: Final = 4
_LONGEST_NUMBER: Final = 9  # bytes of seven bits: 63 bits, as offsets have


def named(sections: Sequence[str], name: str) -> list[str]:
    return [section.removeprefix(name) for section in sections if section.startswith(name)]


def packed(frontier: int, content: bytes | bytearray, beside: bytes | bytearray = b"") -> str:
    return base64.b64encode(checksum(frontier, content, beside) + content).decode()


def packed_size(content: int) -> int:
    """The characters that so many bytes of content take."""
    return (SUM_BYTES + content + 2) // 3 * 4


def content_within(characters: int) -> int:
    """The bytes of content that so many characters hold."""
    return characters // 4 * 3 - SUM_BYTES


def content_of(found: Sequence[str], frontier: int, beside: bytes = b"") -> bytes | None:
    """The content of a section that occurs once; its checksum also covers `beside`."""
    if len(found) != 1:
        return None
    try:
        whole = base64.b64decode(found[0], validate=True)
    except binascii.Error:
        return None
    sum_, content = whole[:SUM_BYTES], whole[SUM_BYTES:]
    return content if sum_ == checksum(frontier, content, beside) else None


def checksum(frontier: int, content: bytes | bytearray, beside: bytes | bytearray = b"") -> bytes:
    seed = binascii.crc32(beside, binascii.crc32(frontier.to_bytes(8, "big")))
    return binascii.crc32(content, seed).to_bytes(SUM_BYTES, "big")


def number(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def numbers(content: bytes) -> Iterator[int | None]:
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
