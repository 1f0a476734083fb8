"""The Python clients that are compared, each with the same three methods.

Thread: application of a child process that measures one client and ends.

Every client gets its partitions by manual assignment, reads from offset 0 to the end and touches the key and the value
of every record. All clients verify checksums, except those with `no-crc` in their name.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, Final, Protocol

from bench.topics import PARTITIONS

_POLL_SECONDS: Final = 30.0
# A fetch that waits at the end of the log delays a client that seeks back to the start for this long.
WAIT_MS: Final = 20


@dataclass(slots=True)
class Tally:
    """Counts of the records read: enough to know that none was skipped."""

    records: int = 0
    content_bytes: int = 0
    offset_sum: int = 0


@dataclass(frozen=True, slots=True)
class Source:
    """The topic to read, and the fetch sizes to use."""

    bootstrap: str
    topic: str
    partition_bytes: int
    fetch_bytes: int
    poll_records: int


class Client(Protocol):
    def rewind(self) -> None: ...
    def read(self, records: int, tally: Tally) -> None: ...
    def close(self) -> None: ...


class ColumnsClient:
    """Our blocks: offsets, timestamps and the lengths of keys and values are read, as arrays."""

    def __init__(self, source: Source) -> None:
        from multilane.client.consumer import Consumer
        from multilane.types import TopicPartition

        self._consumer = Consumer(
            {
                "bootstrap.servers": source.bootstrap,
                "max.partition.fetch.bytes": source.partition_bytes,
                "fetch.max.bytes": source.fetch_bytes,
                "fetch.buffer.bytes": 256 << 20,
                "max.poll.records": source.poll_records,
                "check.crcs": True,
                "fetch.max.wait.ms": WAIT_MS,
            }
        )
        self._partitions = [TopicPartition(source.topic, n) for n in range(PARTITIONS)]
        self._consumer.assign(self._partitions)

    def rewind(self) -> None:
        for partition in self._partitions:
            self._consumer.seek(partition, 0)

    def read(self, records: int, tally: Tally) -> None:
        while tally.records < records:
            blocks = self._consumer.poll(_POLL_SECONDS)
            if not blocks:
                raise RuntimeError(f"no record arrived for {_POLL_SECONDS} s")
            for block in blocks:
                self._touch(block, tally)

    def _touch(self, block: Any, tally: Tally) -> None:
        if len(block.keys) != len(block) or len(block.values) != len(block):
            raise RuntimeError("columns of different lengths")
        tally.records += len(block)
        tally.offset_sum += int(block.offsets.sum())
        tally.content_bytes += block.own_bytes - _column_bytes() * len(block)

    def close(self) -> None:
        self._consumer.close()


class ArrowClient(ColumnsClient):
    """Our blocks as Arrow record batches; the offsets are summed by Arrow."""

    def _touch(self, block: Any, tally: Tally) -> None:
        import pyarrow.compute as pc

        batch = block.arrow()
        tally.records += batch.num_rows
        tally.offset_sum += pc.sum(batch.column("offset")).as_py()
        tally.content_bytes += block.own_bytes - _column_bytes() * len(block)


class RecordsClient(ColumnsClient):
    """Our records, one object each."""

    def _touch(self, block: Any, tally: Tally) -> None:
        count = size = offsets = 0
        for record in block.records():
            count += 1
            size += len(record.key) + len(record.value)
            offsets += record.offset
        tally.records += count
        tally.content_bytes += size
        tally.offset_sum += offsets


class ConfluentClient:
    """confluent-kafka with `consume()` in large batches."""

    check_crcs = True

    def __init__(self, source: Source) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self._consumer = Consumer(
            {
                "bootstrap.servers": source.bootstrap,
                "group.id": "bench",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "fetch.message.max.bytes": source.partition_bytes,
                "fetch.max.bytes": source.fetch_bytes,
                "queued.min.messages": 1_000_000,
                "queued.max.messages.kbytes": 1_000_000,
                "check.crcs": self.check_crcs,
                "fetch.wait.max.ms": WAIT_MS,
            }
        )
        self._batch = source.poll_records
        self._starts = [TopicPartition(source.topic, n, 0) for n in range(PARTITIONS)]
        self._consumer.assign(self._starts)

    def rewind(self) -> None:
        self._consumer.assign(self._starts)

    def read(self, records: int, tally: Tally) -> None:
        while tally.records < records:
            messages = self._consumer.consume(self._batch, timeout=0.1)
            size = offsets = 0
            for message in messages:
                if message.error() is not None:
                    raise RuntimeError(str(message.error()))
                size += len(message.key()) + len(message.value())  # type: ignore[arg-type]
                offsets += message.offset()  # type: ignore[operator]
            tally.records += len(messages)
            tally.content_bytes += size
            tally.offset_sum += offsets

    def close(self) -> None:
        self._consumer.close()


class ConfluentUncheckedClient(ConfluentClient):
    """The same with checksums off, its default."""

    check_crcs = False


class KafkaPythonClient:
    def __init__(self, source: Source) -> None:
        from kafka import KafkaConsumer, TopicPartition  # type: ignore[import-untyped]

        self._consumer = KafkaConsumer(
            bootstrap_servers=source.bootstrap,
            enable_auto_commit=False,
            max_partition_fetch_bytes=source.partition_bytes,
            fetch_max_bytes=source.fetch_bytes,
            max_poll_records=source.poll_records,
            check_crcs=True,
            fetch_max_wait_ms=WAIT_MS,
        )
        self._partitions = [TopicPartition(source.topic, n) for n in range(PARTITIONS)]
        self._consumer.assign(self._partitions)

    def rewind(self) -> None:
        for partition in self._partitions:
            self._consumer.seek(partition, 0)

    def read(self, records: int, tally: Tally) -> None:
        while tally.records < records:
            fetched = self._consumer.poll(timeout_ms=int(_POLL_SECONDS * 1_000))
            for messages in fetched.values():
                _count(messages, tally)

    def close(self) -> None:
        self._consumer.close()


class AiokafkaClient:
    def __init__(self, source: Source) -> None:
        self._loop = asyncio.new_event_loop()
        self._source = source
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        from aiokafka import AIOKafkaConsumer, TopicPartition  # type: ignore[import-untyped]

        self._consumer = AIOKafkaConsumer(
            bootstrap_servers=self._source.bootstrap,
            enable_auto_commit=False,
            max_partition_fetch_bytes=self._source.partition_bytes,
            fetch_max_bytes=self._source.fetch_bytes,
            check_crcs=True,
            fetch_max_wait_ms=WAIT_MS,
        )
        await self._consumer.start()
        self._partitions = [TopicPartition(self._source.topic, n) for n in range(PARTITIONS)]
        self._consumer.assign(self._partitions)

    def rewind(self) -> None:
        for partition in self._partitions:
            self._consumer.seek(partition, 0)

    def read(self, records: int, tally: Tally) -> None:
        self._loop.run_until_complete(self._read(records, tally))

    async def _read(self, records: int, tally: Tally) -> None:
        while tally.records < records:
            fetched = await self._consumer.getmany(timeout_ms=500, max_records=self._source.poll_records)
            for messages in fetched.values():
                _count(messages, tally)

    def close(self) -> None:
        self._loop.run_until_complete(self._consumer.stop())
        self._loop.close()


def _count(messages: Any, tally: Tally) -> None:
    """For clients whose records have plain attributes."""
    size = offsets = 0
    for message in messages:
        size += len(message.key) + len(message.value)
        offsets += message.offset
    tally.records += len(messages)
    tally.content_bytes += size
    tally.offset_sum += offsets


def _column_bytes() -> int:
    from multilane.wire.records.layout import COLUMN_BYTES

    return int(COLUMN_BYTES)


CLIENTS: Final[dict[str, type[Any]]] = {
    "columns": ColumnsClient,
    "arrow": ArrowClient,
    "records": RecordsClient,
    "confluent": ConfluentClient,
    "confluent-no-crc": ConfluentUncheckedClient,
    "kafka-python": KafkaPythonClient,
    "aiokafka": AiokafkaClient,
}
