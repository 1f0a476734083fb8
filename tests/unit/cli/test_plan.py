"""`multilane plan` without a broker: its usage errors and its output."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from multilane.cli import main, plan_view
from multilane.cli.option_values import time_span
from multilane.cli.plan import _configured
from multilane.cli.plan_advice import advice, assumptions
from multilane.cli.topic_plan import TopicPlan
from multilane.sizing.goals import Goals
from multilane.sizing.history import Arrivals, Busiest, HeavyKey, History, PartitionLoad
from multilane.sizing.recommendation import recommend

NOWHERE = ["--brokers", "127.0.0.1:1", "--timeout", "1"]
WIDE = {"COLUMNS": "200", "TERM": "dumb"}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (NOWHERE, "--latency"),
        (["--latency", "20", *NOWHERE], "a duration needs a unit"),
        (["--latency", "soon", *NOWHERE], "not a duration"),
        (["--latency", "0s", *NOWHERE], "longer than zero"),
        (["--latency", "20ms"], "name the brokers"),
        (["--latency", "20ms", *NOWHERE, "--slot", "0"], "longer than zero"),
        (["--latency", "20ms", *NOWHERE, "--last", "24h", "--since", "2026-01-01"], "--last excludes --since"),
        (["--latency", "20ms", *NOWHERE, "--since", "2026-01-02", "--until", "2026-01-01"], "not before --until"),
        (["--latency", "20ms", *NOWHERE, "--since", "yesterday"], "is not a time"),
        (["--latency", "20ms", *NOWHERE, "--conf", "memory=2g"], "is not a Spark setting"),
        (["--latency", "20ms", *NOWHERE, "--utilisation", "1"], "--utilisation"),
        (["--latency", "20ms", "--config", "not-there.yaml"], "not-there.yaml"),
    ],
)
def test_the_command_is_used_wrongly(arguments, expected):
    result = CliRunner().invoke(main.app, ["plan", "orders", *arguments], env=WIDE)
    assert result.exit_code == 2
    assert expected in result.output


def test_no_connection_is_code_3_before_spark_is_started():
    result = CliRunner().invoke(main.app, ["plan", "orders", "--latency", "20ms", *NOWHERE, "--master", "bogus"])
    assert result.exit_code == 3
    assert result.stderr.startswith("error: ")


def test_a_time_is_a_span():
    assert time_span(None, None, None) == (None, None)
    assert time_span(None, "1970-01-01T00:00:01", "1970-01-01T00:00:02+00:00") == (1_000, 2_000)
    begin, end = time_span("1h", None, None)
    assert begin is not None
    assert begin > 1_600_000_000_000
    assert end is None


@pytest.fixture
def config(tmp_path):
    cluster = {"clientId": "x", "brokers": ["a:1"]}
    settings = {
        "clusters": {"main": cluster, "other": cluster | {"brokers": ["b:2"]}},
        "consumers": {"orders": {"groupId": "g", "name": "shop.orders", "cluster": "Main", "virtualPartitionCount": 7}},
    }
    path = tmp_path / "multilane.yaml"
    path.write_text(json.dumps(settings))
    return path


def test_the_cluster_of_a_configuration(config):
    properties, consumer = _configured("shop.orders", config, None, None)
    assert properties["bootstrap.servers"] == "a:1"
    assert consumer is not None
    assert consumer.lanes == 7
    properties, consumer = _configured("shop.orders", config, None, "other")
    assert (properties["bootstrap.servers"], consumer) == ("b:2", None)
    result = CliRunner().invoke(main.app, ["plan", "t", "--latency", "20ms", "--config", str(config)], env=WIDE)
    assert result.exit_code == 2
    assert "choose one of: main, other" in result.output
    result = CliRunner().invoke(
        main.app, ["plan", "t", "--latency", "20ms", "--config", str(config), *NOWHERE], env=WIDE
    )
    assert result.exit_code == 2
    assert "it names the brokers" in result.output


# --- how it looks ----------------------------------------------------------------------------------------------------

HOT = HeavyKey(1, b"\x1b[31m[bold]hot", 900, 900)


def planned(hot: tuple[HeavyKey, ...] = (), **goals) -> TopicPlan:
    """Two of three partitions have records: 10 and 100 per second."""
    slot = 10.0
    loads = tuple(
        PartitionLoad(number, many, many * 50, many, number * 5, 0, 600_000, Busiest(many, 0, 0, many))
        for number, many in ((0, 100), (1, 1_000))
    )
    past = History("orders", 3, slot, loads, hot, Busiest(1_100, 0))
    arrivals = Arrivals([n / 100 for n in range(1_000)], range(1_000))
    wanted = Goals(**{"latency": 0.02, **goals})
    return TopicPlan(past, arrivals, wanted, recommend(past, arrivals, wanted))


def shown(plan: TopicPlan, capsys, monkeypatch, consumer=None) -> str:
    monkeypatch.setenv("COLUMNS", "160")
    plan_view.show(plan, consumer)
    return capsys.readouterr().out


def test_a_plan_for_people(capsys, monkeypatch):
    result = shown(planned(), capsys, monkeypatch)
    rows = {line.split()[0]: line for line in result.replace("\u2502", " ").splitlines() if line.split()}
    assert "orders: 1,100 records (53.7 KB) in 3 partitions" in result
    assert rows["virtualPartitionCount"].split()[1] == "3"
    assert rows["consumers"].split()[1] == "1"
    assert "100 records" in rows["0"]
    assert "no records" in rows["2"]
    assert "<- recommended" in rows["3"]
    assert "now" not in result
    for line in assumptions(planned()):
        assert line.split(";")[0] in " ".join(result.split())


def test_bar_lengths_match_their_values(capsys, monkeypatch):
    result = shown(planned(), capsys, monkeypatch)
    chart = result[result.index("load by partition") : result.index("throughput by lanes")]
    assert [line.count("\u2588") + line.count("#") for line in chart.splitlines()[1:4]] == [4, 40, 0]


def test_the_current_configuration_is_shown_next_to_it(config, capsys, monkeypatch):
    _, consumer = _configured("shop.orders", config, None, None)
    result = shown(planned(), capsys, monkeypatch, consumer)
    (line,) = [line for line in result.splitlines() if "virtualPartitionCount" in line]
    assert [word for word in line.split() if word.isdigit()][:2] == ["3", "7"]
    assert plan_view.facts(planned(), consumer)["now"] == {"virtualPartitionCount": 7, "batchSize": 0}


def test_a_key_that_is_too_hot_is_named_with_a_remedy(capsys, monkeypatch):
    plan = planned((HOT,))
    (first, *_) = advice(plan)
    assert "gets 90/s at its peak, but one record at a time allows only 50/s: no number of lanes helps" in first
    assert "batchSize 5" in first
    result = shown(plan, capsys, monkeypatch)
    assert "\\x1b[31m[bold]hot" in result
    assert "\x1b" not in result
    assert "one key is too hot for single records" in result
    assert "consumeBatchListenerLatency" in result
    (first, *_) = advice(planned((HOT,), most_batch=1))
    assert "Even a batchSize of 1 does not help" in first
    (first, *_) = advice(planned((replace(HOT, peak=400),)))
    assert "takes 80% of a lane's time" in first


@pytest.mark.parametrize(
    ("goals", "expected"),
    [
        ({}, "Partition 1 has 2.7 times the average load"),
        ({}, "0.5% of the records have no key"),
        ({"latency": 0.6}, "maxProcessingTime"),
        ({"most_lanes": 1, "most_batch": 1, "latency": 0.04}, "Adding partitions moves keys"),
        ({"most_lanes": 2, "most_batch": 1}, "Partition 1 exceeds 2 lanes"),
    ],
)
def test_further_advice(goals, expected):
    assert any(line.startswith(expected) or expected in line for line in advice(planned(**goals)))


def test_a_short_history_is_reported():
    plan = planned()
    short = tuple(replace(load, last=30_000) for load in plan.history.loads)
    assert "The history covers only 30 s" in advice(replace(plan, history=replace(plan.history, loads=short)))[-1]
    assert not any("long:" in line for line in advice(plan))


def test_a_plan_for_programs():
    result = json.loads(json.dumps(plan_view.facts(planned((HOT,)))))
    assert result["recommended"] == {
        "virtualPartitionCount": 1,
        "batchSize": 5,
        "consumers": 1,
        "partitions": 3,
        "consumeBatchListenerLatency": "500ms",
    }
    (key,) = result["history"]["heaviest_keys"]
    assert (key["partition"], key["peak_rate"], key["too_hot"]) == (1, 90, True)
    assert [load["peak_rate"] for load in result["history"]["loads"]] == [10, 100]
    assert result["simulated"]["records"] == 1_000
    assert result["goals"]["latency"] == 0.02
