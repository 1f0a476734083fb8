"""Every listener kind, retry mode and group protocol, with three members that come and go, under every guarantee.

One process is a member of all the groups at once: what is judged is each group by itself. There is a run for each
protocol, made once for all the tests that look at it. In its first half members leave in order, and in the second one
of them is killed.
"""

from __future__ import annotations

import itertools
import uuid
from dataclasses import replace

import pytest
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from conformance.cases import PROTOCOLS, WITHOUT_BREAKER, matrix, orders
from conformance.engine import ENGINES, ProcessMember
from conformance.runs import Run, by_case, guarantees_for
from multilane.testing.events import Ended, Killed, Rebalanced, Started, in_order
from multilane.testing.guarantees import violations

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RECORDS = 600  # in each half, of each case
SLICES = 10
LONGEST_WAIT = 0.016
# Longer than a busy machine ever stops a member or the broker: nobody may be lost who was not killed.
SESSION_SECONDS = 12
CASES = [case.name.removeprefix("x-") for case in matrix("x", "consumer")]


class Halves:
    """The course of a run. `first` is what was known when everything of the first half was settled."""

    def __init__(self, run, gate):
        self.run = run
        self.first = {}
        self._gate = gate

    def go(self):
        run = self.run
        run.start("A1", "B1", "C1")
        run.look_until(run.is_shared)
        for at, some in enumerate(self._slices(0)):
            run.produce(some)
            run.look()
            if at == SLICES // 2:
                run.look_until(lambda: all(run.started(case, "B1") for case in run.cases))
                run.stop("B1")
                run.start("B2")
        run.look_until(run.is_settled)
        self.first = {name: in_order(told) for name, told in run.events.items()}
        for at, some in enumerate(self._slices(RECORDS)):
            if at == SLICES // 2:
                run.produce(map(self._held, some))
                run.look_until(lambda: len(run.in_work("C1")) >= 5)
                run.kill("C1")
                self._gate.touch()
                run.start("C2")
            else:
                run.produce(some)
            run.look()
        run.finish()

    def _held(self, case_and_item):
        """So that there is work for a member to be killed at."""
        case, item = case_and_item
        held = replace(item.order, hold=str(self._gate))
        return case, item if item.key == "hot" else replace(item, order=held)

    def _slices(self, first):
        cases = self.run.cases.values()
        rows = by_case(cases, lambda case: orders(case, RECORDS, longest_wait=LONGEST_WAIT, first=first))
        many = RECORDS // SLICES
        return [list(itertools.chain(*rows[at * many : (at + 1) * many])) for at in range(SLICES)]


class Runs:
    """By engine and protocol, each made when it is first asked for."""

    def __init__(self, kafka, directory):
        self._kafka = kafka
        self._directory = directory
        self._made = {}

    def get(self, engine, protocol):
        if (engine, protocol) not in self._made:
            self._made[engine, protocol] = self._make(engine, protocol)
        made = self._made[engine, protocol]
        if isinstance(made, BaseException):
            raise made
        return made

    def _make(self, name, protocol):
        directory = self._directory / f"{name}-{protocol}"
        directory.mkdir()
        engine = ENGINES[name](directory)
        on_spark = (
            engine.member is not ProcessMember
        )  # few records at a time: doubts about an outage are frequent there
        cases = [
            replace(case, keys={"sessionTimeout": f"{SESSION_SECONDS}s"} | (WITHOUT_BREAKER if on_spark else {}))
            for case in matrix(f"{protocol}-{uuid.uuid4().hex[:6]}", protocol)
        ]
        if protocol == "consumer":  # their brokers say it
            lengthen_sessions(self._kafka.bootstrap(), [case.group for case in cases])
        halves = Halves(Run(engine, self._kafka.bootstrap(), cases), directory / "gate")
        try:
            halves.go()
        except BaseException as error:  # noqa: BLE001 - every test that looks at this run fails with it
            return error
        finally:
            engine.put_away()
            halves.run.close()
        return halves


def lengthen_sessions(bootstrap, groups):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    session = ConfigEntry("consumer.session.timeout.ms", str(SESSION_SECONDS * 1_000))
    session.incremental_operation = AlterConfigOpType.SET
    resources = [ConfigResource(ConfigResource.Type.GROUP, group, incremental_configs=[session]) for group in groups]
    for altered in admin.incremental_alter_configs(resources).values():
        altered.result(30)


@pytest.fixture(scope="session")
def runs(kafka, tmp_path_factory):
    return Runs(kafka, tmp_path_factory.mktemp("matrix"))


def _case(run, name):
    return next(case for case in run.cases.values() if case.name.endswith(f"-{name}"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", CASES)
def test_nothing_is_handled_twice_when_members_leave_in_order(runs, name, protocol, engine):
    halves = runs.get(engine, protocol)
    case = _case(halves.run, name)
    told = halves.first[case.name]
    assert not [event for event in told if isinstance(event, Rebalanced) and event.is_lost]
    assert [str(violation) for violation in violations(told, guarantees_for(case))][:10] == []
    succeeded = [event.record for event in told if isinstance(event, Ended) and event.is_ok]
    assert len(succeeded) == len(set(succeeded))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("name", CASES)
def test_every_guarantee_holds_when_a_member_is_killed(runs, name, protocol, engine):
    run = runs.get(engine, protocol).run
    case = _case(run, name)
    assert [str(violation) for violation in run.violations(case)][:10] == []
    assert len(run.done(case)) == 2 * RECORDS


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_runs_are_what_they_claim_to_be(runs, protocol, engine):
    """A run in which nothing happens would prove nothing."""
    halves = runs.get(engine, protocol)
    run = halves.run
    assert run.in_work("C1"), "nobody was at work when it was killed"
    assert not run.in_work("B1")
    for case in run.cases.values():
        first, told = halves.first[case.name], run.told(case)
        assert len({event.member for event in first if isinstance(event, Started)}) >= 3
        assert not any(isinstance(event, Killed) for event in first)
        assert any(isinstance(event, Killed) for event in told)
        retried = [event for event in told if isinstance(event, Started) and event.attempt > 1]
        assert bool(retried) is (case.retry is not None)
