"""Triggers that share a consumer, whose members are killed at each step of a trigger's way out of the shared read and
back, and replaced by members with other triggers.

Every trigger is judged by itself: its records, its order, its named position, and the offset that all of them share.
"""

from __future__ import annotations

import threading

import pytest

from broker.app.lives import LANES, ONE_CHAIN, Lives
from broker.produce import new_producer
from broker.timers import SHORT_SESSIONS
from multilane import Admin
from multilane.clock import SystemClock
from multilane.dev.kafka import KafkaCluster
from multilane.testing.events import Committed, Produced, Started, in_order
from multilane.testing.guarantees import (
    AtLeastOnce,
    NoCommitPastUnsettled,
    NoDuplicateWithoutRestart,
    NoSameKeyOverlap,
    PerKeyOrder,
    violations,
)

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(400)]

STEPS = {
    "before it is detached": 1,
    "it is detached": 1,
    "its reader has partitions": 1,
    "a block was read for it alone": 2,
    "its reader has polled": 3,
    "a commit while it is detached": 4,
    "it has caught up": 1,
    "its reader has let go": 1,
    "a shared block after its return": 1,
    "a commit after its return": 1,
}
TRIGGERS = ("quick", "slow")
FIRST = 800  # records that are there before the first member
SLICE = 10  # records that arrive at a time
SLICES = 15  # that arrive after the kill
_CLOCK = SystemClock()
_PATIENCE = 180.0


@pytest.fixture(scope="module")
def kafka():
    with KafkaCluster(properties=SHORT_SESSIONS) as started:
        yield started


@pytest.fixture(scope="module")
def admin(kafka):
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as made:
        yield made


@pytest.fixture(scope="module")
def producer(kafka):
    return new_producer(kafka.bootstrap(), linger_ms=0, enable_idempotence=True)


@pytest.fixture(
    scope="module",
    params=[pytest.param(LANES, id="lanes"), pytest.param(ONE_CHAIN, id="one-chain", marks=pytest.mark.long)],
)
def lives(kafka, admin, producer, tmp_path_factory, request):
    """By step. All members run side by side; a second one takes over from each."""
    folder = tmp_path_factory.mktemp("killed")
    made = {step: Lives(TRIGGERS, kafka.bootstrap(), admin, folder, request.param) for step in STEPS}
    try:
        _run(made, producer)
        yield made
    finally:
        for one in made.values():
            one.put_away()


def _run(lives, producer):
    for step, one in lives.items():
        one.produce(producer, FIRST)
        one.start("first", TRIGGERS, step, str(STEPS[step]))
    left = dict.fromkeys(lives, SLICES)
    killed = set()
    deadline = _CLOCK.monotonic() + _PATIENCE
    while unfinished := [step for step, one in lives.items() if left[step] or not one.is_settled]:
        assert _CLOCK.monotonic() < deadline, "\n".join(f"--- {step}\n{lives[step].logs()}" for step in unfinished)
        for step, one in lives.items():
            one.look()
            if step not in killed and one.ended("first") is not None:
                assert one.ended("first") == -9, one.logs()
                killed.add(step)
                one.note_killed("first")
                one.start("second", TRIGGERS)
            # A block that comes while one of them is behind; the next ones when it has caught up.
            if left[step] and len(one.handled("quick" if one.produced == FIRST else "slow")) == one.produced:
                one.produce(producer, SLICE)
                left[step] -= step in killed
        threading.Event().wait(0.05)
    for one in lives.values():
        one.stop("second")
        one.look()


def judged(one, trigger):
    events = in_order(one.events[trigger])
    guarantees = [
        AtLeastOnce(),
        PerKeyOrder(),
        NoCommitPastUnsettled(),
        NoSameKeyOverlap(),
        NoDuplicateWithoutRestart(),
    ]
    shared = [event for event in events if not isinstance(event, Committed)] + one.commits[trigger]
    found = violations(events, guarantees) + violations(in_order(shared), [NoCommitPastUnsettled()])
    return [str(violation) for violation in found][:10]


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("step", STEPS)
def test_no_trigger_loses_or_reorders_anything(lives, step, trigger):
    assert judged(lives[step], trigger) == []


@pytest.mark.parametrize("step", STEPS)
def test_the_member_was_killed_at_work(lives, step):
    """A kill before or after everything would prove nothing."""
    one = lives[step]
    for trigger, events in one.events.items():
        assert {event.member for event in events if isinstance(event, Started)} == {"first", "second"}
        assert len(one.handled(trigger, "first")) < one.produced


def test_a_rolling_deployment_with_other_triggers(kafka, admin, producer, tmp_path):
    """The old version has `slow`, the new one `extra`, the last one both. Then one is killed, one stopped."""
    one = Lives(("quick", "slow", "extra"), kafka.bootstrap(), admin, tmp_path)
    try:
        _deploy(one, producer)
    finally:
        one.put_away()
    begins = {}
    for event in in_order(one.events["extra"]):
        if isinstance(event, Started):
            begins[event.place.partition] = min(
                event.place.offset, begins.get(event.place.partition, event.place.offset)
            )
    # It begins at the group's position: what lies below that is not its own.
    one.events["extra"] = [
        event
        for event in one.events["extra"]
        if not isinstance(event, Produced) or event.place.offset >= begins[event.place.partition]
    ]
    assert {trigger: judged(one, trigger) for trigger in one.events} == {"quick": [], "slow": [], "extra": []}
    assert len(one.handled("quick")) == len(one.handled("slow")) == one.produced
    for member, triggers in {"old": {"quick", "slow"}, "new": {"quick", "extra"}, "last": set(one.events)}.items():
        assert {trigger for trigger in one.events if one.handled(trigger, member)} == triggers


def _deploy(one, producer):
    def until(condition):
        deadline = _CLOCK.monotonic() + _PATIENCE
        one.look()
        while not condition():
            assert _CLOCK.monotonic() < deadline, one.logs()
            threading.Event().wait(0.05)
            one.look()

    def works(member, trigger):
        """Whether it handles records for it. They are produced as long as that takes."""
        if not one.handled(trigger, member):
            one.produce(producer, SLICE * 2)
        return one.handled(trigger, member)

    one.produce(producer, FIRST)
    one.start("old", ("quick", "slow"))
    until(lambda: works("old", "slow"))
    one.start("new", ("quick", "extra"))
    until(lambda: works("new", "extra"))
    one.kill("old")
    one.produce(producer, SLICE * 5)
    until(lambda: len(one.handled("quick")) == one.produced)
    assert not one.is_settled, "nobody waits for the trigger that is absent"
    one.start("last", ("quick", "slow", "extra"))
    until(lambda: works("last", "extra"))
    one.stop("new")
    until(lambda: works("last", "quick") and one.is_settled)
    one.stop("last")
    one.look()
