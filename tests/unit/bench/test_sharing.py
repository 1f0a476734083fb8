"""What `bench.sharing` does without a broker: its plan, the app it makes, its bars, and the table of its page."""

from __future__ import annotations

import asyncio
import json

import pyarrow as pa
import pytest
from bench.report import Bar, Report
from bench.share.child import Control
from bench.share.figures import (
    HUNG,
    MEASUREMENTS,
    ONE,
    RESOURCES,
    TRIGGERS,
    UNHUNG,
    Measurement,
    add_bars,
    add_rows,
    page_table,
)
from bench.share.measuring import FlatOut, Resources, check_log
from bench.share.order import (
    AIOKAFKA,
    BATCH,
    COLUMNS,
    CONFLUENT_CONSUME,
    CONFLUENT_POLL,
    OURS,
    SEPARATE,
    SHARED,
    SINGLE,
    SYSTEMS,
    Order,
)
from bench.share.ours import OurApp, handler_of, settings_of
from bench.sharing import BEGIN, END, PAGE, parse_options, plan_of, with_table, written_report

from multilane import Record

RECORD = Record("t", 0, 0, 0, 0, b"k", b"v")


def order_of(system=SHARED, shape=SINGLE, hangs=False, triggers=3):
    return Order(system, "127.0.0.1:9092", "orders", "g", triggers, shape, hangs)


def resources(**changed):
    figures = {"threads": 6, "network_threads": 1, "connections": 3, "resident_bytes": 220e6}
    figures |= {"idle_cpu": 0.02, "load_cpu": 0.2, "load_rate": 20e3, "start": 1.0, "stop": 0.5}
    return Resources(**figures | changed)


def found_with(single=3.6e6, **changed):
    """Of every measurement."""
    found = {}
    for m in MEASUREMENTS:
        if m.scenario == RESOURCES:
            bytes_ = 210e6 if m.triggers == 1 else 220e6
            load = 0.3 if m.system in (CONFLUENT_POLL, CONFLUENT_CONSUME) else 0.2
            found[m] = [resources(**{"resident_bytes": bytes_, "load_cpu": load} | changed)]
        else:
            rate = 3e6 if m.system in (CONFLUENT_POLL, CONFLUENT_CONSUME) else single
            found[m] = [FlatOut(rate if m.shape == SINGLE else 15e6, 1.0, 1e8, 1.0, 0.5)]
    return found


def report_of(found):
    report = Report("sharing", {})
    add_rows(report, found)
    add_bars(report)
    return report


def test_every_system_is_measured_in_resources_and_with_single_records():
    measured = {(m.scenario, m.system) for m in MEASUREMENTS}
    assert measured >= {(scenario, system) for scenario in (RESOURCES, SINGLE) for system in SYSTEMS}
    assert len({(m.scenario, m.row_system) for m in MEASUREMENTS}) == len(MEASUREMENTS), "rows have to differ"


@pytest.mark.parametrize("system", OURS)
@pytest.mark.parametrize("shape", [SINGLE, BATCH, COLUMNS])
@pytest.mark.parametrize("hangs", [False, True])
def test_the_app_is_valid_and_has_all_triggers(system, shape, hangs):
    app = OurApp(order_of(system, shape, hangs))._app
    assert len(app.consumers) == 3 + hangs
    assert len(app.functions) == 3 + hangs


def test_groups_are_one_or_one_each():
    def groups(system):
        return {one["groupId"] for one in settings_of(order_of(system))["consumers"].values()}

    assert groups(SHARED) == {"g"}
    assert groups(SEPARATE) == {"g-0", "g-1", "g-2"}
    assert order_of(AIOKAFKA).group_of(2) == "g-2"


@pytest.mark.parametrize(
    ("shape", "given", "many"),
    [(SINGLE, RECORD, 1), (BATCH, [RECORD] * 4, 4), (COLUMNS, pa.record_batch({"n": [1, 2, 3]}), 3)],
)
def test_handlers_count_their_own_deliveries(shape, given, many):
    counts = [0, 0]
    asyncio.run(handler_of(shape, counts, 1)(given))
    assert counts == [0, many]


def test_a_look_has_the_counts_and_what_the_process_uses(capsys):
    class Running:
        counts = (5, 7, 0)

    Control(order_of(triggers=2), Running(), 0.0, 0)._look()
    told = json.loads(capsys.readouterr().out)
    assert (told["deliveries"], told["furthest"]) == (12, 7), "a trigger that hangs is not counted"
    assert told["resident_bytes"] > 0
    assert told["connections"] == 0


def test_a_log_that_was_read_to_its_end_gives_no_figure():
    check_log(99, 100)
    with pytest.raises(RuntimeError, match="100 records ran dry"):
        check_log(100, 100)


def test_bars_hold_and_fall_short():
    good = {bar.name: bar for bar in report_of(found_with()).bars}
    assert all(bar.holds for bar in good.values())
    assert len(good) == 13
    assert good["single:shared/confluent"].value == pytest.approx(1.2)
    assert good["memory:shared, MB for each added trigger"].value == pytest.approx(10 / (TRIGGERS - 1))
    assert good["cpu at 20,000/s:shared/confluent"].value == pytest.approx(2 / 3)
    short = {bar.name for bar in report_of(found_with(single=2.9e6, threads=7, stop=3.5)).bars if not bar.holds}
    assert short == {"threads:shared", "single:shared/confluent", "single:separate/confluent", "stop:separate"}


def test_a_hung_trigger_is_compared_with_the_same_others_without_it():
    found = found_with() | {Measurement(HUNG, SHARED, triggers=30, hangs=True): [FlatOut(3.3e6, 1.0, 1e8, 1.0, 0.5)]}
    [bar] = [bar for bar in report_of(found).bars if bar.name.startswith("hung")]
    assert bar.value == pytest.approx(3.3 / 3.6)
    assert not bar.holds
    assert {m.triggers for m in MEASUREMENTS if m.scenario in (HUNG, UNHUNG)} == {TRIGGERS - 1}


def test_only_what_was_measured_has_bars():
    assert report_of({Measurement(SINGLE, SHARED): [FlatOut(1.0, 1.0, 1.0, 1.0, 1.0)]}).bars == []


def test_a_run_of_chosen_systems_is_not_whole():
    assert plan_of(parse_options([])).is_whole
    assert not plan_of(parse_options(["--quick"])).is_whole
    assert not plan_of(parse_options(["--rounds", "1"])).is_whole
    assert not plan_of(parse_options(["--system", SHARED])).is_whole
    with pytest.raises(SystemExit, match="none of the chosen systems"):
        plan_of(parse_options(["--system", ONE, "--scenario", COLUMNS]))


def test_the_page_gets_the_table_of_the_results_file(tmp_path):
    report = report_of(found_with())
    report.bars.append(Bar("some", 1.0, 2.0))
    read = written_report(report.write(tmp_path))
    assert page_table(read) == page_table(report)
    page = with_table(f"before\n{BEGIN}| obsolete |\n{END}after\n", read)
    assert page.startswith(f"before\n{BEGIN}| system |")
    assert page.endswith(f"{END}after\n")
    assert "| some | 1.00 | 2 | **falls short** |" in page
    assert "obsolete" not in page
    with pytest.raises(ValueError, match="no place for the table"):
        with_table("a page without marks", read)


def test_the_page_has_a_place_for_the_table():
    text = PAGE.read_text()
    assert BEGIN in text
    assert END in text
