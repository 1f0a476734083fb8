"""Windows with a record that stays in place: `orderBy` decides which records wait behind it."""

from __future__ import annotations

import pytest

from lane_world import TakenOver, World, record_of, until
from multilane.lanes.chains import Chains
from multilane.lanes.ordering import by_key, by_partition, unordered
from multilane.lanes.partition_queue import MAIN
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.window import Window
from multilane.outcome.in_place import resting, retried
from multilane.wire.records.record import Record


class Keeping(TakenOver):
    """Every failed record stays in place."""

    async def take_over(self, record, error, parking):
        return retried(record, None, 0.0)


@pytest.mark.parametrize(
    ("order_of", "keys", "handled"),
    [
        (by_key(), "ab", [0, 1, 0]),
        (by_key(), "aa", [0, 0, 1]),
        (by_partition(), "ab", [0, 0, 1]),
        (unordered(), "aa", [0, 1, 0]),
    ],
    ids=["other-key", "same-key", "partition", "none"],
)
@pytest.mark.parametrize("as_batch", [False, True], ids=["one-by-one", "batch"])
async def test_what_is_behind_a_record_that_stays(order_of, keys, handled, as_batch):
    calls: list[int] = []

    async def one(record: Record) -> None:
        calls.append(record.offset)
        if len(calls) == 1:
            raise OSError("down")

    async def several(records: list[Record]) -> dict[Record, Exception]:
        is_first = not calls
        calls.extend(record.offset for record in records)
        return {records[0]: OSError("down")} if is_first else {}

    rules = WorkRules(retries_in_place=True, order_of=order_of)
    async with World(several if as_batch else one, lanes=2, window=Window(2, 60.0), rules=rules) as world:
        world.work.settling.failures = failures = Keeping()
        world.queue.chains(MAIN)._order_of = order_of
        await world.give(*keys)
        world.processor.flush()
        await until(lambda: world.is_done)
    # A batch has had both already: what has to come after the one that stays is handled once more.
    is_repeated = as_batch and handled == [0, 0, 1]
    assert calls == ([0, 1, *handled[1:]] if is_repeated else handled)
    assert failures.interrupted == ([1] if is_repeated else []), "the audit is notified"


def test_a_record_that_came_back_behind_others_of_its_key_rests_before_it_is_taken():
    """Rejected by hand after later records of its key were taken."""
    chains = Chains(by_key(), 2)
    chains.put([record_of("a", 0)], now=0.0)
    first = chains.take_one()
    chains.put_rested([resting(record_of("a", 5), 1, 100.0)], now=0.0)
    chains.release(first, now=1.0)
    assert not chains.ready
    assert chains.wake(100.0) is None
    assert chains.take_one().offset == 5
