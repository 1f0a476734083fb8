"""Spark's flows and the process engine under one group: hand-overs between them, and what Spark's own processes may
suffer. The first letter of a member's name: process, Spark, Spark in batches."""

from __future__ import annotations

import itertools
import random

import pytest

from conformance.cases import CROSSING, SHARING, WITHOUT_BREAKER, Item, Order, new_cases, orders
from conformance.runs import by_case

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LINE = (
    ("single", "key", "consumer"),
    ("batch", "retry", "classic"),
    ("columns", "none", "consumer"),
    ("unique", "key", "classic"),
)


@pytest.mark.parametrize(
    ("times", "keys"),
    [
        (2, {}),
        pytest.param(20, {}, marks=[pytest.mark.long, pytest.mark.timeout(900)]),
        (2, SHARING),
        pytest.param(5, CROSSING, marks=[pytest.mark.long, pytest.mark.timeout(600)]),
    ],
)
def test_an_app_goes_on_on_the_other_engine(run_on_either, times, keys):
    """Each stops in order in the middle of its work: nothing is lost, and nothing is handled again."""
    cases = new_cases(*LINE, keys=WITHOUT_BREAKER | keys)
    run = run_on_either(cases)
    many = 150 * (times + 1)
    rows = by_case(cases, lambda case: orders(case, many, longest_wait=0.01))
    names = [f"{'PBS'[at % 3]}{at}" for at in range(times + 1)]
    for at, name in enumerate(names):
        run.produce(one for row in rows[150 * at : 150 * (at + 1)] for one in row)
        run.start(name)
        run.look_until(lambda name=name: all(len(run.started(case, name)) >= 20 for case in cases))
        if name != names[-1]:
            run.stop(name)
    run.finish()
    assert run.judged() == {}
    assert {case.name: len(run.done(case)) for case in cases} == {case.name: many for case in cases}


@pytest.mark.long
@pytest.mark.parametrize(
    ("flow", "what", "keys"),
    [
        *((flow, what, {}) for flow in "SB" for what in ("worker", "jvm", "driver")),
        ("B", "coordinator", {}),
        *(("B", what, SHARING) for what in ("worker", "jvm", "coordinator")),
        ("B", "worker", CROSSING),
    ],
    ids=lambda keys: keys.get("sharing", "alone") if isinstance(keys, dict) else None,
)
def test_a_process_of_sparks_is_killed(run_on_either, flow, what, keys):
    """Half way, while others of the group work. What it was at is repeated, and nothing else is wrong."""
    cases = new_cases(*LINE, keys=WITHOUT_BREAKER | keys)
    run = run_on_either(cases)
    first, second = f"{flow}1", f"{flow}2"
    run.start(first, "P1")
    run.look_until(run.is_shared)
    rows = by_case(cases, lambda case: orders(case, 2_000, longest_wait=0.02))
    run.produce(one for row in rows[:450] for one in row)
    seen = random.randrange(20, 250)  # noqa: S311 - a point in time
    run.look_until(lambda: sum(len(run.started(case, first)) for case in cases) >= seen)
    member = run.members[first]
    getattr(member, f"kill_{what}")()
    goes_on = what in ("worker", "coordinator")
    if goes_on:
        assert member.running
    else:
        assert member.wait_failed() != 0
        run.start(second)
    killed_at, alive = run.now(), first if goes_on else second
    rest = iter(rows[450:])

    def trickles_until_it_works():
        if run.is_settled():
            run.produce(one for row in itertools.islice(rest, 50) for one in row)
        return any(event.at > killed_at for case in cases for event in run.started(case, alive))

    run.look_until(trickles_until_it_works)
    run.produce(one for row in rest for one in row)
    run.finish()
    assert run.judged() == {}
    assert all(len(run.done(case)) == 2_000 for case in cases)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("flow", ["S", "B"])
def test_a_key_that_hangs_for_ten_minutes_stops_nothing_else(run_on_either, tmp_path, flow):
    """A coroutine, within a maxProcessingTime that allows it. The others of its partition are handled and remembered:
    when the member is started again after that, only what hung is handled."""
    gate = tmp_path / "gate"
    cases = new_cases(
        ("single", "none", "consumer"),
        ("batch", "none", "classic"),
        partitions=1,
        keys={"maxProcessingTime": "1h", "virtualPartitionCount": 4},
    )
    run = run_on_either(cases)
    numbers = itertools.count(1)
    run.produce((case, Item("slow", 0, Order(0, hold=str(gate)))) for case in cases)
    run.start(f"{flow}1")
    run.look_until(lambda: all(run.started(case) for case in cases))
    since = run.now()
    while run.now() - since < 600:
        wanted = {str(n) for n in itertools.islice(numbers, 50)}
        run.produce((case, Item(f"k{n}", 0, Order(int(n)))) for n in sorted(wanted) for case in cases)
        run.look_until(lambda wanted=wanted: all(wanted <= run.done(case) for case in cases))
        assert not any(run.committed(case) for case in cases)
    gate.touch()
    run.finish()
    assert run.judged() == {}
