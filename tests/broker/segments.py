"""Looks into a broker's log files: what is really on its disk, whatever a client says."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from multilane.dev.kafka import KafkaCluster

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
_OVERHEAD = 12


def batch_codecs(kafka: KafkaCluster, topic: str, partition: int = 0, node: int = 1) -> set[str]:
    """The codecs of all batches of a partition."""
    return {
        CODECS[attributes & 7] for path in log_files(kafka, topic, partition, node) for attributes in _batches(path)
    }


def log_files(kafka: KafkaCluster, topic: str, partition: int = 0, node: int = 1) -> list[Path]:
    return sorted((kafka.directory / f"node-{node}" / "data" / f"{topic}-{partition}").glob("*.log"))


def _batches(path: Path) -> Iterator[int]:
    content = path.read_bytes()
    at = 0
    while at + 61 <= len(content):
        (length,) = struct.unpack_from(">i", content, at + 8)
        (attributes,) = struct.unpack_from(">h", content, at + 21)
        yield attributes
        at += _OVERHEAD + length
