"""A slow and plain reader of record batches, written from the protocol's words: the tests' second opinion.

It shares no code with the decoder: struct and Python integers, other libraries for the codecs. kafka-python's reader
is asked too where it can be; it differs on purpose or by mistake in two places, which `oddities` names.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in an old way
    from kafka.codec import gzip_decode, lz4_decode, snappy_decode, zstd_decode
    from kafka.record import MemoryRecords

_CODECS = {0: bytes, 1: gzip_decode, 2: snappy_decode, 3: lz4_decode, 4: zstd_decode}

Row = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Reading:
    rows: list[Row] = field(default_factory=list)
    oddities: set[str] = field(default_factory=set)
    next_offset: int = 0
    aborted: Sequence[tuple[int, int]] = ()
    markers: list[tuple[int, int]] = field(default_factory=list)

    def hides(self, producer: int, last: int) -> bool:
        """Brute force: some aborted transaction of the producer has begun and no marker since has ended it."""
        begun = [first for p, first in self.aborted if p == producer and first <= last]
        return any(all(p != producer or at < first for p, at in self.markers) for first in begun)


def read(data: bytes, fetch_offset: int = 0, aborted: Sequence[tuple[int, int]] = ()) -> Reading:
    """(offset, timestamp, timestamp type, key, value, headers) of every data record of whole batches."""
    reading = Reading(next_offset=fetch_offset, aborted=aborted)
    at = 0
    while at + 17 <= len(data):
        (length,) = struct.unpack_from(">i", data, at + 8)
        if at + 12 + length > len(data):
            break
        _read_batch(data[at : at + 12 + length], reading, fetch_offset)
        at += 12 + length
    return reading


def _read_batch(batch: bytes, reading: Reading, fetch_offset: int) -> None:
    base, _, _, _, _, attributes, last, first_time, max_time, producer, _, _, count = struct.unpack_from(
        ">qiibIhiqqqhii", batch
    )
    reading.next_offset = max(fetch_offset, base + last + 1)
    if attributes & 0x20:
        if reading.aborted and count and _ends_transaction(batch, attributes, must=base + last >= fetch_offset):
            reading.markers.append((producer, base + last))
        return
    if base + last < fetch_offset or not count or (attributes & 0x10 and reading.hides(producer, base + last)):
        return
    body = bytes(_CODECS[attributes & 7](batch[61:]))
    append = attributes >> 3 & 1
    at = 0
    for _ in range(count):
        size, at = varint(body, at)
        record, at = body[at : at + size], at + size
        if record[0] >= 0x80:
            reading.oddities.add("attributes")  # kafka-python takes the byte for a varint
        stamp, p = varint(record, 1)
        delta, p = varint(record, p)
        key, p = sized(record, p)
        value, p = sized(record, p)
        many, p = varint(record, p)
        headers = []
        for _ in range(many):
            name, p = sized(record, p)
            content, p = sized(record, p)
            headers.append((_text(name or b"", reading), content))
        time = max_time if append else _wrap(first_time + stamp)
        if time != max_time and not append and time != first_time + stamp:
            reading.oddities.add("timestamp overflow")  # Python integers do not wrap
        if base + delta >= fetch_offset:
            reading.rows.append((base + delta, time, append, key, value, tuple(headers)))


def _ends_transaction(batch: bytes, attributes: int, *, must: bool) -> bool:
    """Whether a control batch is an end marker; one that cannot be read is an error only if it `must` be read."""
    try:
        return control_type(b"" if attributes & 7 else batch[61:]) in (0, 1)  # never compressed
    except IndexError:
        if must:
            raise
        return False


def control_type(record: bytes) -> int | None:
    size, start = varint(record, 0)
    at = varint(record, start + 1)[1]
    key_size, at = varint(record, varint(record, at)[1])
    if start + size > len(record) or key_size > start + size - at:
        raise IndexError
    return struct.unpack_from(">h", record, at + 2)[0] if key_size >= 4 else None


def _text(name: bytes, reading: Reading) -> str:
    try:
        return name.decode()
    except UnicodeDecodeError:
        reading.oddities.add("header key")  # kafka-python refuses the record
        return name.decode("utf-8", "replace")


def _wrap(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def varint(data: bytes, at: int) -> tuple[int, int]:
    raw = shift = 0
    while True:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), at


def sized(data: bytes, at: int) -> tuple[bytes | None, int]:
    size, at = varint(data, at)
    return (None, at) if size < 0 else (data[at : at + size], at + size)


def kafka_python_rows(data: bytes, fetch_offset: int = 0) -> list[Row]:
    rows: list[Row] = []
    for batch in MemoryRecords(data):
        if batch.is_control_batch or batch.last_offset < fetch_offset or not batch.records_count:
            continue
        for r in batch:
            if r.offset >= fetch_offset:
                rows.append((r.offset, r.timestamp, r.timestamp_type, r.key, r.value, tuple(r.headers)))
    return rows
