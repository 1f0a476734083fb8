"""One partition, several triggers: who gets which records, who is detached, and what may be committed."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace

import pytest

from lane_world import PARTITION, World, block_of, turns
from multilane.clock import ManualClock
from multilane.commit.ledger import CommitPoint
from multilane.commit.trigger_positions import Position
from multilane.lanes.shared_processor import DetachLimits, SharedProcessor, Trigger
from multilane.types import NO_EPOCH
from multilane.wire.records.record import Record

FAR = DetachLimits(1_000_000, 3600.0, 1 << 40)


class Reads:
    """Remembers who reads on its own."""

    def __init__(self) -> None:
        self.detached: list[Trigger] = []
        self.woken = 0

    def begin(self, shared, trigger):
        self.detached.append(trigger)

    def end(self, shared):
        self.detached.clear()

    def wake(self):
        self.woken += 1


class Shared:
    """Triggers by name, each at an offset of its own. A trigger handles what its gate lets through."""

    def __init__(self, clock=None, start=0, absent=None, **offsets: int) -> None:
        self.clock = clock or ManualClock()
        self.got: dict[str, list[int]] = defaultdict(list)
        self.gates: dict[str, asyncio.Event] = {}
        self.worlds: dict[str, World] = {}
        self.reads = {name: Reads() for name in offsets}
        self.asked_for_blocks = 0
        triggers = []
        for name, offset in offsets.items():
            world = World(self._handler(name), lanes=2, room=4, start=offset)
            self.worlds[name] = world
            triggers.append(Trigger(name, world.processor, FAR, self.reads[name], -1))
        self.processor = SharedProcessor(
            PARTITION, triggers, CommitPoint(start, 0, (), 0), absent or {}, self.clock, absent_after=60.0
        )
        self.failures: list[BaseException] = []
        self.processor.listen(self._note_wants_blocks, self.failures.append)

    def _note_wants_blocks(self) -> None:
        self.asked_for_blocks += 1

    def _handler(self, name: str):
        gate = self.gates[name] = asyncio.Event()
        gate.set()

        async def handle(record: Record) -> None:
            await gate.wait()
            self.got[name].append(record.offset)

        return handle

    def limit(self, name: str, limits: DetachLimits) -> None:
        self.processor.triggers[name].limits = limits

    async def give(self, first: int, many: int) -> None:
        self.processor.accept(block_of([f"k{n}" for n in range(many)], first))
        self.processor.feed()
        await turns(40)

    async def __aenter__(self) -> Shared:
        return self

    async def __aexit__(self, *_: object) -> None:
        for gate in self.gates.values():
            gate.set()
        await self.processor.drain(0.0)
        for world in self.worlds.values():
            world.threads.close()


async def test_each_gets_every_record_from_its_own_position_on():
    async with Shared(a=0, b=3, c=7) as shared:
        await shared.give(0, 5)
        await shared.give(5, 5)
        assert {name: sorted(got) for name, got in shared.got.items()} == {
            "a": list(range(10)),
            "b": list(range(3, 10)),
            "c": list(range(7, 10)),
        }


async def test_the_shared_read_begins_where_the_first_of_them_is():
    """Nobody here needs what an absent trigger has left."""
    async with Shared(start=2, absent={"gone": Position(2)}, a=9, b=5) as shared:
        assert shared.processor.end(PARTITION) == 5


async def test_who_begins_below_the_group_reads_on_its_own():
    async with Shared(start=10, late=3, here=10) as shared:
        assert [t.name for t in shared.reads["late"].detached] == ["late"]
        assert shared.processor.end(PARTITION) == 10
        await shared.give(10, 3)
        assert (shared.got["here"], shared.got["late"]) == ([10, 11, 12], [])
        assert shared.processor.commit_point(PARTITION).offset == 10, "it never moves back"


@pytest.mark.parametrize(
    ("limits", "wait"), [(DetachLimits(3000, 3600.0, 1 << 40), 0.0), (DetachLimits(10**6, 3600.0, 50_000), 0.0)]
)
async def test_a_full_trigger_is_detached_and_pauses_nobody(limits, wait):
    async with Shared(slow=0, quick=0) as shared:
        shared.limit("slow", limits)
        shared.gates["slow"].clear()
        for first in range(0, 6000, 1000):
            await shared.give(first, 1000)
            await turns(4000)
            assert shared.processor.wants_blocks(PARTITION)
        assert shared.got["quick"] == sorted(shared.got["quick"])
        assert len(shared.got["quick"]) == 6000
        assert [t.name for t in shared.reads["slow"].detached] == ["slow"]
        waiting = shared.worlds["slow"].intake.waiting_rows
        await shared.give(6000, 1000)
        assert shared.worlds["slow"].intake.waiting_rows == waiting, "the shared read gives it nothing more"


async def test_a_trigger_that_does_not_keep_up_for_long_is_detached():
    async with Shared(slow=0, quick=0) as shared:
        shared.limit("slow", DetachLimits(10**6, 10.0, 1 << 40))
        shared.gates["slow"].clear()
        await shared.give(0, 3000)
        await turns(6000)
        assert shared.reads["slow"].detached == []
        shared.clock.advance(11.0)
        await shared.give(3000, 10)
        assert [t.name for t in shared.reads["slow"].detached] == ["slow"]


async def test_when_nobody_wants_more_nobody_is_detached():
    """The partition is paused then, and no trigger waits for another."""
    async with Shared(a=0, b=0) as shared:
        for name in ("a", "b"):
            shared.limit(name, DetachLimits(1, 0.0, 1))
            shared.gates[name].clear()
        await shared.give(0, 3000)
        assert not shared.processor.wants_blocks(PARTITION)
        assert not shared.reads["a"].detached + shared.reads["b"].detached


async def test_who_has_caught_up_shares_again_and_gets_nothing_twice():
    async with Shared(start=10, late=4, here=10) as shared:
        late = shared.processor.triggers["late"]
        await shared.give(10, 5)
        shared.processor.give(late, block_of([f"k{n}" for n in range(8)], 4))
        late.processor.feed()
        await turns(40)
        assert not shared.processor.catches_up(late, 12)
        shared.processor.give(late, block_of([f"k{n}" for n in range(5)], 12))
        late.processor.feed()
        await turns(40)
        assert shared.processor.catches_up(late, 17)
        await shared.give(15, 5)
        assert sorted(shared.got["late"]) == list(range(4, 20))
        assert shared.processor.commit_point(PARTITION).offset == 20


async def test_the_slowest_decides_and_the_others_are_named():
    async with Shared(slow=0, quick=0) as shared:
        shared.gates["slow"].clear()
        await shared.give(0, 4)
        point = shared.processor.commit_point(PARTITION)
        assert (point.offset, point.runs) == (0, ())
        assert point.positions == {"slow": Position(0), "quick": Position(4)}
        shared.gates["slow"].set()
        await turns(40)
        assert shared.processor.commit_point(PARTITION).offset == 4


async def test_who_is_absent_holds_the_commit_for_a_while(caplog):
    caplog.set_level("WARNING")
    async with Shared(absent={"gone": Position(2)}, start=2, here=2) as shared:
        await shared.give(2, 4)
        point = shared.processor.commit_point(PARTITION)
        assert point.offset == 2
        assert point.positions["gone"] == Position(2, (), int(shared.clock.wall()))
        shared.clock.advance(61.0)
        assert shared.processor.commit_point(PARTITION).offset == 6
        assert shared.processor.commit_point(PARTITION).positions["gone"].offset == 2, "for when it returns"
        assert [r.getMessage() for r in caplog.records] == [
            "t-3: trigger gone has been absent for 60 s (absentAfter): commits no longer wait for it at offset 2"
        ]


async def test_the_end_of_a_log_without_records_is_passed_by_all():
    async with Shared(a=0, b=0) as shared:
        await shared.give(0, 2)
        assert shared.processor.is_idle(PARTITION)
        shared.processor.pass_to(PARTITION, 9, 0)
        assert shared.processor.end(PARTITION) == 9
        assert shared.processor.commit_point(PARTITION).offset == 9


async def test_a_trigger_that_wants_blocks_wakes_whoever_reads_for_it():
    async with Shared(start=10, late=4, here=10) as shared:
        late = shared.processor.triggers["late"]
        shared.processor.give(late, block_of(["k"] * 3, 4))
        before = shared.asked_for_blocks
        late.processor.feed()
        await turns(20)
        assert shared.reads["late"].woken
        assert shared.asked_for_blocks > before


async def test_limits_below_what_lanes_hold_count_too():
    async with Shared(slow=0, quick=0) as shared:
        shared.limit("slow", DetachLimits(20, 3600.0, 1 << 40))
        shared.gates["slow"].clear()
        await shared.give(0, 100)
        shared.processor.feed()
        slow = shared.processor.triggers["slow"]
        assert shared.reads["slow"].detached == [slow]
        assert not shared.processor.catches_up(slow, 100), "it would be detached again at once"
        shared.gates["slow"].set()
        await turns(1000)
        assert shared.processor.catches_up(slow, 100)


async def test_triggers_get_the_very_same_records():
    """Each made its own."""
    async with Shared(a=0, b=0) as shared:
        for gate in shared.gates.values():
            gate.clear()
        await shared.give(0, 2)
        ours, theirs = (world.pool.in_flight for world in shared.worlds.values())
        assert sorted(record.offset for record in ours) == [0, 1]
        assert all(one is other for one, other in zip(sorted(ours), sorted(theirs), strict=True))


async def test_a_block_with_more_than_the_limits_detaches_nobody_who_keeps_up_with_the_others():
    """One was detached whenever another had taken in some more of the block than it had: then each read alone."""
    async with Shared(a=0, b=0) as shared:
        for name, gate in shared.gates.items():
            shared.limit(name, DetachLimits(300, 3600.0, 1 << 40))
            gate.clear()
        await shared.give(0, 500)
        shared.gates["a"].set()
        while shared.worlds["a"].intake.waiting_rows > 250:
            await turns(1)
        shared.gates["a"].clear()
        shared.processor.feed()
        assert [shared.reads[name].detached for name in "ab"] == [[], []]
        shared.gates["a"].set()
        await turns(2_000)
        shared.processor.feed()
        assert [trigger.name for trigger in shared.reads["b"].detached] == ["b"]


async def test_the_commit_of_an_idle_partition_is_worked_out_once():
    """It is asked for every second, for each partition."""
    async with Shared(a=0, b=0) as shared:
        await shared.give(0, 4)
        point = shared.processor.commit_point(PARTITION)
        assert shared.processor.commit_point(PARTITION) is point
        shared.gates["b"].clear()
        await shared.give(4, 2)
        assert shared.processor.commit_point(PARTITION).positions == {"a": Position(6), "b": Position(4)}
        shared.gates["b"].set()
        await turns(40)
        assert shared.processor.commit_point(PARTITION).offset == 6


async def test_at_rest_nobody_begins_anything_nor_reads_on_its_own():
    """A lease is over: what runs may end, and nothing is given to anybody any more."""
    async with Shared(start=10, late=3, here=10) as shared:
        shared.gates["here"].clear()
        await shared.give(10, 3)
        await shared.processor.wait_until_idle(0.0)
        assert shared.reads["late"].detached == []
        shared.gates["here"].set()
        await turns(40)
        assert len(shared.got["here"]) == 2, "one in each lane"
        assert shared.processor.triggers["here"].processor.in_flight_or_pending == ()


async def test_a_position_that_nobody_knew_is_known_with_the_first_block():
    """Also that of a trigger that takes nothing in: else it would begin somewhere else the next time."""
    async with Shared(start=-1, slow=-1, quick=-1) as shared:
        shared.worlds["slow"].processor.queue.is_paused = True
        await shared.give(70, 3)
        assert sorted(shared.got["quick"]) == [70, 71, 72]
        assert shared.got["slow"] == []
        point = shared.processor.commit_point(PARTITION)
        assert point.offset == 70
        assert {name: position.offset for name, position in point.positions.items()} == {"slow": 70, "quick": 73}


@pytest.mark.parametrize("ahead_of", ["where it began", "what it got"])
async def test_records_of_a_newer_epoch_below_a_trigger_are_others_than_it_had(ahead_of):
    """The log was cut between the shared read and a trigger that is ahead of it: its new records would be left out."""
    cuts = []
    async with Shared(ahead=5, here=0) as shared:
        shared.processor.on_cut = lambda partition, offset: cuts.append((partition, offset))
        shared.processor.triggers["ahead"].end_epoch = 0 if ahead_of == "where it began" else NO_EPOCH
        if ahead_of == "what it got":
            shared.processor.give(shared.processor.triggers["ahead"], of_epoch(0, block_of(["a"] * 5, 5)))
        shared.processor.accept(of_epoch(0, block_of(["a"] * 2, 0)))
        assert cuts == []
        shared.processor.accept(of_epoch(1, block_of(["b"] * 2, 2)))
        shared.processor.accept(of_epoch(1, block_of(["b"] * 8, 4)))
        shared.processor.feed()
        await turns(40)
        assert cuts == [(PARTITION, 2)], "once: everything is built again then"
        assert sorted(shared.got["here"]) == list(range(12))
        assert sorted(shared.got["ahead"]) == (list(range(5, 10)) if ahead_of == "what it got" else [])


async def test_a_trigger_that_begins_where_nobody_has_read_knows_no_epochs_below():
    cuts = []
    async with Shared(ahead=5, here=0) as shared:
        shared.processor.on_cut = lambda partition, offset: cuts.append(offset)
        shared.processor.accept(of_epoch(3, block_of(["a"] * 9, 0)))
        shared.processor.feed()
        await turns(40)
        assert cuts == []
        assert sorted(shared.got["ahead"]) == [5, 6, 7, 8]


def of_epoch(epoch, block):
    segments = block.columns.segments.copy()
    segments[:, 1] = epoch
    return replace(block, columns=replace(block.columns, segments=segments), leader_epoch=epoch)


async def test_a_trigger_that_leaves_is_no_longer_waited_for_and_gets_nothing_more():
    async with Shared(slow=0, quick=0) as shared:
        shared.gates["slow"].clear()
        await shared.give(0, 6)
        assert shared.processor.commit_point(PARTITION).offset == 0
        leaving = asyncio.ensure_future(shared.processor.release("slow", 1e9))
        await turns()
        await shared.give(6, 3)
        assert len(shared.got["quick"]) == 9, "nobody waits for the records in flight"
        assert "slow" in shared.processor.commit_point(PARTITION).positions
        shared.gates["slow"].set()
        await leaving
        point = shared.processor.commit_point(PARTITION)
        assert (point.offset, point.positions.keys()) == (9, {"quick"})
        assert len(shared.got["slow"]) < 9
        assert shared.processor.settled == 9 + len(shared.got["slow"])


async def test_the_last_one_leaves_its_position_to_the_group():
    async with Shared(start=2, last=2) as shared:
        await shared.give(2, 6)
        await shared.processor.release("last", 1e9)
        point = shared.processor.commit_point(PARTITION)
        assert (point.offset, point.runs, point.positions) == (8, (), {})
        assert not shared.processor.wants_blocks(PARTITION)


async def test_an_absent_one_that_leaves_holds_nothing():
    async with Shared(absent={"gone": Position(0)}, here=0) as shared:
        await shared.give(0, 4)
        assert shared.processor.commit_point(PARTITION).offset == 0
        await shared.processor.release("gone", 1e9)
        assert shared.processor.commit_point(PARTITION).offset == 4


@pytest.mark.parametrize(("begins", "detached"), [(3, True), (10, False), (14, False)])
async def test_a_trigger_that_is_attached_begins_where_it_is(begins, detached):
    async with Shared(here=0) as shared:
        await shared.give(0, 10)
        world = World(shared._handler("late"), lanes=2, room=100, start=begins)
        shared.worlds["late"], reads = world, Reads()
        shared.processor.attach(Trigger("late", world.processor, FAR, reads, -1))
        assert bool(reads.detached) == detached
        await shared.give(10, 10)
        expected = [] if detached else list(range(max(begins, 10), 20))
        assert sorted(shared.got["late"]) == expected
        assert shared.processor.commit_point(PARTITION).positions["late"].offset == (begins if detached else 20)


async def test_whoever_gets_a_block_knows_its_epoch():
    """A trigger that is detached then reads on from there."""
    async with Shared(start=4, late=2, here=4, there=4) as shared:
        shared.processor.accept(of_epoch(7, block_of(["a"] * 3, 4)))
        known = {name: trigger.leader_epoch for name, trigger in shared.processor.triggers.items()}
        assert known == {"late": -1, "here": 7, "there": 7}


async def test_a_trigger_that_has_kept_up_meanwhile_has_all_of_its_time_again():
    async with Shared(slow=0, quick=0) as shared:
        shared.limit("slow", DetachLimits(10**6, 10.0, 1 << 40))
        for first in (0, 3000):
            shared.gates["slow"].clear()
            await shared.give(first, 3000)
            await turns(6000)
            shared.processor.feed()
            shared.clock.advance(6.0)
            shared.processor.feed()
            assert shared.reads["slow"].detached == []
            shared.gates["slow"].set()
            while shared.worlds["slow"].intake.waiting_rows:
                await turns(1)
            shared.processor.feed()
        assert shared.reads["slow"].detached == []
