"""One crash watch serves all consumers of a process: the suspects of a group are not those of another."""

from __future__ import annotations

import os
from contextlib import nullcontext

import pytest

from lane_world import PARTITION, record_of
from multilane.clock import SystemClock
from multilane.commit.ledger import Ledger
from multilane.lanes.assignment import Start
from multilane.lanes.begun import BegunTable, LaneMarks, Name, own_tables
from multilane.lanes.intake import Intake
from multilane.runtime.crash_watch import CrashWatch

A, B = Name("one", "a", *PARTITION), Name("one", "b", *PARTITION)
OTHER_CLUSTER = Name("two", "a", *PARTITION)


def died(directory, name: Name, offset: int, times: int = 3) -> None:
    """So many processes died alone at this record."""
    for _ in range(times):
        table = BegunTable(directory)
        marks = LaneMarks(table, {name.topic: table.number_of(name)})
        marks.words[marks.take_slot()] = offset
        own_tables.discard(table.path)
        os.close(table._file)  # as if its process had died


class Consumers:
    """Consumers of the same topic in one process."""

    def __init__(self, directory) -> None:
        self.crashes = CrashWatch(SystemClock(), directory)
        self.crashes.open()
        self.intakes: dict[Name, Intake] = {}

    async def watch(self, name: Name):
        self.intakes[name] = intake = Intake(PARTITION, Ledger(0), 100)
        return await self.crashes.watch(name.cluster, name.group, 3, {intake: Start(0)})


@pytest.mark.parametrize("other", [B, OTHER_CLUSTER], ids=["group", "cluster"])
async def test_a_record_is_convicted_only_for_the_group_whose_processes_died(tmp_path, other):
    """The innocent record of the other group went to its error topic."""
    died(tmp_path, A, 7)
    consumers = Consumers(tmp_path)
    first, second = await consumers.watch(A), await consumers.watch(other)
    assert first.poison(record_of("k", 7)) is not None
    assert second.poison(record_of("k", 7)) is None
    assert list(second.pieces([record_of("k", 6), record_of("k", 7)])) == [[record_of("k", 6), record_of("k", 7)]]
    consumers.crashes.close()


async def test_what_one_group_has_found_does_not_replace_what_another_has(tmp_path):
    died(tmp_path, A, 7)
    died(tmp_path, B, 3)
    consumers = Consumers(tmp_path)
    first, second = await consumers.watch(A), await consumers.watch(B)
    assert [first.poison(record_of("k", offset)) is not None for offset in (3, 7)] == [False, True]
    assert [second.poison(record_of("k", offset)) is not None for offset in (3, 7)] == [True, False]
    consumers.crashes.end(second, [consumers.intakes[B]])
    assert first.poison(record_of("k", 7)) is not None
    consumers.crashes.end(first, [consumers.intakes[A]])
    assert not first.is_careful
    consumers.crashes.close()


async def test_a_hanging_call_ends_the_solitude_of_its_own_record_only(tmp_path):
    """Two groups may have the same record in flight."""
    died(tmp_path, A, 7, times=2)
    consumers = Consumers(tmp_path)
    first, second = await consumers.watch(A), await consumers.watch(B)
    assert first.caution is second.caution
    async with first.turn([record_of("k", 7)], nullcontext()):
        second.hangs([record_of("k", 7)])
        assert not first.caution._opened.is_set()
        first.hangs([record_of("k", 7)])
        assert first.caution._opened.is_set()
    consumers.crashes.close()
