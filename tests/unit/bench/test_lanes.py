"""What `bench.lanes` does without a broker: its logs, limits and bars, and what it makes of its children's lines."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from bench.java import JavaProgram
from bench.lane import parallel_consumer
from bench.lane.bare import run_tasks
from bench.lane.figures import (
    BARE,
    CPU,
    HUNG_RSS_BAR,
    OF_BARE,
    OF_LIMIT,
    OURS,
    OURS_TWICE,
    RATE,
    RIVAL,
    RSS,
    SEED,
    SYSTEMS,
    add_bars,
    add_rows,
)
from bench.lane.logs import (
    KEYS,
    Load,
    Log,
    drain_seconds,
    key_name,
    loads,
    murmur2,
    partitions_of_keys,
    records_lasting,
    shares,
)
from bench.lane.order import HUNG_KEY, Drained, Order, Tick, order_of, told
from bench.lane.ours import handler_of, settings_of
from bench.lane.sampling import (
    Figures,
    Sample,
    Span,
    Window,
    child,
    cpu_of,
    cpu_seconds,
    figures_between,
    measure_drain,
    measure_steady,
)
from bench.lane.scenarios import (
    AIOHTTP_20,
    BATCH,
    COLUMNAR,
    CORE,
    HTTP,
    HTTP_20,
    HUNG,
    LATENCY,
    NO_OP,
    PUBLISHED,
    SCENARIOS,
    SINGLE_20,
    SINGLE_200,
    SKEWED,
    SLEEP,
    THREADS,
    UNIQUE,
)
from bench.lane.service import Served
from bench.lane.tally import Tally, ThreadTally
from bench.lane.work import HOST, body_of, work_of
from bench.lanes import STEADY_SECONDS, WARM_SECONDS, command_of, main, parse_options, plan_of
from bench.report import Report

from multilane.config.app.loading import load_app
from multilane.listeners.signature import ListenerKind, read_signature

COUNTING = """\
import itertools, json, sys
print("a library's line")
for n in itertools.count():
    print(json.dumps({"at": n / 4, "handled": n * 25 if n > 2 else 0}), flush=True)
"""
DRAINING = """\
import json
for n in range(5):
    print(json.dumps({"at": n / 4, "handled": n}), flush=True)
print(json.dumps({"drained": 2.0}), flush=True)
input()
"""


def whole_plan(*more):
    return plan_of(parse_options(list(more)))


def order(scenario, log=None, **changes):
    made = order_of(scenario, log or Log(scenario.partitions, 1_000, scenario.skew), "127.0.0.1:1", 7)
    facts = json.loads(made.text()) | changes
    return Order(**facts)


def figures(rate, cpu=1.0, rss=100_000_000):
    return Figures(rate, 20.0, cpu, rss)


# --- the logs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "expected"),
    [  # from the tests of Kafka's own clients
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"abc", 479470107),
    ],
)
def test_keys_are_hashed_as_kafka_does(key, expected):
    assert np.uint32(murmur2(key)).astype(np.int32) == expected


def test_a_log_is_the_same_every_time_and_has_all_its_records():
    log = Log(15, 320_001)
    first, second = np.concatenate(list(log.draws())), np.concatenate(list(log.draws()))
    assert len(first) == log.records
    assert (first == second).all()
    assert first.min() >= 0
    assert first.max() < KEYS


def test_uniform_keys_fill_partitions_alike():
    found = loads(Log(15, 600_000))
    assert sum(load.records for load in found) == 600_000
    assert all(38_000 < load.records < 42_000 for load in found)
    assert max(load.hottest for load in found) < 40


def test_zipf_keys_have_their_shares():
    log = Log(15, 300_000, 1.1)
    drawn = np.concatenate(list(log.draws()))
    counts = np.bincount(drawn, minlength=KEYS)
    assert counts.argmax() == 0
    assert counts[0] == pytest.approx(300_000 * shares(1.1)[0], rel=0.02)
    assert counts[0] / counts[9] == pytest.approx(10**1.1, rel=0.1)


def test_loads_are_what_a_plain_count_finds():
    log = Log(3, 5_000, 1.1)
    places = partitions_of_keys(3)
    by_key = [{}, {}, {}]
    for number in itertools.chain.from_iterable(chunk.tolist() for chunk in log.draws()):
        assert places[number] == (murmur2(key_name(number)) & 0x7FFFFFFF) % 3
        mine = by_key[places[number]]
        mine[number] = mine.get(number, 0) + 1
    assert loads(log) == [Load(sum(mine.values()), max(mine.values())) for mine in by_key]


def test_a_drain_takes_as_long_as_its_slowest_partition():
    assert drain_seconds([Load(1_000, 10), Load(100, 10)], 20, 0.02) == pytest.approx(1.0)
    assert drain_seconds([Load(1_000, 10), Load(100, 90)], 20, 0.02) == pytest.approx(1.8)


def test_a_skewed_log_lasts_as_long_as_wished():
    log = Log(15, records_lasting(20.0, LATENCY, 1.1), 1.1)
    assert 18.0 < drain_seconds(loads(log), 20, LATENCY) < 22.0


# --- scenarios and plans ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scenario", "limit"),
    [
        (CORE, 750),
        (SINGLE_20, 15_000),
        (THREADS, 15_000),
        (HTTP_20, 15_000),
        (SINGLE_200, 200_000),
        (BATCH, 375_000),
        (COLUMNAR, 375_000),
        (UNIQUE, 375_000),
    ],
)
def test_limits_are_lanes_over_latency(scenario, limit):
    assert scenario.limit == pytest.approx(limit)


def test_who_is_measured_elsewhere_is_not_measured_again():
    plan = whole_plan()
    assert plan.systems_of(SINGLE_20) == [BARE, OURS, RIVAL]
    assert plan.systems_of(BATCH) == list(SYSTEMS)
    assert plan.systems_of(COLUMNAR) == [OURS, OURS_TWICE]
    assert plan.systems_of(THREADS) == [BARE, OURS, OURS_TWICE]
    assert plan.systems_of(NO_OP) == [OURS, OURS_TWICE, RIVAL]
    assert plan.systems_of(AIOHTTP_20) == [BARE, OURS]


def test_whom_a_scenario_names_is_measured():
    plan = whole_plan()
    measured = {(scenario.name, system) for scenario in plan.scenarios for system in plan.systems_of(scenario)}
    for scenario in SCENARIOS:
        assert scenario.rival is None or (scenario.rival, RIVAL) in measured
        assert scenario.bare is None or (scenario.bare, BARE) in measured


def test_logs_outlast_the_fastest_scenario():
    plan = whole_plan()
    seconds = STEADY_SECONDS + WARM_SECONDS
    for scenario in SCENARIOS:
        log = plan.log_of(scenario)
        if not scenario.drains:
            assert log.records > seconds * max(scenario.most, scenario.limit or 0)
    assert len(plan.logs()) == 3


def test_the_limit_of_a_skewed_log_comes_from_the_log():
    limits = whole_plan().limits()
    log = whole_plan().log_of(SKEWED)
    assert limits[SKEWED.name] == pytest.approx(log.records / drain_seconds(loads(log), SKEWED.lanes, LATENCY))
    assert limits[SKEWED.name] < 1_000
    assert NO_OP.name not in limits


def test_only_a_whole_run_is_called_so():
    assert whole_plan().is_whole
    assert not whole_plan("--quick").is_whole
    assert not whole_plan("--seconds", "5").is_whole
    assert not whole_plan("--system", OURS).is_whole
    assert not whole_plan("--scenario", SINGLE_20.name).is_whole


# --- what children are told and tell ---------------------------------------------------------------------------------


def test_lines_of_children():
    lines = ["WARN something\n", '{"at": 1.5, "handled": 3}\n', '{"drained": 0.5}\n', '{"other": 1}\n', "\n"]
    assert list(told(iter(lines))) == [Tick(1.5, 3), Drained(0.5)]


def test_orders():
    skewed = order(SKEWED, Log(15, 777, 1.1))
    assert (skewed.drain, skewed.hung_key) == (777, "")
    hung = order(HUNG)
    assert (hung.drain, hung.hung_key) == (0, HUNG_KEY)
    assert order(CORE).lanes_in_all == 15
    assert order(SINGLE_200).lanes_in_all == 4_000
    assert {"unique=false", "batch=1", "hung_key=key-000000"} <= set(hung.settings())
    assert order(SINGLE_20).group != order(SINGLE_20).group


def test_commands():
    java = JavaProgram("java", "jars/*")
    made = order(BATCH)
    assert Order(**json.loads(command_of(OURS, made, java)[-1])) == made
    assert command_of(OURS_TWICE, made, java)[1:] == ["-m", "bench.lane.members", made.text(), "processes"]
    assert command_of(BARE, made, java)[1:3] == ["-m", "bench.lane.bare"]
    given = command_of(RIVAL, made, java)
    assert given[0] == "java"
    assert "batch=50" in given
    assert "jars/*" in given
    assert "buffer=200000" not in given
    assert "buffer=200000" in command_of(RIVAL, order(CORE), java)


def test_a_window_begins_with_the_first_record_and_ends_when_it_is_long_enough():
    window = Window(Span(2.0, 4.0, 10_000))
    handled = [0, 0, 10, 20, 30, 40, 50, 60, 70]
    enough = [
        window.add(Sample(float(at), count, at * 0.5, {"driver": at}, 2.0 * at)) for at, count in enumerate(handled)
    ]
    assert enough == [False] * 8 + [True]
    assert window.figures() == Figures(10.0, 4.0, 0.25, 8, {"driver": 8}), "what it uses is measured by our clock"


def test_a_log_that_ran_dry_gives_no_figure():
    window = Window(Span(0.0, 1.0, 30))
    for at, count in enumerate([10, 20, 30]):
        window.add(Sample(float(at), count, 0.0, {"driver": 1}, float(at)))
    with pytest.raises(RuntimeError, match="ran dry"):
        window.figures()


def test_figures_of_a_drained_log():
    resident = [{"driver": 10}, {"driver": 20, "jvm": 10}, {"driver": 21}]
    counted = [(1.0, 1, 0.5), (3.0, 90, 2.5), (5.0, 99, 3.5)]
    samples = [Sample(*count, memory, count[0]) for count, memory in zip(counted, resident, strict=True)]
    assert figures_between(samples, 100, 4.0) == Figures(25.0, 4.0, 0.75, 30, {"driver": 21, "jvm": 10})


def test_cpu_of_a_process_whose_name_is_odd():
    cells = ["S", *(["0"] * 10), "150", "50", *(["0"] * 20)]
    assert cpu_of(f"12 (a) b (c) {' '.join(cells)}") == 200 / os.sysconf("SC_CLK_TCK")
    assert cpu_seconds(os.getpid()) == pytest.approx(time.process_time(), abs=0.5)


def test_a_child_is_measured_and_ended():
    found = measure_steady([sys.executable, "-c", COUNTING], Span(1.0, 2.0))
    assert found.rate == 100.0
    assert found.seconds == 2.0
    assert found.peak_rss_bytes > 1_000_000


def test_a_drain_is_measured():
    assert measure_drain([sys.executable, "-c", DRAINING], Span(0.0, 1.0), 50).rate == 25.0


@pytest.mark.parametrize("before", ["", """print('{"at": 1, "handled": 1}', flush=True);"""])
def test_the_last_words_of_a_child_are_heard(before):
    failing = [sys.executable, "-c", f"{before} raise SystemExit('no such topic')"]
    with pytest.raises(RuntimeError, match="no such topic"):
        measure_steady(failing, Span(0.0, 1.0))


def test_a_silent_child_is_not_waited_for():
    with pytest.raises(RuntimeError, match="ended too early"), child([sys.executable, "-c", "input()"], 0.1) as (_, ev):
        list(ev)


# --- ours ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_our_app_is_what_the_scenario_says(scenario, tmp_path):
    path = tmp_path / "multilane.yaml"
    path.write_text(json.dumps(settings_of(order(scenario))))
    consumer = load_app(path).consumer("bench")
    assert consumer.lanes == scenario.lanes
    assert max(consumer.batch_size, 1) == scenario.batch
    assert consumer.unique == scenario.unique
    assert consumer.offset_initial == "oldest"
    assert consumer.max_processing_time == (3_600.0 if scenario.hangs else 1.0)
    handler, _ = handler_of(order(scenario))
    signature = read_signature(handler)
    expected = {
        "single": ListenerKind.SINGLE,
        "thread": ListenerKind.SINGLE,
        "records": ListenerKind.BATCH,
        "columns": ListenerKind.COLUMNS,
    }
    assert signature.kind is expected[scenario.shape]
    assert signature.is_async == (scenario is not THREADS)


async def test_a_hung_key_is_never_counted_and_others_are():
    from multilane.wire.records.record import Record

    handler, counts = handler_of(order(HUNG))
    record = Record("t", 0, 0, 0, 0, b"key-000001", b"", ())
    await handler(record)
    hung = asyncio.ensure_future(handler(record._replace(key=HUNG_KEY.encode())))
    _, pending = await asyncio.wait([hung], timeout=0)
    assert pending == {hung}
    hung.cancel()
    assert counts.handled == 1


async def test_batches_count_their_records():
    import pyarrow

    for scenario, given in ((BATCH, ["a", "b"]), (COLUMNAR, pyarrow.record_batch({"value": ["a", "b"]}))):
        handler, counts = handler_of(order(scenario, latency=0.0))
        await handler(given)
        assert counts.handled == 2


# --- counting and waiting --------------------------------------------------------------------------------------------


def test_a_drained_log_is_reported_once(capsys):
    tally = Tally(3)
    for _ in range(4):
        tally.begin()
        tally.end(1)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["drained"] >= 0


def test_threads_lose_no_count():
    tally = ThreadTally()
    threads = [threading.Thread(target=lambda: [tally.end(1) for _ in range(1_000)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert tally.handled == 8_000


def test_answers_are_read_to_their_end():
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    assert body_of(whole) == b"ok"
    assert all(body_of(whole[:end]) is None for end in range(len(whole)))
    with pytest.raises(ValueError, match="503"):
        body_of(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")


@pytest.mark.parametrize("kind", [HTTP, "aiohttp"])
async def test_the_service_is_asked_over_kept_connections(kind):
    served = []

    def connected():
        served.append(Served(0.0))
        return served[-1]

    server = await asyncio.get_running_loop().create_server(connected, HOST, 0)
    async with server:
        work = work_of(kind, 0.0, server.sockets[0].getsockname()[1])
        answers = await asyncio.gather(*(work() for _ in range(5)))
        answers += [await work() for _ in range(5)]
        if kind == "aiohttp":
            await work.__self__._session.close()
        else:
            work.__self__.close()
    assert answers == [b"ok"] * 10
    assert len(served) == 5


async def test_the_bare_loop_has_as_many_lanes():
    made = order(SINGLE_20, partitions=2, lanes=3, work=SLEEP, latency=0.0, tick=3_600.0)
    task = asyncio.ensure_future(run_tasks(made))
    before = len(asyncio.all_tasks())
    await asyncio.wait([task], timeout=0)
    assert len(asyncio.all_tasks()) == before + 6
    task.cancel()
    await asyncio.wait([task])


# --- parallel-consumer -----------------------------------------------------------------------------------------------


def test_jars_that_are_not_as_expected_are_refused(tmp_path):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "a.jar").write_bytes(b"a")
    jars = replace(parallel_consumer.JARS, sums=tmp_path / "sums")
    digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    (tmp_path / "sums").write_text(f"{digest}  a.jar\n")
    jars.check(tmp_path / "jars")
    (tmp_path / "jars" / "b.jar").write_bytes(b"b")
    with pytest.raises(RuntimeError, match=r"b\.jar"):
        jars.check(tmp_path / "jars")


def test_every_jar_has_its_sum():
    names = [line.split()[1] for line in parallel_consumer.JARS.sums.read_text().splitlines()]
    assert f"parallel-consumer-core-{parallel_consumer.VERSION}.jar" in names
    assert all(name.endswith(".jar") for name in names)


# --- rows and bars ---------------------------------------------------------------------------------------------------


def report_of(rates, memory=None):
    """rates: (scenario, system) -> records/s"""
    report = Report("lanes", {})
    limits = {s.name: s.limit for s in SCENARIOS if s.limit} | {SKEWED.name: 400.0}
    found = {place: [figures(rate, rss=(memory or {}).get(place, 10**8))] for place, rate in rates.items()}
    add_rows(report, SCENARIOS, found, limits)
    add_bars(report, SCENARIOS, limits)
    return report


def bars(report):
    return {bar.name: bar for bar in report.bars}


def counting(scenario):
    """Whose figures the bars of a scenario are about."""
    return OURS_TWICE if scenario.spreads else OURS


def test_rows_have_shares_of_the_limit_and_of_the_bare_loop():
    report = report_of(
        {(SINGLE_20.name, OURS): 12_000, (SINGLE_20.name, BARE): 15_000, (BATCH.name, BARE): 400_000}
        | {(COLUMNAR.name, OURS): 300_000}
    )
    assert report.find(OURS, SINGLE_20.name, OF_LIMIT) == pytest.approx(80)
    assert report.find(OURS, SINGLE_20.name, OF_BARE) == pytest.approx(80)
    assert report.find(OURS, COLUMNAR.name, OF_BARE) == pytest.approx(75)
    assert report.find(OURS, COLUMNAR.name, OF_LIMIT) == pytest.approx(80)
    assert report.find(OURS, SINGLE_20.name, CPU) == 1.0
    assert report.find(OURS, SINGLE_20.name, RSS) == 100.0


def test_rounds_are_medians():
    report = Report("lanes", {})
    add_rows(report, [NO_OP], {(NO_OP.name, OURS): [figures(1.0), figures(5.0), figures(2.0)]}, {})
    assert report.find(OURS, NO_OP.name, RATE) == 2.0
    assert report.find(OURS, NO_OP.name, "slowest") == 1.0


def test_published_figures_are_rows_and_no_bar_counts_on_them():
    report = report_of({})
    assert {report.find(SEED, published.scenario, RATE) for published in PUBLISHED} == {662, 10_600, 220_000}
    assert report.bars == []


@pytest.mark.parametrize(
    ("scenario", "least"),
    [
        (SINGLE_20, 13_500),
        (SINGLE_200, 80_000),
        (COLUMNAR, 318_750),
        (BATCH, 300_000),
        (UNIQUE, 300_000),
        (SKEWED, 340),
        (THREADS, 13_200),
    ],
)
def test_bars_on_limits(scenario, least):
    def bar(rate):
        return bars(report_of({(scenario.name, counting(scenario)): rate}))[f"{scenario.name}/limit"]

    assert bar(least + 0.01).holds
    assert not bar(least - 0.01).holds


def test_the_bar_on_the_bare_loop():
    def bar(rate):
        rates = {(SINGLE_20.name, OURS): rate, (SINGLE_20.name, BARE): 10_000.0}
        return bars(report_of(rates))[f"{SINGLE_20.name}/bare-loop"]

    assert bar(9_500.01).holds
    assert not bar(9_499.99).holds


def test_no_op_is_many_times_ahead_and_all_others_are_ahead():
    rivals = {(scenario.name, RIVAL): 100.0 for scenario in SCENARIOS if scenario.rival == scenario.name}
    ours = {(scenario.name, counting(scenario)): 101.0 for scenario in SCENARIOS}
    found = bars(report_of(rivals | ours))
    ahead = {name: bar for name, bar in found.items() if name.endswith("/parallel-consumer")}
    compared = {f"{scenario.name}/parallel-consumer" for scenario in SCENARIOS if scenario is not AIOHTTP_20}
    assert ahead.keys() == compared
    assert {name for name, bar in ahead.items() if not bar.holds} == {f"{NO_OP.name}/parallel-consumer"}
    fast = bars(report_of(rivals | ours | {(NO_OP.name, OURS_TWICE): 1_500.0}))
    assert fast[f"{NO_OP.name}/parallel-consumer"].holds
    behind = bars(report_of(rivals | ours | {(UNIQUE.name, OURS_TWICE): 99.0}))
    assert not behind[f"{UNIQUE.name}/parallel-consumer"].holds


def test_memory_with_a_hung_key_is_bounded():
    rates = {(NO_OP.name, OURS): 1.0, (HUNG.name, OURS): 1.0}

    def bar(hung):
        memory = {(NO_OP.name, OURS): 10**8, (HUNG.name, OURS): hung}
        return bars(report_of(rates, memory))[f"{HUNG.name}/rss"]

    assert bar(int(HUNG_RSS_BAR * 10**8)).holds
    assert not bar(int(HUNG_RSS_BAR * 10**8) + 10**6).holds


def test_help_names_what_can_be_chosen(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    shown = capsys.readouterr().out
    assert "--seconds" in shown
    assert SINGLE_200.name in shown
