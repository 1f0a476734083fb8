"""What users may write with mypy --strict: tuples as partitions and plain numbers as offsets. `make lint` checks it; it
never runs."""

from __future__ import annotations

from multilane import AsyncConsumer, Consumer, OffsetAndMetadata, TopicPartition

BY_TUPLE: dict[tuple[str, int], int] = {("t", 0): 5}
WITH_METADATA: dict[tuple[str, int], OffsetAndMetadata] = {("t", 0): OffsetAndMetadata(5, 3, "mine")}
BY_PARTITION: dict[TopicPartition, OffsetAndMetadata] = {TopicPartition("t", 0): OffsetAndMetadata(5)}


def with_a_consumer(consumer: Consumer) -> int:
    consumer.assign([("t", 0)])
    consumer.seek(("t", 0), 5)
    consumer.seek_to_beginning([("t", 0)])
    consumer.seek_to_end([("t", 0)])
    consumer.seek_to_times({("t", 0): 5})
    consumer.pause([("t", 0)])
    consumer.resume([("t", 0)])
    consumer.commit({("t", 0): 5})
    consumer.commit(BY_TUPLE)
    consumer.commit(WITH_METADATA)
    consumer.commit(BY_PARTITION)
    consumer.commit_async({("t", 0): 5})
    consumer.offsets_for_times({("t", 0): 5})
    committed = consumer.committed([("t", 0)])[TopicPartition("t", 0)]
    consumer.commit(BY_PARTITION if committed is None else {("t", 0): committed})
    return consumer.position(("t", 0)) + consumer.end_offsets([("t", 0)])[TopicPartition("t", 0)]


async def with_an_async_consumer(consumer: AsyncConsumer) -> int:
    consumer.assign([("t", 0)])
    consumer.seek(("t", 0), 5)
    consumer.pause([("t", 0)])
    consumer.resume([("t", 0)])
    await consumer.commit({("t", 0): 5})
    await consumer.commit(BY_TUPLE)
    await consumer.commit(WITH_METADATA)
    await consumer.committed([("t", 0)])
    return await consumer.position(("t", 0))
