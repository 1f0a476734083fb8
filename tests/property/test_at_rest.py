"""What is kept of intakes at rest is what would be worked out anew, whatever happened between two looks.

Above all the commit point of a partition with several triggers: one that is kept too long would commit beyond a record
that a trigger has not settled.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from lane_world import PARTITION, World, block_of, turns
from multilane.clock import ManualClock
from multilane.commit.joint import joint
from multilane.commit.ledger import CommitPoint, Ledger
from multilane.lanes.at_rest import AtRest
from multilane.lanes.intake import Intake
from multilane.lanes.shared_processor import DetachLimits, SharedProcessor, Trigger
from multilane.wire.records.record import Record

NAMES = ("a", "b", "c")
FAR = DetachLimits(1_000_000, 3600.0, 1 << 40)
NAME = st.sampled_from(NAMES)


class NoReads:
    def begin(self, shared: SharedProcessor, trigger: Trigger) -> None: ...
    def end(self, shared: SharedProcessor) -> None: ...
    def wake(self) -> None: ...


class SharedMachine(RuleBasedStateMachine):
    """Triggers whose calls end when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.loop: asyncio.AbstractEventLoop | None = None
        self.clock = ManualClock()
        self.calls: dict[str, deque[asyncio.Future[None]]] = {name: deque() for name in NAMES}
        self.worlds: list[World] = []
        self.releases: list[asyncio.Future[None]] = []
        self.end = 0

    @initialize()
    def begin(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.shared: SharedProcessor = self.loop.run_until_complete(self._make())

    async def _make(self) -> SharedProcessor:
        triggers = [self._trigger(name, 0) for name in NAMES[:2]]
        shared = SharedProcessor(PARTITION, triggers, CommitPoint(0, 0, (), 0), {}, self.clock, absent_after=60.0)
        shared.listen(lambda: None, self._failed)
        return shared

    def _failed(self, error: BaseException) -> None:
        raise AssertionError(error)

    def _trigger(self, name: str, start: int) -> Trigger:
        async def handle(record: Record) -> None:
            call = asyncio.get_running_loop().create_future()
            self.calls[name].append(call)
            await call

        world = World(handle, lanes=3, start=start, clock=self.clock)
        self.worlds.append(world)
        return Trigger(name, world.processor, FAR, NoReads(), -1)

    def _do(self, what: Awaitable[Any] | None = None) -> None:
        async def do() -> None:
            if what is not None:
                await what
            await turns(30)

        self.loop.run_until_complete(do())

    # --- what comes --------------------------------------------------------------------------------------------------

    @rule(many=st.integers(1, 4), keys=st.sampled_from(["one", "each"]))
    def accept(self, many: int, keys: str) -> None:
        async def accept() -> None:
            self.shared.accept(block_of([f"k{n if keys == 'each' else 0}" for n in range(many)], self.end))
            self.shared.feed()

        self._do(accept())
        self.end += many

    @rule(gap=st.integers(1, 3))
    def pass_to(self, gap: int) -> None:
        """The end of the log has no records for us."""
        if self.shared.is_idle(PARTITION) and self.end >= self.shared.end(PARTITION):
            self.end += gap
            self.shared.pass_to(PARTITION, self.end, 0)

    @rule(name=NAME, which=st.sampled_from([0, -1]))
    def settle(self, name: str, which: int) -> None:
        calls = self.calls[name]
        if calls:
            call = calls[which]
            del calls[which]
            if not call.done():
                call.set_result(None)
            self._do()

    @rule()
    def settle_everything(self) -> None:
        while any(self.calls.values()):
            for name in NAMES:
                self.settle(name, 0)

    # --- who comes and goes ------------------------------------------------------------------------------------------

    @rule(name=NAME)
    def detach(self, name: str) -> None:
        trigger = self.shared.triggers.get(name)
        if trigger is not None and not trigger.is_detached and trigger.drained is None:
            self.shared._detach(trigger, "the test says so")

    @rule(name=NAME, many=st.integers(1, 6))
    def read_detached(self, name: str, many: int) -> None:
        trigger = self.shared.triggers.get(name)
        if trigger is None or not trigger.is_detached or trigger.drained is not None:
            return
        begin = trigger.processor.end(PARTITION)
        many = min(many, self.end - begin)

        async def give() -> None:
            self.shared.give(trigger, block_of([f"k{n}" for n in range(many)], begin))
            trigger.processor.feed()

        if many > 0:
            self._do(give())
        self.shared.catches_up(trigger, trigger.processor.end(PARTITION))

    @rule(name=NAME, is_patient=st.booleans())
    def release(self, name: str, is_patient: bool) -> None:
        trigger = self.shared.triggers.get(name)
        if trigger is not None and trigger.drained is None:
            deadline = self.clock.monotonic() + (3_600.0 if is_patient else 0.0)
            leaving = self.loop.create_task(self.shared.release(name, deadline))
            self.releases.append(leaving)
            self._do(None if is_patient else leaving)

    @rule(name=NAME, back=st.integers(0, 5))
    def attach(self, name: str, back: int) -> None:
        async def attach() -> None:
            self.shared.attach(self._trigger(name, max(0, self.end - back)))

        if name not in self.shared.triggers:
            self.calls[name].clear()
            self._do(attach())

    # --- what is committed -------------------------------------------------------------------------------------------

    @rule()
    def look(self) -> None:
        triggers, floor = self.shared.triggers, self.shared._commit._floor
        anew = {name: trigger.processor.commit_point(PARTITION) for name, trigger in triggers.items()}
        point = self.shared.commit_point(PARTITION)
        assert point == joint(anew, {}, floor, self.clock.wall(), 60.0)
        for name, trigger in triggers.items():
            open_ = trigger.processor.unsettled(PARTITION)
            assert point.positions[name].offset <= min(open_, default=point.positions[name].offset)
            is_new = point.positions[name].offset < floor.offset  # it begins below a commit, which never moves back
            assert is_new or point.offset <= min(open_, default=point.offset), "beyond an unsettled record"

    @precondition(lambda self: any(self.calls.values()))
    @rule()
    def look_settle_look(self) -> None:
        self.look()
        self.settle_everything()
        self.look()

    def teardown(self) -> None:
        if self.loop is None:
            return
        self.look()
        self.settle_everything()
        self.look()
        self._do(self.shared.drain(0.0))
        for leaving in self.releases:
            self._do(leaving)
        for world in self.worlds:
            world.threads.close()
        self.loop.close()


TestSharedMachine = SharedMachine.TestCase
TestSharedMachine.settings = settings(max_examples=60, stateful_step_count=30)


class LookedAt(Ledger):
    """Another thread looks at the moment when a piece is in no block any more, and not handed out yet."""

    __slots__ = ("look",)

    def hand_out(self, offsets: Any) -> None:
        self.look()
        super().hand_out(offsets)


def _counts(intake: Intake) -> tuple[int, int, int]:
    ledger = intake.ledger
    return ledger.position, ledger.handed_out + intake.waiting_rows, len(ledger)


@given(st.lists(st.tuples(st.sampled_from(["accept", "take", "settle", "pass", "look"]), st.integers(0, 1))))
def test_the_counts_of_intakes_are_those_of_now(steps: list[tuple[str, int]]) -> None:
    ledgers = [LookedAt(0), LookedAt(0)]
    intakes = [Intake(PARTITION, ledger, room=100) for ledger in ledgers]

    def count() -> tuple[int, ...]:
        return tuple(n for i in intakes for n in _counts(i))

    kept = AtRest(lambda: intakes, count)
    for ledger in ledgers:
        ledger.look = lambda: kept.value
    for step, which in (*steps, ("look", 0)):
        intake = intakes[which]
        if step == "accept":
            intake.accept(block_of("kl", intake.end))
        elif step == "take" and intake.has_blocks:
            intake.next_piece()
        elif step == "settle":
            for offset in intake.ledger.unsettled:
                intake.ledger.settle(offset)
        elif step == "pass" and intake.is_at_rest:
            intake.pass_to(intake.end + 1, 0)
        elif step == "look":
            assert kept.value == count()
