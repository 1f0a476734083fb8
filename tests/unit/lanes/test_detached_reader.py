"""A reader for one trigger, over a log that a test writes: it reads from where the trigger is, and gives it back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lane_world import PARTITION, turns, until
from log_consumer import LogConsumer
from multilane.errors import ClientFailed
from multilane.lanes.detached_reader import DetachedReader
from unit.lanes.test_shared_processor import Shared


class Reading(LogConsumer):
    """A consumer with partitions of its own choice. It counts how often one was made."""

    made = 0
    failure: Exception | None = None

    def __init__(self, keys: int) -> None:
        super().__init__()
        self.logs = {PARTITION: [f"k{n}" for n in range(keys)]}
        self.closed = 0

    def assign(self, partitions: Any) -> None:
        self.positions = {p: self.positions.get(p, 0) for p in partitions}

    async def poll(self, timeout):
        if self.failure is not None:
            raise self.failure
        return await super().poll(timeout)

    async def __aenter__(self) -> Reading:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.closed += 1


def reader_of(shared: Shared, consumer: Reading, failures: list[BaseException]) -> DetachedReader:
    reader = DetachedReader("late", lambda: consumer, failures.append)
    late = shared.processor.triggers["late"]
    late.reads = reader
    reader.begin(shared.processor, late)
    return reader


async def test_a_trigger_that_has_caught_up_is_given_back_although_its_lanes_are_idle():
    """An idle lane wakes the consumer at each look: that wakeup is not meant for the question where it is."""
    failures: list[BaseException] = []
    consumer = Reading(10)
    async with Shared(start=10, late=4, here=10) as shared:
        reader = reader_of(shared, consumer, failures)
        late = shared.processor.triggers["late"]
        await until(lambda: not late.is_detached)
        await until(lambda: len(shared.got["late"]) == 6)  # its lanes may be behind the read
        assert sorted(shared.got["late"]) == list(range(4, 10))
        assert reader.partitions == frozenset()
        await until(lambda: consumer.closed == 1)
        await shared.give(10, 3)
        assert sorted(shared.got["late"]) == list(range(4, 13))
        await reader.close()
    assert failures == []


async def test_it_is_sought_again_when_it_is_detached_again():
    failures: list[BaseException] = []
    consumer = Reading(10)
    async with Shared(start=10, late=4, here=10) as shared:
        reader = reader_of(shared, consumer, failures)
        late = shared.processor.triggers["late"]
        await until(lambda: not late.is_detached)
        await shared.give(10, 3)
        consumer.logs[PARTITION] += ["x"] * 5
        late.is_detached = True
        reader.begin(shared.processor, late)
        await until(lambda: sorted(shared.got["late"]) == list(range(4, 15)))
        assert consumer.sought[PARTITION][0] == 13
        await reader.close()
    assert failures == []


async def test_a_log_that_continues_below_is_reported_and_read_no_more():
    cuts: list[tuple[object, int]] = []
    consumer = Reading(10)
    async with Shared(start=10, late=4, here=10) as shared:
        shared.processor.on_cut = lambda partition, offset: cuts.append((partition, offset))
        reader = reader_of(shared, consumer, [])
        await until(lambda: consumer.sought)
        consumer.positions[PARTITION] = 2
        await until(lambda: cuts)
        assert cuts == [(PARTITION, 2)]
        assert reader.partitions == frozenset()
        await reader.close()


@pytest.mark.parametrize("is_draining", [True, False])
async def test_nothing_is_given_to_what_has_ended(is_draining):
    consumer = Reading(4)
    async with Shared(start=10, late=4, here=10) as shared:
        reader = reader_of(shared, consumer, [])
        await turns(20)
        if is_draining:
            await shared.processor.drain(0.0)
        else:
            await reader.close()
        consumer.logs[PARTITION] += ["x"] * 6
        polls = consumer.polls
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.02)
        assert consumer.polls <= polls + 1
        assert shared.got["late"] == []
        await reader.close()


async def test_a_failure_of_its_consumer_is_that_of_the_group():
    failures: list[BaseException] = []
    consumer = Reading(10)
    consumer.failure = ClientFailed("gone")
    async with Shared(start=10, late=4, here=10) as shared:
        reader = reader_of(shared, consumer, failures)
        await until(lambda: failures)
        await reader.close()
    assert failures[0] is consumer.failure
