"""Data from a broker that breaks the protocol: frames and record batches.

Thread: any (values).
"""

from __future__ import annotations

from typing import ClassVar

from multilane.errors.root import MultilaneError


class WireError(MultilaneError):
    """Data from a broker violates the protocol."""

    retriable = True


class FrameError(WireError):
    """A response frame is malformed: length, correlation id, truncated or trailing bytes, hostile lengths."""


class RecordBatchError(WireError):
    """A record batch cannot be read. The position stays before it."""

    what: ClassVar[str] = "record batch cannot be read"

    def __init__(
        self,
        reason: str,
        *,
        offset: int,
        topic: str | None = None,
        partition: int | None = None,
        broker: str | None = None,
    ) -> None:
        self.reason = reason
        self.offset = offset
        self.topic = topic
        self.partition = partition
        self.broker = broker
        where = "" if topic is None else f" {topic}-{partition}"
        source = "" if broker is None else f" from broker {broker}"
        super().__init__(f"{self.what}:{where} at offset {offset}{source}: {reason}")

    def at(self, *, topic: str, partition: int, broker: str) -> RecordBatchError:
        """The same error with its topic, partition and broker; the decoder knows only the offset."""
        return type(self)(self.reason, offset=self.offset, topic=topic, partition=partition, broker=broker)

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild_batch_error, (type(self), self.reason, self.offset, self.topic, self.partition, self.broker))


def _rebuild_batch_error(
    kind: type[RecordBatchError], reason: str, offset: int, topic: str, partition: int, broker: str
) -> RecordBatchError:
    return kind(reason, offset=offset, topic=topic, partition=partition, broker=broker)


class CorruptBatch(RecordBatchError):
    """Lengths, counts, varints or the checksum of a batch are wrong."""

    what = "corrupt record batch"


class UnsupportedBatch(RecordBatchError):
    """A record format older than v2, or an unknown codec."""

    what = "unsupported record batch"
    retriable = False


class OversizedBatch(RecordBatchError):
    """A batch decompresses to more than max.decompressed.batch.bytes."""

    what = "oversized record batch"
    retriable = False


class BlockFull(RecordBatchError):
    """The batches of one fetch exceed the limits of a block; the rest is sound and must be fetched again."""

    what = "block is full"
