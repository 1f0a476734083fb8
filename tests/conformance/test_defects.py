"""What goes wrong in consumers of this kind, each named by what its users see: on real brokers, through whole members.

Those of producers and error consumers are with the tests of these (tests/broker/test_producing.py and
tests/broker/test_error_consumer.py).
"""

from __future__ import annotations

import asyncio
import threading
import uuid

import pytest

from broker.produce import Content, new_producer, send
from conformance.cases import KINDS, WITHOUT_BREAKER, Item, Order, new_cases
from lane_world import World, until
from multilane import Admin, App, Interceptors, Record
from multilane.config.app.clients import consumer_properties
from multilane.testing.events import Committed, Copied, Ended, Produced, RecordPlace, Started

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def behind_a_gate(case, gate, others=200):
    """The first record stays in work until the gate is there; the others do not wait for it."""
    yield case, Item("slow", 0, Order(0, hold=str(gate)))
    for i in range(1, others + 1):
        yield case, Item(f"k{i % 10}", 0, Order(i))


# --- 1 and 3: commits and records that take long --------------------------------------------------------------------


async def test_a_timer_commits_past_a_record_in_work():
    gate = asyncio.Event()

    async def handler(record: Record) -> None:
        if record.offset == 0:
            await gate.wait()

    async with World(handler) as world:
        await world.give("slow", *"abcdefgh")
        for _ in range(10):
            world.clock.advance(3_600.0)
            assert world.frontier == 0
        gate.set()
        await until(lambda: world.is_done)
        assert world.frontier == 9


def test_a_record_in_work_is_lost_when_its_member_dies(run, tmp_path):
    gate = tmp_path / "gate"
    cases = new_cases(("single", "none", "consumer"), ("sync", "none", "classic"), partitions=1)
    run = run(cases)
    run.produce(one for case in cases for one in behind_a_gate(case, gate))
    run.start("A1")
    run.look_until(lambda: all(_runs_committed(run, case) == ((1, 200),) for case in cases))
    assert not any(run.committed(case) for case in cases)
    run.kill("A1")
    gate.touch()
    run.start("A2")
    run.finish()
    assert run.judged() == {}
    for case in cases:
        assert [event.record for event in run.started(case, "A2")] == ["0"], "what was settled beyond it came again"


def _runs_committed(run, case):
    """Of the topic itself: that of its retry topic may be told of later."""
    told = [event for event in run.events[case.name] if isinstance(event, Committed) and event.topic == case.name]
    return told[-1].runs if told else ()


def test_commits_go_back_when_a_slow_record_ends_at_last(run, tmp_path):
    gate = tmp_path / "gate"
    cases = new_cases(("single", "none", "consumer"), ("sync", "retry", "classic"), partitions=1)
    run = run(cases)
    run.produce(one for case in cases for one in behind_a_gate(case, gate))
    run.start("A1")
    run.look_until(lambda: all(len(run.done(case)) == 200 for case in cases))
    gate.touch()
    run.look_until(run.is_settled, 15.0)
    run.finish()
    assert run.judged() == {}


# --- 2: offsets that the log does not have ---------------------------------------------------------------------------


def test_transaction_markers_stall_commits(run, kafka):
    (case,) = cases = new_cases(
        ("single", "none", "consumer"), partitions=1, keys={"properties": {"isolation.level": "read_committed"}}
    )
    run = run(cases)
    producer = new_producer(kafka.bootstrap(), transactional_id=uuid.uuid4().hex)
    producer.init_transactions(30)
    expected = set()
    for number in range(30):
        producer.begin_transaction()
        rows = send(producer, case.name, [Content(Order(number).value(), b"k")])
        if number % 3:
            producer.commit_transaction(30)
            place = RecordPlace(case.name, 0, rows[0].offset)
            run.events[case.name].append(Produced(0.0, str(number), "k", place))
            expected.add(str(number))
        else:
            producer.abort_transaction(30)
    run.start("A1")
    run.look_until(run.is_settled)
    assert run.committed(case) == {(case.name, 0): 60}, "the last marker counts too"
    run.finish()
    assert run.judged() == {}
    assert run.done(case) == expected


# --- 4: copies that cannot be stored ---------------------------------------------------------------------------------


def test_a_record_is_lost_when_its_copy_is_not_stored(run, kafka):
    """The topic refuses the copy. The record stays unsettled, until a member comes after the topic was mended."""
    shapes = (("single", "retry", "consumer"), ("single", "none", "classic"))
    cases = new_cases(*shapes, partitions=1, keys={"rebalanceTimeout": "4s"})
    run = run(cases)
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        for case in cases:
            admin.alter_topic_config(case.retry or case.error, {"max.message.bytes": "50"})
        run.produce((case, Item(f"k{i}", 0, Order(i, fails=int(i == 3)))) for i in range(50) for case in cases)
        run.start("A1")
        run.look_until(lambda: all(_runs_committed(run, case) == ((4, 49),) for case in cases))
        run.stop("A1")
        run.look()
        assert [run.committed(case) for case in cases] == [{(case.name, 0): 3} for case in cases]
        for case in cases:
            admin.alter_topic_config(case.retry or case.error, {"max.message.bytes": "100000"})
    run.start("A2")
    run.finish()
    for case in cases:
        again = [event.record for event in run.started(case, "A2")]
        assert again == (["3"] if case.retry is None else ["3", "3"])
        assert any(isinstance(event, Copied) for event in run.events[case.name])
        assert len(run.done(case)) == 50


# --- 6: interceptors and tracers -------------------------------------------------------------------------------------


class Tells:
    def __init__(self, name, told):
        self.name, self.told = name, told

    def on_consume(self, context, record):
        self.told.append((self.name, "consumes", record.value))

    def on_error(self, context, record, error):
        self.told.append((self.name, "hears of", record.value))

    def start(self, context, name, record):
        self.told.append((self.name, "begins", record.value))
        return lambda error: self.told.append((self.name, "ends", record.value))


async def test_interceptors_and_tracers_are_forgotten_or_leak_to_other_consumers(kafka):
    one, other = new_cases(("single", "none", "consumer"), ("sync", "none", "classic"), partitions=1)
    told = []
    app = in_process(kafka, one, other)
    app.intercept(Tells("app", told))
    app.intercept_errors(Tells("app", told))
    app.trace(Tells("app", told))
    own = Tells("own", told)

    @app.listener(one.name, interceptors=Interceptors(consume=(own,), errors=(own,), tracers=(own,)))
    async def fails(record: Record) -> None:
        raise ValueError("no")

    @app.listener(other.name)
    async def succeeds(record: Record) -> None: ...

    _write(kafka, one, b"1")
    _write(kafka, other, b"2")
    serving = asyncio.create_task(app.serve())
    await until(lambda: len(told) >= 11 or serving.done(), 40)
    app.stop()
    await serving
    by_app = sorted((value, what) for name, what, value in told if name == "app")
    assert by_app == [
        *((b"1", what) for what in ("begins", "consumes", "ends", "hears of")),
        *((b"2", what) for what in ("begins", "consumes", "ends")),
    ]
    assert {value for name, _, value in told if name == "own"} == {b"1"}
    assert {what for name, what, _ in told if name == "own"} == {"consumes", "begins", "ends", "hears of"}


def in_process(kafka, *cases, cluster="main", **more):
    """An app in the test's own event loop, over topics that are made here."""
    from multilane.config.app.loading import load_app

    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        admin.create_topics({topic: many for case in cases for topic, many in case.topics.items()})
    settings = {
        "clusters": {cluster: {"clientId": "defects", "brokers": kafka.bootstrap(), **more}},
        "consumers": {case.name: case.configuration() for case in cases},
    }
    return App(_loaded(load_app, settings))


def _loaded(load_app, settings):
    import json
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(settings, file)
        file.flush()
        return load_app(file.name, None)


def _write(kafka, case, *values, partition=0):
    send(new_producer(kafka.bootstrap()), case.name, [Content(value, b"k") for value in values], partition=partition)


# --- 7, 8, 9: rebalances; see also test_interruptions.test_a_member_that_joins_takes_over_without_overlap -----


def test_many_lanes_end_one_after_the_other(run):
    (case,) = cases = new_cases(("single", "none", "consumer"), keys={"virtualPartitionCount": 200})
    run = run(cases)
    run.produce((case, Item(f"k{i}", i % 3, Order(i, wait=0.2))) for i in range(3_000))
    run.start("A1")
    run.look_until(lambda: len(run.started(case)) >= 200)
    since = run.now()
    run.stop("A1")
    assert run.now() - since < 10.0
    run.look()
    assert not run.in_work("A1")
    run.start("A2")
    run.finish()
    assert run.judged() == {}


def test_a_full_lane_keeps_a_member_from_its_group(run, tmp_path):
    """It hangs for longer than a session; somebody else joins meanwhile and gets a share at once."""
    gate = tmp_path / "gate"
    cases = new_cases(
        ("single", "none", "consumer"),
        ("sync", "none", "classic"),
        partitions=2,
        keys={"virtualPartitionCount": 1, "virtualPartitionChanCount": 3, "rebalanceTimeout": "6s"},
    )
    run = run(cases)
    stuck = [Item("a", p, Order(1_000 * p + i, hold=str(gate))) for p in (0, 1) for i in range(300)]
    run.produce((case, item) for case in cases for item in stuck)
    run.start("A1")
    run.look_until(lambda: all(len(run.started(case, "A1")) == 2 for case in cases))
    since = run.now()
    run.look_until(lambda: run.now() - since > 4.0)
    run.start("B1")
    run.look_until(run.is_shared)
    gate.touch()
    run.finish()
    assert all(len(run.done(case)) == 600 for case in cases)


async def test_each_rebalance_leaves_something_running(kafka):
    (case,) = new_cases(("sync", "retry", "consumer"), partitions=4)
    steady = in_process(kafka, case)

    handled = []

    def handler(record: Record) -> None:
        threading.Event().wait(0.02)  # so that every lane has a thread each time
        handled.append(record)

    steady.listener(case.name)(handler)
    serving = asyncio.create_task(steady.serve())
    await until(lambda: _processors(steady) == 8 or serving.done(), 40)
    counts = []
    for visit in range(4):
        await _visit(steady, handler, kafka, case)
        await until(lambda many=visit + 1: len(handled) == 20 * many, 40)
        counts.append((len(asyncio.all_tasks()), threading.active_count()))
    tasks, threads = zip(*counts, strict=True)
    assert tasks[-1] <= tasks[0], tasks
    # Threads for `def` functions are made when they are first needed; others end a moment after what they were for.
    # A count that was taken while lanes had no thread yet is no measure, so the larger one of two is.
    await until(lambda: threading.active_count() <= max(threads[1:-1]), 20)
    steady.stop()
    await serving


async def _visit(steady, handler, kafka, case):
    """Another member comes, takes its share, and goes."""
    guest = App(steady.config)
    guest.listener(case.name)(handler)
    visiting = asyncio.create_task(guest.serve())
    await until(lambda: _processors(guest) == 4 and _processors(steady) == 4, 40)
    guest.stop()
    await visiting
    await until(lambda: _processors(steady) == 8, 40)
    _write(kafka, case, *[b"x"] * 20, partition=1)


def _processors(app):
    return 0 if app.engine is None else sum(len(consumer.processors) for consumer in app.engine.consumers.values())


# --- 13: names and logins --------------------------------------------------------------------------------------------


async def test_a_cluster_whose_name_has_capitals_has_no_error_consumer(kafka):
    (case,) = new_cases(("single", "none", "consumer"), partitions=1)
    errors = {
        "groupId": f"{case.name}.errors",
        "cron": "@every 1s",
        "closeConsumerWhenThereIsNoMessage": "3s",
        "closeConsumerWhenMessageIsNew": "100ms",
    }
    app = in_process(kafka, case, cluster="MAIN", errorConfig=errors)
    seen = []

    @app.listener(case.name.upper())
    async def fails_once(record: Record) -> None:
        seen.append(record.value)
        if len(seen) == 1:
            raise ValueError("no")

    _write(kafka, case, b"1")
    serving = asyncio.create_task(app.serve())
    await until(lambda: len(seen) >= 2 or serving.done(), 60)
    app.stop()
    await serving
    assert seen == [b"1", b"1"]


def test_the_password_is_taken_for_the_user_name(kafka):
    from multilane.config.app.loading import load_app

    (case,) = new_cases(("single", "none", "consumer"))
    auth = {"username": "alice", "password": "wonderland"}
    settings = {
        "clusters": {"main": {"clientId": "x", "brokers": kafka.bootstrap(), "auth": auth}},
        "consumers": {case.name: case.configuration()},
    }
    config = _loaded(load_app, settings)
    made = consumer_properties(config.consumer(case.name), config.cluster("main"))
    assert str(made["sasl.username"]) == "alice"
    assert made["sasl.password"].reveal() == "wonderland"
    assert "wonderland" not in repr(made)


# --- 15: order and retries -------------------------------------------------------------------------------------------


def test_an_older_retry_overwrites_a_newer_success(run):
    cases = new_cases(*((kind, "key", "consumer") for kind in KINDS), partitions=1, keys=WITHOUT_BREAKER)
    run = run(cases)
    items = [Item(f"k{i % 10}", 0, Order(i, wait=0.005, fails=(0, 0, 1, 0, 2)[i % 5])) for i in range(300)]
    run.produce((case, item) for item in items[:150] for case in cases)
    run.start("A1")
    run.look_until(lambda: all(len(run.done(case)) >= 75 for case in cases))
    run.produce((case, item) for item in items[150:] for case in cases)
    run.finish()
    assert run.judged() == {}
    newest = {item.key: item.order.number for item in items}
    for case in cases:
        told = run.told(case)
        assert any(isinstance(event, Started) and event.attempt == 3 for event in told)
        for key, number in newest.items():
            successes = [int(e.record) for e in told if isinstance(e, Ended) and e.is_ok and e.key == key]
            assert successes[-1] == number
            assert case.kind in ("batch", "columns") or successes == sorted(successes)
