"""Only due items are polled."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from multilane.client.agenda import Agenda
from multilane.client.net.requests import NEVER


def test_whoever_comes_is_asked_once():
    agenda: Agenda[str] = Agenda()
    agenda.add("a")
    assert list(agenda.due(0.0)) == ["a"]
    assert list(agenda.due(1_000.0)) == []
    assert agenda.wait(0.0) == NEVER


def test_at_the_time_that_was_named():
    agenda: Agenda[str] = Agenda()
    agenda.add("a")
    agenda.due(0.0)
    agenda.schedule("a", 5.0)
    assert agenda.wait(2.0) == 3.0
    assert list(agenda.due(4.9)) == []
    assert list(agenda.due(5.0)) == ["a"]


def test_who_is_touched_is_due_whatever_he_had_named():
    agenda: Agenda[str] = Agenda()
    agenda.add("a")
    agenda.due(0.0)
    agenda.schedule("a", 5.0)
    agenda.touch("a")
    assert agenda.wait(0.0) == 0.0
    assert list(agenda.due(0.0)) == ["a"]
    assert list(agenda.due(5.0)) == []  # he named no time since


def test_who_is_gone_is_not_asked():
    agenda: Agenda[str] = Agenda()
    agenda.add("a")
    agenda.due(0.0)
    agenda.schedule("a", 5.0)
    agenda.remove("a")
    agenda.touch("a")
    agenda.schedule("a", 6.0)
    assert list(agenda.due(10.0)) == []
    assert "a" not in agenda


@given(st.lists(st.floats(1.0, 100.0), min_size=50, max_size=200))
def test_one_who_changes_his_mind_does_not_fill_the_heap(times):
    agenda: Agenda[str] = Agenda()
    agenda.add("a")
    agenda.due(0.0)
    agenda.schedule("a", 0.5)
    for time in times:
        agenda.schedule("a", time)
    assert len(agenda._heap) == 1
    assert list(agenda.due(times[-1])) == ["a"]


class Model(RuleBasedStateMachine):
    """Against a plain table of times, looked through from end to end."""

    def __init__(self) -> None:
        super().__init__()
        self.agenda: Agenda[int] = Agenda()
        self.times: dict[int, float] = {}
        self.now = 0.0

    @rule(item=st.integers(0, 4))
    def add(self, item: int) -> None:
        self.agenda.add(item)
        self.times[item] = -1.0

    @rule(item=st.integers(0, 4))
    def remove(self, item: int) -> None:
        self.agenda.remove(item)
        self.times.pop(item, None)

    @rule(item=st.integers(0, 4))
    def touch(self, item: int) -> None:
        self.agenda.touch(item)
        if item in self.times:
            self.times[item] = -1.0

    @rule(item=st.integers(0, 4), after=st.floats(0.1, 10.0))
    def schedule(self, item: int, after: float) -> None:
        if self.times.get(item) != -1.0:  # one who is due is asked before he names a time
            self.agenda.schedule(item, self.now + after)
            if item in self.times:
                self.times[item] = self.now + after

    @rule(passed=st.floats(0.0, 10.0))
    def ask(self, passed: float) -> None:
        self.now += passed
        expected = {item for item, time in self.times.items() if time <= self.now}
        assert set(self.agenda.due(self.now)) == expected
        for item in expected:
            self.times[item] = NEVER

    @invariant()
    def nobody_waits_too_long(self) -> None:
        soonest = min(self.times.values(), default=NEVER)
        assert self.agenda.wait(self.now) <= max(0.0, soonest - self.now)
        assert len(self.agenda) == len(self.times)


TestAgenda = Model.TestCase
