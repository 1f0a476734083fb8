"""Writes record batches v2, good ones and bad ones, for tests.

Every header field can be overridden, so that a test can lie about it; the checksum is right unless a test says not.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import cramjam
import google_crc32c
import lz4.frame

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
APPEND_TIME, TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x08, 0x10, 0x20, 0x40
ABORT, COMMIT = 0, 1

_XERIAL = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)


@dataclass(frozen=True)
class Rec:
    """A record to write; `delta` is its offset minus the batch's base."""

    delta: int
    key: bytes | None = None
    value: bytes | None = None
    timestamp_delta: int = 0
    headers: Sequence[tuple[bytes | None, bytes | None]] = ()


@dataclass(frozen=True)
class Batch:
    records: Sequence[Rec] = ()
    base_offset: int = 0
    codec: int = NONE
    flags: int = 0
    base_timestamp: int = 1_700_000_000_000
    max_timestamp: int | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    leader_epoch: int = 0
    magic: int = 2
    last_delta: int | None = None
    count: int | None = None
    crc: int | None = None
    length: int | None = None
    body: bytes | None = None  # instead of the records, before compression
    packed: bytes | None = None  # instead of the compressed body
    xerial: bool = True
    chunk: int = 32 * 1024
    sums: bool = False  # LZ4 with checksums of its own, which the batch does not need and some write all the same
    linked: bool = False  # LZ4 whose blocks refer to one another
    extra: dict[str, object] = field(default_factory=dict)

    @property
    def last(self) -> int:
        if self.last_delta is not None:
            return self.last_delta
        return max((r.delta for r in self.records), default=0)

    @property
    def end(self) -> int:
        return self.base_offset + self.last + 1

    def with_(self, **changes: object) -> Batch:
        return replace(self, **changes)  # type: ignore[arg-type]

    def build(self) -> bytes:
        body = b"".join(map(encode_record, self.records)) if self.body is None else self.body
        packed = self._pack(body) if self.packed is None else self.packed
        top = max((r.timestamp_delta for r in self.records), default=0)
        latest = self.base_timestamp + top if self.max_timestamp is None else self.max_timestamp
        count = len(self.records) if self.count is None else self.count
        tail = struct.pack(
            ">hiqqqhii",
            self.flags | self.codec,
            self.last,
            self.base_timestamp,
            latest,
            self.producer_id,
            self.producer_epoch,
            -1,
            count,
        )
        crc = google_crc32c.value(tail + packed) if self.crc is None else self.crc
        length = 9 + len(tail) + len(packed) if self.length is None else self.length
        head = struct.pack(">qiibI", self.base_offset, length, self.leader_epoch, self.magic, crc)
        return head + tail + packed

    def _pack(self, body: bytes) -> bytes:
        if self.codec == GZIP:
            return bytes(cramjam.gzip.compress(body))
        if self.codec == LZ4:
            return lz4_frame(body, sums=self.sums, linked=self.linked)
        if self.codec == ZSTD:
            return bytes(cramjam.zstd.compress(body))
        if self.codec == SNAPPY:
            return xerial(body, self.chunk) if self.xerial else bytes(cramjam.snappy.compress_raw(body))
        return body


def lz4_frame(body: bytes, *, sums: bool = False, linked: bool = False, sized: bool = False) -> bytes:
    """By default as Java's and librdkafka's producers write it."""
    options = {"block_checksum": sums, "content_checksum": sums, "block_linked": linked, "store_size": sized}
    return bytes(lz4.frame.compress(body, block_size=lz4.frame.BLOCKSIZE_MAX64KB, **options))


def xerial(body: bytes, chunk: int = 32 * 1024) -> bytes:
    parts = [_XERIAL]
    for at in range(0, len(body), chunk):
        packed = bytes(cramjam.snappy.compress_raw(body[at : at + chunk]))
        parts += [struct.pack(">i", len(packed)), packed]
    return b"".join(parts)


def varint(value: int) -> bytes:
    raw = (value << 1) ^ (value >> 63)
    raw &= (1 << 64) - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


def sized(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def encode_record(record: Rec) -> bytes:
    fields = b"\0" + varint(record.timestamp_delta) + varint(record.delta) + sized(record.key) + sized(record.value)
    fields += varint(len(record.headers)) + b"".join(sized(k) + sized(v) for k, v in record.headers)
    return varint(len(fields)) + fields


def marker(kind: int, offset: int, producer_id: int, **changes: object) -> Batch:
    """A control batch that ends a transaction."""
    record = Rec(0, struct.pack(">hh", 0, kind), struct.pack(">hi", 0, 0))
    batch = Batch([record], offset, flags=CONTROL | TRANSACTIONAL, producer_id=producer_id, producer_epoch=0)
    return batch.with_(**changes)


def rows(count: int, *, size: int = 20, start: int = 0) -> list[Rec]:
    """Plain records with keys and values that tell them apart."""
    return [Rec(i, b"key-%d" % (start + i), b"value-%d-" % (start + i) + b"x" * size, i) for i in range(count)]


def join(batches: Sequence[Batch]) -> bytes:
    return b"".join(b.build() for b in batches)
