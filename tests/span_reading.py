"""Short ways for these tests to get from batches to blocks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from batch_builder import Batch, join
from multilane.wire.records.batches import BatchTable, scan
from multilane.wire.records.block import Block
from multilane.wire.records.decode import DecodeOptions, decode

Aborted = Sequence[tuple[int, int]]


def frame_of(data: bytes) -> np.ndarray:
    return np.frombuffer(data, np.uint8).copy()


def scan_bytes(data: bytes, fetch_offset: int = 0) -> BatchTable:
    return scan(frame_of(data), 0, len(data), fetch_offset)


def read_frame(frame: np.ndarray, fetch_offset: int = 0, aborted: Aborted = (), **options: Any) -> Block:
    table = scan(frame, 0, frame.size, fetch_offset)
    chosen = DecodeOptions(**options)
    return decode(frame, table, chosen, topic="t", partition=3, fetch_offset=fetch_offset, aborted=aborted)


def read_bytes(data: bytes, **arguments: Any) -> Block:
    return read_frame(frame_of(data), **arguments)


def read(*batches: Batch, **arguments: Any) -> Block:
    return read_bytes(join(batches), **arguments)


def rows_of(block: Block) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers) for r in block.records()]
