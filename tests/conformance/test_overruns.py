"""Functions that take longer than they may, and lanes that are full."""

from __future__ import annotations

import itertools

import pytest

from conformance.cases import Item, Order, new_cases
from conformance.runs import guarantees_for
from multilane.clock import SystemClock
from multilane.testing.events import Ended, Rebalanced
from multilane.testing.guarantees import NoDuplicateWithoutRestart, violations

pytestmark = [pytest.mark.broker, pytest.mark.slow]

CLOCK = SystemClock()
ONE_SECOND = {"maxProcessingTime": "1s", "virtualPartitionCount": 2}


def test_a_coroutine_that_hangs_is_cancelled_and_its_record_goes_to_retry(run, tmp_path):
    gate = tmp_path / "gate"
    cases = new_cases(
        ("single", "retry", "consumer"),
        ("single", "key", "classic"),
        ("batch", "retry", "classic"),
        ("unique", "key", "consumer"),
        partitions=1,
        keys=ONE_SECOND,
    )
    run = run(cases)
    run.produce((case, item) for case in cases for item in _with_one_that_hangs(case, gate))
    run.start("A1")
    run.look_until(lambda: all(_attempts(run, case, "0") >= 2 for case in cases))
    gate.touch()
    run.finish()
    assert run.judged() == {}
    for case in cases:
        assert {str(i) for i in range(41)} <= run.done(case)
        first = next(e for e in run.told(case) if isinstance(e, Ended) and e.record == "0")
        begun = next(e for e in run.started(case) if e.record == "0")
        assert not first.is_ok
        assert 1.0 <= first.at - begun.at < 10.0


def _with_one_that_hangs(case, gate):
    """And a later one of its key, but not for a unique listener: that would pass over the one that hangs."""
    yield Item("slow", 0, Order(0, hold=str(gate)))
    for i in range(1, 41):
        yield Item("slow" if i == 20 and case.kind != "unique" else f"k{i}", 0, Order(i))


def _attempts(run, case, record):
    return max((e.attempt for e in run.started(case) if e.record == record), default=0)


def test_a_plain_function_that_hangs_blocks_its_key_and_no_other(run, tmp_path):
    """As many hang as there are lanes. They cannot be ended, so their keys wait, and others get lanes instead."""
    gate = tmp_path / "gate"
    cases = new_cases(("sync", "retry", "consumer"), ("sync", "key", "classic"), partitions=1, keys=ONE_SECOND)
    run = run(cases)
    hung = [Item(key, 0, Order(i, hold=str(gate))) for i, key in enumerate(("slow", "slower"))]
    behind = [Item(key, 0, Order(i + 2)) for i, key in enumerate(("slow", "slower"))]
    others = [Item(f"k{i % 10}", 0, Order(i)) for i in range(4, 64)]
    run.produce((case, item) for case in cases for item in hung + behind + others)
    run.start("A1")
    run.look_until(lambda: all({str(i) for i in range(4, 64)} <= run.done(case) for case in cases))
    for case in cases:
        assert {e.record for e in run.started(case)}.isdisjoint({"2", "3"}), "a key went on while its function ran"
        assert run.committed(case).get((case.name, 0), 0) == 0
    # Both have overrun: the second may have waited for a thread, while a substitute lane handled all the others.
    run.look_until(lambda: all(CLOCK.monotonic() > e.at + 3 for case in cases for e in run.started(case)))
    gate.touch()
    run.finish()
    for case in cases:
        # The function ended well, and too late: it counts as failed, and the record is tried again.
        strict = [g for g in guarantees_for(case) if not isinstance(g, NoDuplicateWithoutRestart)]
        if case.mode == "key":
            strict = [g for g in strict if type(g).__name__ != "PerKeyOrder"]
        assert [str(v) for v in violations(run.told(case), strict)] == []
        assert _attempts(run, case, "0") == _attempts(run, case, "1") == 2
        assert len(run.done(case)) == 64
        if case.mode == "key":
            order = [e.record for e in run.told(case) if isinstance(e, Ended) and e.is_ok and e.key == "slow"]
            assert order == ["0", "0", "2"]


def test_a_full_lane_pauses_its_partition_and_nothing_else(run, tmp_path):
    """For longer than a session lasts: the member stays in its group meanwhile, and does not spin."""
    gate = tmp_path / "gate"
    cases = new_cases(
        ("single", "none", "consumer"),
        ("sync", "retry", "classic"),
        partitions=2,
        keys={
            "virtualPartitionCount": 1,
            "virtualPartitionChanCount": 5,
            "fetchMaxBytes": "1kb",
            "maxProcessingTime": "10m",  # a call that is cancelled may be retried in place
        },
    )
    run = run(cases)
    stuck = [Item("a", 0, Order(i, hold=str(gate))) for i in range(2_000)]
    free = [Item(f"k{i % 9}", 1, Order(10_000 + i)) for i in range(500)]
    run.produce((case, item) for case in cases for item in itertools.chain(stuck, free))
    run.start("A1")
    run.look_until(lambda: all(run.committed(case).get((case.name, 1)) == 500 for case in cases))
    for case in cases:
        assert [e.record for e in run.started(case) if e.place.partition == 0] == ["0"]
        assert run.committed(case).get((case.name, 0), 0) == 0
    member = run.members["A1"]
    _rests(run, member)  # what a member of Spark's counts, its driver hears some time later
    steps = {case.name: _steps(run, case) for case in cases}
    assert any(_rests(run, member) for _ in range(5)), "it is busy with waiting"
    assert steps == {case.name: _steps(run, case) for case in cases}
    gate.touch()
    run.finish()
    assert run.judged() == {}
    assert all(len(run.done(case)) == 2_500 for case in cases)


def _rests(run, member):
    """Half a core at most, for longer than a session. A JVM that has just begun is busy with itself for a while."""
    before, since = member.cpu_seconds(), run.now()
    run.look_until(lambda: run.now() - since > 4.0)
    return member.cpu_seconds() - before < 2.0


def _steps(run, case):
    return sum(isinstance(event, Rebalanced) for event in run.events[case.name])
