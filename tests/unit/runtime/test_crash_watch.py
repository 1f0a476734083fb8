"""One crash watch serves all consumers of a process: the suspects of a group are not those of another."""

from __future__ import annotations

import os
from contextlib import nullcontext

import pytest

from lane_world import PARTITION, record_of
from multilane.app.app import App
from multilane.clock import SystemClock
from multilane.commit.ledger import Ledger
from multilane.lanes.assignment import Start
from multilane.lanes.begun import BegunTable, LaneMarks, Name, own_tables
from multilane.lanes.intake import Intake
from multilane.runtime.crash_watch import CrashWatch
from multilane.runtime.shared_lanes import grouped
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

A, B = Name("one", "a", *PARTITION), Name("one", "b", *PARTITION)
OTHER_CLUSTER = Name("two", "a", *PARTITION)
OTHER_TRIGGER = A._replace(trigger="second")


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

    async def watch(self, name: Name, begin: int = 0):
        self.intakes[name] = intake = Intake(PARTITION, Ledger(0), 100)
        return await self.crashes.watch(name.cluster, name.group, 3, {intake: Start(begin)}, name.trigger)


async def test_what_one_trigger_has_settled_may_still_kill_another(tmp_path):
    """Triggers of a group have their own positions."""
    died(tmp_path, A, 7)
    consumers = Consumers(tmp_path)
    await consumers.watch(OTHER_TRIGGER, begin=8)
    assert (await consumers.watch(A)).poison(record_of("k", 7)) is not None
    consumers.crashes.close()


def test_a_name_without_a_trigger_is_written_as_ever(tmp_path):
    table = BegunTable(tmp_path)
    table.number_of(A)
    assert b'["one", "a", "t", 3, ""]\n' in table.path.read_bytes()
    table.close()


@pytest.mark.parametrize("other", [B, OTHER_CLUSTER, OTHER_TRIGGER], ids=["group", "cluster", "trigger"])
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
    assert not first.isolates_suspects
    consumers.crashes.close()


async def test_only_the_deaths_of_the_group_itself_are_counted_in_the_log(tmp_path, caplog):
    died(tmp_path, A, 7)
    died(tmp_path, B, 7, times=5)
    consumers = Consumers(tmp_path)
    await consumers.watch(A)
    assert "(3 deaths)" in caplog.text
    consumers.crashes.close()


async def test_a_hanging_call_ends_the_solitude_of_its_own_record_only(tmp_path):
    """Two groups may have the same record in flight."""
    died(tmp_path, A, 7, times=2)
    consumers = Consumers(tmp_path)
    first, second = await consumers.watch(A), await consumers.watch(B)
    assert first.isolation is second.isolation
    async with first.turn([record_of("k", 7)], nullcontext()):
        second.hangs([record_of("k", 7)])
        assert not first.isolation._opened.is_set()
        first.hangs([record_of("k", 7)])
        assert first.isolation._opened.is_set()
    consumers.crashes.close()


async def test_consumers_that_share_a_group_are_distinguished_and_one_that_does_not_needs_no_name(tmp_path):
    consumer = "{groupId: %s, name: t, cluster: main, offsetInitial: oldest, error: e}"
    file = tmp_path / "multilane.yaml"
    file.write_text(
        "clusters:\n  main: {clientId: c, brokers: 'h:1', sharing: same-topic}\nconsumers:\n"
        + "".join(f"  {name}: {consumer % group}\n" for name, group in (("a", "g"), ("b", "g")))
        + f"  c: {(consumer % 'other').replace('}', ', sharing: off}')}\n"
    )
    app = App(file)

    async def handle(record: Record) -> None: ...

    for name in "abc":
        app.listener(name)(handle)
    factories = app.lane_factories()
    grouped(factories, app.config, SystemClock())
    watched = {}
    for name, factory in factories.items():
        crashes = CrashWatch(SystemClock(), tmp_path / "begun")
        await factory.share_crash_watch(crashes).open()
        processor = await factory.build({TopicPartition("t", 3): Start(0)})
        watched[name] = crashes._table.path.read_bytes()
        await processor.drain(0.0)
        await factory.close()
    assert [b'"a"]\n' in watched["a"], b'"b"]\n' in watched["b"], b', 3, ""]\n' in watched["c"]] == [True] * 3
