"""Records that may kill their process: the table of a dead process, suspects, and records that are handled alone."""

from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from uuid import uuid4

import pytest

from lane_world import PARTITION, World, record_of, until
from multilane.clock import ManualClock, SystemClock
from multilane.commit.ledger import Ledger
from multilane.lanes.assignment import Start
from multilane.lanes.begun import FIRST_SLOT, IDLE, SLOT_WORDS, BegunTable, LaneMarks, Name, own_tables
from multilane.lanes.crashes import Crash, OpenCall, Suspicion, suspicion
from multilane.lanes.dead_tables import crashes_in
from multilane.lanes.intake import Intake
from multilane.lanes.watch import SuspectIsolation, Watch
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.window import Window
from multilane.outcome.poison import SuspectedPoison
from multilane.runtime.crash_watch import CrashWatch
from multilane.wire.records.record import Record

NOW = SystemClock().wall()
NAME = Name("brokers", "group", *PARTITION)
OTHER = Name("brokers", "group", "u", 0)
KILLED = """
import os, signal, sys
from pathlib import Path
from multilane.lanes.begun import BegunTable, LaneMarks, Name
table = BegunTable(Path(sys.argv[1]))
marks = LaneMarks(table, {"t": table.number_of(Name("brokers", "group", "t", 3))})
first, second, third = (marks.take_slot() for _ in range(3))
marks.words[first] = 7
marks.words[second], marks.words[second + 1] = 20, 25
if len(sys.argv) > 2:
    print("ready", flush=True)
    sys.stdin.read()
os.kill(os.getpid(), signal.SIGKILL)
"""


def nothing_is_settled(call: OpenCall) -> bool:
    return False


def crash(*calls: tuple[int, int], name=NAME, many: int | None = None) -> Crash:
    return Crash(tuple(OpenCall(name, first, last) for first, last in calls), len(calls) if many is None else many)


# --- tables ----------------------------------------------------------------------------------------------------------


def test_what_a_killed_process_was_at_is_read_by_the_next(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    [found] = crashes_in(tmp_path, nothing_is_settled, NOW)
    assert found == crash((7, 7), (20, 25))


def test_a_table_whose_process_lives_is_nobodys_business(tmp_path):
    command = [sys.executable, "-c", KILLED, str(tmp_path), "waits"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout.readline() == b"ready\n"
        assert crashes_in(tmp_path, nothing_is_settled, NOW) == []
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
    assert len(crashes_in(tmp_path, nothing_is_settled, NOW)) == 1


def test_calls_that_are_settled_are_cleared_and_one_that_is_left_was_not_alone(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    [left] = crashes_in(tmp_path, lambda call: call.last >= 20, NOW)
    assert left == crash((7, 7), many=2)
    assert left.alone is None
    assert crashes_in(tmp_path, lambda call: True, NOW) == []
    assert not list(tmp_path.iterdir())


async def test_a_crash_with_a_record_of_a_recreated_topic_makes_no_suspect(tmp_path):
    """Nor does one of a cluster that was set up anew at the same address: the offset has another record."""
    first, second = uuid4(), uuid4()
    for topic_id in (first, first):
        table = BegunTable(tmp_path)
        marks = LaneMarks(table, {"t": table.number_of(Name(*NAME[:4], topic_id.hex))})
        marks.words[marks.take_slot()] = 5
        own_tables.discard(table.path)
        os.close(table._file)  # as if its process had died

    async def suspected(topic_id):
        crashes = CrashWatch(SystemClock(), tmp_path)
        crashes.open()
        intake = Intake(PARTITION, Ledger(0), 100)
        watch = await crashes.watch("brokers", "group", 2, {intake: Start(0, topic_id=topic_id)})
        poison = watch.poison(record_of("a", 5))
        crashes.close()
        return poison

    assert await suspected(first) is not None
    assert await suspected(second) is None
    assert await suspected(first) is None, "a table with nothing left is deleted"


class FullAfter:
    """A disk with room for this many pages."""

    def __init__(self, pages: int, monkeypatch) -> None:
        self.pages = pages
        self._pwrite = os.pwrite
        monkeypatch.setattr(os, "pwrite", self)

    def __call__(self, file: int, content: bytes, at: int) -> int:
        self.pages -= 1
        if self.pages < 0:
            raise OSError(errno.ENOSPC, "full")
        return self._pwrite(file, content, at)


def test_a_full_disk_is_an_error_and_does_not_kill_the_process(tmp_path, monkeypatch):
    """A store to a mapped page without disk space raises SIGBUS: applications on a full disk died when they started."""
    FullAfter(1, monkeypatch)
    with pytest.raises(OSError, match="full"):
        BegunTable(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_leaves_lanes_with_the_slots_there_are(tmp_path, monkeypatch):
    table = BegunTable(tmp_path)
    full = FullAfter(1, monkeypatch)
    slots = [table.take_slot() for _ in range(500)]
    pages = {at * 8 // 4096 for at in slots}
    assert full.pages < 0
    assert 200 < len(set(slots)) < 400
    assert max(pages) - min(pages) < 3
    assert [table.number_of(Name("c", "g", "t" * 200, n, "")) for n in range(100)][-1] == IDLE
    for at in slots:
        table.give_slot(at)
    assert open_now(table) == []
    table.close()


def test_names_never_reach_into_the_slots(tmp_path):
    table = BegunTable(tmp_path)
    slot = table.take_slot()
    table.words[slot] = 7
    name = "t" * 4_000
    while table.number_of(Name("c", "g", name, len(table._numbers), "")) != IDLE:
        pass
    assert table.words[slot] == 7
    assert table.words[1] > 1_040_000
    table.close()


def test_a_file_that_is_no_table_is_deleted_and_a_forgotten_one_too(tmp_path):
    subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    (tmp_path / "1-2.begun").write_bytes(b"nonsense")
    assert len(crashes_in(tmp_path, nothing_is_settled, NOW)) == 1
    assert len(list(tmp_path.iterdir())) == 1
    assert crashes_in(tmp_path, nothing_is_settled, NOW + 8 * 86_400) == []
    assert not list(tmp_path.iterdir())


def test_a_process_that_ends_in_order_leaves_nothing(tmp_path):
    table = BegunTable(tmp_path)
    marks = LaneMarks(table, {"t": table.number_of(NAME)})
    at = marks.take_slot()
    marks.words[at] = 5
    assert crashes_in(tmp_path, nothing_is_settled, NOW) == []  # its own
    table.close()
    assert not list(tmp_path.iterdir())


def test_a_directory_of_somebody_else_is_not_used(tmp_path):
    tmp_path.chmod(0o777)
    with pytest.raises(PermissionError, match="other users"):
        BegunTable(tmp_path)


def test_a_slot_is_used_again_and_says_nothing_until_it_is(tmp_path):
    table = BegunTable(tmp_path)
    marks = LaneMarks(table, {"t": table.number_of(NAME)})
    at = marks.take_slot()
    marks.words[at] = 5
    marks.give_slot(at)
    assert marks.take_slot() == at == FIRST_SLOT + 1
    assert marks.words[at] == IDLE
    assert marks.take_slot() == at + SLOT_WORDS
    table.close()


# --- suspicion -------------------------------------------------------------------------------------------------------


def test_one_crash_makes_nobody_suspect():
    assert suspicion([crash((1, 1), (2, 2))], NAME, 3) == Suspicion()


def test_who_was_there_at_two_is_handled_alone():
    found = suspicion([crash((1, 1), (2, 2), (5, 5)), crash((2, 2), (5, 5), (9, 9))], NAME, 3)
    assert found == Suspicion(((2, 2), (5, 5)))


def test_who_was_there_at_three_and_alone_at_one_is_not_handled_again():
    crashes = [crash((1, 1), (2, 2)), crash((1, 1), (2, 2)), crash((2, 2))]
    assert suspicion(crashes, NAME, 3) == Suspicion(((1, 1),), {2: 3})


def test_no_record_is_convicted_for_being_in_flight_beside_others():
    crashes = [crash((1, 1), (2, 2))] * 9
    assert suspicion(crashes, NAME, 3).convicted == {}


def test_one_that_was_alone_at_two_kills_is_not_convicted_for_that():
    assert suspicion([crash((4, 4))] * 2, NAME, 3) == Suspicion(((4, 4),))


def test_a_batch_is_never_alone_and_its_whole_range_is_suspect():
    crashes = [crash((10, 14)), crash((12, 20)), crash((12, 20))]
    assert suspicion(crashes, NAME, 3) == Suspicion(((12, 20),))
    assert suspicion([*crashes, crash((13, 13))], NAME, 3) == Suspicion(((12, 12), (14, 20)), {13: 4})


def test_other_partitions_do_not_count_and_zero_turns_it_off():
    assert suspicion([crash((1, 1), name=OTHER)] * 5, NAME, 3) == Suspicion()
    assert suspicion([crash((1, 1))] * 5, NAME, 0) == Suspicion()


def test_crashes_of_an_unknown_log_raise_suspicion_and_convict_only_with_one_of_the_known_log():
    known = Name(*NAME[:4], uuid4().hex)
    before = [crash((4, 4))] * 5
    assert suspicion(before, known, 3) == Suspicion(((4, 4),))
    assert suspicion([*before, crash((4, 4), name=known)], known, 3) == Suspicion((), {4: 6})


# --- lanes -----------------------------------------------------------------------------------------------------------


class Seen:
    """A handler that records which calls run at the same time."""

    def __init__(self) -> None:
        self.running: set[int] = set()
        self.beside: dict[int, set[int]] = {}
        self.order: list[int] = []
        self.hold = asyncio.Event()

    async def __call__(self, record: Record) -> None:
        await self.call([record])

    async def call(self, records: list[Record]) -> None:
        mine = {record.offset for record in records}
        for offset in mine:
            self.beside[offset] = self.running | mine - {offset}
        for other in self.running:
            self.beside[other] |= mine
        self.running |= mine
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)
        self.order += sorted(mine)
        self.running -= mine


def isolating(tmp_path) -> tuple[SuspectIsolation, WorkRules, BegunTable]:
    isolation, table = SuspectIsolation(), BegunTable(tmp_path)
    watch = Watch(isolation, LaneMarks(table, {PARTITION.topic: table.number_of(NAME)}), {PARTITION.topic: NAME})
    return isolation, WorkRules(watch=watch), table


def open_now(table: BegunTable) -> list[int]:
    slots = range(FIRST_SLOT + 1, FIRST_SLOT + 1 + SLOT_WORDS * 64, SLOT_WORDS)
    return [table.words[at] for at in slots if table.words[at + 1] != 0 and table.words[at] != IDLE]


async def test_suspects_run_alone_and_the_others_side_by_side(tmp_path):
    isolation, rules, _ = isolating(tmp_path)
    seen = Seen()
    async with World(seen, lanes=8, rules=rules) as world:
        isolation.begin(NAME, Suspicion(((3, 4), (11, 11))), lambda: world.frontier)
        await world.give(*map(str, range(20)))
        await until(lambda: world.is_done)
        assert {offset for offset in range(20) if not seen.beside[offset]} >= {3, 4, 11}
        assert any(seen.beside[offset] for offset in range(20))
        assert not isolation.is_active
        assert world.pool._is_direct


async def test_lanes_that_were_there_before_isolate_suspects_too_and_then_take_the_short_loop_again(tmp_path):
    isolation, rules, _ = isolating(tmp_path)
    seen = Seen()
    async with World(seen, lanes=4, rules=rules) as world:
        await world.give(*map(str, range(6)))  # on the shortest way
        isolation.begin(NAME, Suspicion(((7, 7),)), lambda: world.frontier)
        await world.give(*map(str, range(6, 12)))
        await until(lambda: world.is_done)
        assert not seen.beside[7]
        await until(lambda: all(lane.is_direct for lane in world.pool._lanes))


async def test_the_table_names_a_suspect_alone(tmp_path):
    isolation, rules, table = isolating(tmp_path)
    named: dict[int, list[int]] = {}

    async def handle(record: Record) -> None:
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)
        named[record.offset] = open_now(table)

    async with World(handle, lanes=4, rules=rules) as world:
        await world.give(*map(str, range(6)))
        isolation.begin(NAME, Suspicion(((9, 9),)), lambda: world.frontier)
        await world.give(*map(str, range(6, 14)))
        await until(lambda: world.is_done)
        assert named[9] == [9]
        assert len(named[0]) > 1
        assert 0 in named[0]
    assert open_now(table) == []


async def test_a_convicted_record_fails_without_being_handled(tmp_path):
    isolation, rules, _ = isolating(tmp_path)
    seen = Seen()
    async with World(seen, lanes=4, rules=rules) as world:
        isolation.begin(NAME, Suspicion(convicted={2: 3}), lambda: world.frontier)
        await world.give(*map(str, range(5)))
        await until(lambda: world.is_done)
        assert sorted(seen.order) == [0, 1, 3, 4]
        assert world.failures.failed == [(2, SuspectedPoison.__name__)]


@pytest.mark.parametrize("as_rows", [False, True])
async def test_in_a_window_each_suspect_is_called_by_itself(tmp_path, as_rows):
    isolation, rules, _ = isolating(tmp_path)
    seen = Seen()

    async def handle(records: list[Record]) -> None:
        await seen.call(records)

    async with World(handle, lanes=1, window=Window(10, 0.01), rules=rules, as_rows=as_rows) as world:
        isolation.begin(NAME, Suspicion(((4, 5),), {7: 3}), lambda: world.frontier)
        await world.give(*map(str, range(10)))
        await until(lambda: world.is_done)
        assert seen.beside[4] == seen.beside[5] == set()
        assert seen.beside[0] == {1, 2, 3}
        assert seen.order == [0, 1, 2, 3, 4, 5, 6, 8, 9]
        assert world.failures.failed == [(7, SuspectedPoison.__name__)]


async def test_a_former_processor_that_ends_late_takes_nothing_from_its_successor():
    isolation = SuspectIsolation()

    def former() -> int:
        return 0

    def successor() -> int:
        return 0

    isolation.begin(NAME, Suspicion(((3, 3),)), former)
    isolation.begin(NAME, Suspicion(((3, 3),)), successor)
    isolation.end(NAME, former)
    assert isolation.is_active
    isolation.end(NAME, successor)
    assert not isolation.is_active


@pytest.mark.parametrize("kind", ["plain", "deaf"])
async def test_a_suspect_that_hangs_does_not_keep_the_others(tmp_path, kind):
    """After a process that hung was killed twice, the record that hangs was handled alone, and all consumers of the
    process stood still forever. Other suspects do not wait for it either."""
    isolation, rules, table = isolating(tmp_path)
    clock = isolation.clock = ManualClock()
    release, seen, beside = threading.Event(), list[int](), dict[int, list[int]]()

    def note(record: Record) -> None:
        seen.append(record.offset)
        beside[record.offset] = sorted(open_now(table))

    def plain(record: Record) -> None:
        note(record)
        if record.key == b"hangs":
            release.wait()

    async def deaf(record: Record) -> None:
        note(record)
        while record.key == b"hangs" and not release.is_set():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.005)

    async with World(plain if kind == "plain" else deaf, lanes=4, rules=rules) as world:
        isolation.begin(NAME, Suspicion(((0, 0), (3, 3))), lambda: world.frontier)
        await world.give("hangs", "a", "b", "c")
        await until(lambda: seen)
        assert seen == [0]
        await world.sweep_after(2.0)  # it exceeds maxProcessingTime
        await world.sweep_after(2.0)  # and does not end
        await until(lambda: len(seen) == 4)
        assert clock.monotonic() == 0.0  # no wait had to time out
        assert beside[3] == [0, 3]  # it is not alone, and the table shows it
        assert isolation.is_active
        release.set()
        await until(lambda: world.is_done)
        assert not world.errors
