"""What interrupts members in the middle of their work: a kill while copies are on their way, SIGTERM, and a broker that
goes away and comes back."""

from __future__ import annotations

import itertools

import pytest

from broker.timers import SHORT_SESSIONS
from conformance.cases import PROTOCOLS, WITHOUT_BREAKER, Item, Order, new_cases, orders
from conformance.runs import by_case
from multilane.dev.kafka import KafkaCluster
from multilane.testing.events import Copied, Ended, Left, Rebalanced, Started
from multilane.testing.guarantees import AtLeastOnce, NoCommitPastUnsettled, violations

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_a_member_is_killed_while_its_copies_are_on_their_way(run):
    """Every record fails at first, so that there is always a copy between a producer and its acknowledgement."""
    cases = new_cases(
        ("single", "retry", "consumer"),
        ("single", "key", "consumer"),
        ("batch", "key", "classic"),
        ("columns", "retry", "classic"),
        ("unique", "key", "consumer"),
        ("sync", "key", "classic"),
        keys=WITHOUT_BREAKER,
    )
    run = run(cases)
    run.start("A1", "B1")
    run.look_until(run.is_shared)
    rows = by_case(cases, lambda case: failing_orders(case, 400))
    for at in range(4):
        run.produce(one for row in rows[at::4] for one in row)
        run.look()
    run.look_until(lambda: all(copies(run, case) >= 40 for case in cases))
    run.kill("B1")
    left = {case.name: len(run.done(case)) for case in cases}
    run.start("B2")
    run.finish()
    assert any(many < 400 for many in left.values()), "all was done before anybody was killed"
    assert run.judged() == {}
    assert {case.name: len(run.done(case)) for case in cases} == {case.name: 400 for case in cases}


def failing_orders(case, count):
    for item in orders(case, count, longest_wait=0.01):
        yield Item(item.key, item.partition, Order(item.order.number, item.order.wait, max(1, item.order.fails)))


def copies(run, case):
    return sum(isinstance(event, Copied) for event in run.events[case.name])


def test_sigterm_ends_what_is_in_work_and_begins_nothing(run, tmp_path):
    gate = tmp_path / "gate"
    shapes = itertools.product(("single", "sync"), ("retry", "key"), PROTOCOLS)
    cases = new_cases(*shapes, partitions=1, keys={"maxProcessingTime": "10m"})  # a busy machine takes its time
    run = run(cases)
    run.produce((case, Item(f"k{i}", 0, Order(i, hold=str(gate)))) for case in cases for i in range(40))
    run.start("A1")
    run.look_until(lambda: all(len(run.started(case)) >= 4 for case in cases))
    run.members["A1"].terminate()
    run.look_until(lambda: "SIGTERM" in run.members["A1"].log.read_text())
    heard_at = run.now()
    while run.now() - heard_at < 3:  # on Spark the workers hear of it last
        run.look()
    assert run.members["A1"].running
    begun = {case.name: len(run.started(case)) for case in cases}  # a batch carries calls over, and lanes go on
    gate.touch()
    run.members["A1"].wait_ended()
    run.look()
    for case in cases:
        assert len(run.started(case, "A1")) == begun[case.name], "something was begun after SIGTERM"
        ended = [event for event in run.told(case) if isinstance(event, Ended)]
        assert [event.is_ok for event in ended] == [True] * begun[case.name]
        assert run.committed(case) == {(case.name, 0): begun[case.name]}
    run.start("A2")
    run.finish()
    assert run.judged() == {}
    assert all(len(run.started(case)) == 40 for case in cases)


def test_a_broker_goes_away_and_comes_back(run):
    cases = new_cases(
        ("single", "retry", "consumer"),
        ("batch", "key", "consumer"),
        ("sync", "key", "classic"),
        ("unique", "key", "classic"),
    )
    with KafkaCluster(properties=SHORT_SESSIONS) as kafka:
        run = run(cases, kafka)
        run.start("A1", "B1")
        run.look_until(run.is_shared)
        rows = by_case(cases, lambda case: orders(case, 600, longest_wait=0.02))
        run.produce(one for row in rows[:300] for one in row)
        run.look_until(lambda: all(len(run.done(case)) >= 30 for case in cases))
        kafka.stop(1)
        kafka.start(1)
        run.produce(one for row in rows[300:] for one in row)
        run.finish()
    assert run.judged() == {}
    assert all(len(run.done(case)) == 600 for case in cases)
    assert all(member.running is False for member in run.members.values())


def test_a_member_that_was_frozen_commits_nothing_of_what_it_lost(run):
    """Its functions go on where they were when it wakes up, beside those of others: that nobody can help. What it had
    begun is not its own any more."""
    cases = new_cases(("single", "retry", "consumer"), ("sync", "key", "classic"), ("batch", "none", "consumer"))
    run = run(cases)
    run.start("A1", "B1")
    run.look_until(run.is_shared)
    rows = by_case(cases, lambda case: orders(case, 400, longest_wait=0.03))
    run.produce(one for row in rows[:200] for one in row)
    run.look_until(lambda: all(run.started(case, "B1") for case in cases))
    run.members["B1"].freeze()
    run.produce(one for row in rows[200:] for one in row)
    run.look_until(run.is_settled)
    run.members["B1"].thaw()
    run.look_until(lambda: all(_has_lost(run, case, "B1") for case in cases))
    run.finish()
    for case in cases:
        told = run.told(case)
        assert [str(v) for v in violations(told, [AtLeastOnce(), NoCommitPastUnsettled()])][:5] == []
        assert len(run.done(case)) == 400


def _has_lost(run, case, member):
    told = run.events[case.name]
    return any(isinstance(event, Rebalanced) and event.is_lost and event.member == member for event in told)


def _round(number):
    """A record for each of some keys."""
    return [Item(f"k{i}", i % 4, Order(number * 12 + i, wait=0.1)) for i in range(12)]


def test_a_member_that_joins_takes_over_without_overlap(run):
    """Slow functions on threads, which nobody can cancel: the partition waits for them."""
    cases = new_cases(("sync", "key", "consumer"), ("sync", "none", "classic"), partitions=4)
    run = run(cases)
    run.start("A1")
    numbers = itertools.count()

    def produce_and_look_for(member):
        if run.is_settled():
            run.produce((case, item) for _ in range(3) for item in _round(next(numbers)) for case in cases)
        return all(run.started(case, member) for case in cases)

    run.look_until(lambda: produce_and_look_for("A1"))
    run.start("B1")
    run.look_until(lambda: produce_and_look_for("B1"))
    run.stop("A1")
    run.finish()
    assert run.judged() == {}
    for case in cases:
        told = run.told(case)
        assert {e.member for e in told if isinstance(e, Started)} == {"A1", "B1"}
        handed = {e.place[:2] for e in told if isinstance(e, Started) and e.member == "A1"} & {
            e.place[:2] for e in told if isinstance(e, Started) and e.member == "B1"
        }
        assert handed, "no partition changed hands"
        assert any(isinstance(event, Left) and event.member == "A1" for event in told)
