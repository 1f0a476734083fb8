"""Loops over records: in order, exactly once, and a commit covers what the loop has had."""

from __future__ import annotations

from itertools import islice

import pytest

from broker.group_members import PROTOCOLS, committed_in, fill, membership, new_group, partitions_of
from multilane import AsyncConsumer, Consumer

pytestmark = [pytest.mark.broker, pytest.mark.cluster]

ROWS = 300


def properties(kafka, variant, group):
    usual = {"bootstrap.servers": kafka.bootstrap(), "group.id": group, "auto.offset.reset": "earliest"}
    return {**usual, **membership(variant), "enable.auto.commit": False}


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_a_loop_may_be_left_and_taken_up_again(kafka, topic, variant):
    partitions = partitions_of(topic(2), 2)
    ends, group = fill(kafka, partitions, 0, ROWS), new_group()
    seen: dict[int, list[int]] = {0: [], 1: []}
    with Consumer(properties(kafka, variant, group)) as consumer:
        consumer.subscribe([partitions[0].topic])
        for record in consumer:
            seen[record.partition].append(record.offset)
            if sum(map(len, seen.values())) == 10:
                break
        consumer.commit()
        assert sum(committed_in(kafka, group, partitions).values()) == 10
        for record in islice(consumer, 200):  # another loop goes on where the first one was left
            seen[record.partition].append(record.offset)
            assert consumer.position((record.topic, record.partition)) == record.offset + 1
        for record in consumer.poll(10).records():  # and so does a poll
            seen[record.partition].append(record.offset)
        for record in islice(consumer, 2 * ROWS - sum(map(len, seen.values()))):
            seen[record.partition].append(record.offset)
        consumer.commit()
        assert committed_in(kafka, group, partitions) == ends
    assert seen == {0: list(range(ROWS)), 1: list(range(ROWS))}


def test_a_partition_that_is_paused_in_a_loop_goes_on_when_it_is_resumed(kafka, topic):
    partitions = partitions_of(topic(2), 2)
    fill(kafka, partitions, 0, ROWS)
    seen: list[tuple[int, int]] = []
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(partitions)
        for record in consumer:
            seen.append((record.partition, record.offset))
            if len(seen) == 5:
                first = record.partition
                consumer.pause([(record.topic, first)])
            if len(seen) == 5 + ROWS:  # nothing but the other one
                assert {partition for partition, _ in seen[5:]} == {1 - first}
                consumer.resume(consumer.paused)
            if len(seen) == 2 * ROWS:
                consumer.close()  # ends the loop
    assert sorted(seen) == [(p, o) for p in range(2) for o in range(ROWS)]


def test_after_an_exception_the_record_in_hand_is_not_committed(kafka, topic):
    [partition] = partitions_of(topic(1), 1)
    fill(kafka, [partition], 0, 20)
    group = new_group()
    given = {**properties(kafka, "consumer", group), "enable.auto.commit": True}

    def handle_until_it_fails() -> None:
        with Consumer(given) as consumer:
            consumer.subscribe([partition.topic])
            for record in consumer:
                assert 1 // (7 - record.offset) is not None

    with pytest.raises(ZeroDivisionError):
        handle_until_it_fails()
    assert committed_in(kafka, group, [partition]) == {partition: 7}


@pytest.mark.parametrize("variant", PROTOCOLS)
async def test_in_an_event_loop(kafka, topic, variant):
    [partition] = partitions_of(topic(1), 1)
    fill(kafka, [partition], 0, ROWS)
    seen, group = [], new_group()
    async with AsyncConsumer(properties(kafka, variant, group)) as consumer:
        consumer.subscribe([partition.topic])
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == 10:
                break
        await consumer.commit()
        async for record in consumer:
            seen.append(record.offset)
            if len(seen) == ROWS:
                break
    assert seen == list(range(ROWS))
    assert committed_in(kafka, group, [partition]) == {partition: 10}
