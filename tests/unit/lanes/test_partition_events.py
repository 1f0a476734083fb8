"""Partition functions: their arguments, and what happens when they fail."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass

import pytest

from multilane.lanes.partition_events import NO_EVENTS, PartitionEvents, PartitionFunctions
from multilane.types import TopicPartition

SOME = frozenset({TopicPartition("t", 0), TopicPartition("t", 1)})


@dataclass
class Config:
    name: str = "orders"
    group_id: str = "g"
    rebalance_timeout: float = 120.0


def events(*, assigned=(), revoked=(), config=None):
    return PartitionEvents(config or Config(), PartitionFunctions(assigned=assigned, revoked=revoked), lambda: "m-1")


async def test_coroutines_and_plain_functions_hear_of_partitions_and_the_last_finishes_first():
    heard = []

    async def first(event):
        heard.append(("first", event))

    def second(event):
        heard.append(("second", event))

    one = events(assigned=(first, second), revoked=(first, second))
    await one.assigned(SOME)
    await one.revoked(SOME, is_lost=True)
    assert [name for name, _ in heard] == ["first", "second", "second", "first"]
    event = heard[0][1]
    assert (event.consumer, event.group, event.member_id, event.partitions, event.is_lost) == (
        "orders",
        "g",
        "m-1",
        SOME,
        False,
    )
    assert heard[-1][1].is_lost


async def test_nothing_is_said_of_no_partitions():
    await events(assigned=(lambda event: 1 / 0,)).assigned(frozenset())
    await NO_EVENTS.assigned(SOME)
    await NO_EVENTS.revoked(SOME)


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(0), asyncio.CancelledError()], ids=repr)
async def test_a_function_that_fails_is_reported_and_the_others_are_called(is_async, error, caplog):
    heard = []

    async def fail(event):
        raise error

    def fail_plainly(event):
        raise error

    await events(assigned=(fail if is_async else fail_plainly, heard.append)).assigned(SOME)
    assert len(heard) == 1
    assert "failed for t-0, t-1: continuing" in caplog.text


async def test_one_that_hangs_holds_up_nobody_for_long(caplog):
    async def hang(event):
        await asyncio.get_running_loop().create_future()

    heard = []
    await events(revoked=(heard.append, hang), config=Config(rebalance_timeout=0.04)).revoked(SOME)
    assert len(heard) == 1
    assert "took longer than 0.01 s" in caplog.text


async def test_leaving_ends_nothing():
    await events(assigned=(lambda event: sys.exit(0),)).assigned(SOME)
