"""A topic's history by Spark, and `multilane plan` as a person uses it, on a real Kafka."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter

import pytest

from broker.spark.clusters import standalone_cluster
from multilane.errors import NoHistory
from multilane.sizing.history import Busiest, History
from multilane.spark.history import HEAVIEST, HistoryQuery, read_arrivals, read_history

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SLOT = 10_000
BEGIN = 170_000_000 * SLOT  # where a slot begins
PATIENCE = 150.0
WITHOUT_PYSPARK = "import sys; sys.modules['pyspark'] = None; from multilane.cli.main import main; main()"


def shop() -> list[tuple]:
    """A minute of three partitions: one with little, one with a hot key in the fourth slot, one without keys; a fourth
    has nothing. (value, key, headers, partition, timestamp)"""
    rows = [(b"v" * 10, b"quiet-%d" % n, (), 0, BEGIN + 200 * n) for n in range(300)]
    rows += [(b"v", b"k%d" % (n % 500), (), 1, BEGIN + 20 * n) for n in range(3_000)]
    rows += [(None, b"hot", (), 1, BEGIN + 3 * SLOT + 8 * n) for n in range(1_200)]
    rows += [(b"", None, (), 2, BEGIN + 1_000 * n) for n in range(50)]
    return sorted(rows, key=lambda row: row[4])


@pytest.fixture(scope="module")
def filled(kafka, topic) -> str:
    from multilane.client.produce.producer import Producer

    name = topic(4)
    with Producer({"bootstrap.servers": kafka.bootstrap()}) as producer:
        producer.send_many([(name, *row) for row in shop()]).result(30)
    return name


@pytest.fixture(scope="module")
def ask(kafka):
    settings = {"kafka.bootstrap.servers": kafka.bootstrap(), "minPartitions": "6"}
    return lambda name, **more: HistoryQuery(name, 4, settings, SLOT, **more)


@pytest.fixture(scope="module")
def history(spark, filled, ask) -> History:
    return read_history(spark, ask(filled))


def test_what_spark_counts_is_what_was_written(history):
    rows = shop()
    assert (history.records, history.partitions, history.slot) == (len(rows), 4, 10.0)
    assert history.size == sum(len(key or b"") + len(value or b"") for value, key, *_ in rows)
    for load in history.loads:
        own = [row for row in rows if row[3] == load.partition]
        stamps = [row[4] for row in own]
        assert (load.records, load.first, load.last) == (len(own), min(stamps), max(stamps))
        assert load.keys == len({row[1] for row in own} - {None})
        assert load.unkeyed == sum(row[1] is None for row in own)
        assert load.busiest.records == max(Counter(stamp // SLOT for stamp in stamps).values())
    assert [load.partition for load in history.loads] == [0, 1, 2]
    slots = Counter(row[4] // SLOT for row in rows)
    assert history.busiest == Busiest(max(slots.values()), BEGIN + 3 * SLOT)
    hot, *others = history.heaviest
    assert (hot.partition, hot.key, hot.records, hot.peak) == (1, b"hot", 1_200, 1_200)
    assert len(others) == HEAVIEST - 1
    assert {key.peak for key in others} == {1}


def test_the_busiest_slot_comes_as_it_was(spark, history, filled, ask):
    load = history.heaviest_load
    assert (load.partition, load.busiest.begin) == (1, BEGIN + 3 * SLOT)
    arrivals = read_arrivals(spark, ask(filled), load)
    own = [row for row in shop() if row[3] == 1 and row[4] // SLOT == load.busiest.begin // SLOT]
    assert arrivals.times == [(row[4] - own[0][4]) / 1_000 for row in own]
    names = dict(zip(arrivals.keys, (row[1] for row in own), strict=True))
    assert [names[key] for key in arrivals.keys] == [row[1] for row in own]
    assert len(names) == len(set(names.values()))
    unkeyed = read_arrivals(spark, ask(filled), history.loads[2])
    assert set(unkeyed.keys) == {None}


@pytest.mark.long
def test_only_the_time_that_was_asked_for(spark, filled, ask):
    history = read_history(spark, ask(filled, since=BEGIN + SLOT, until=BEGIN + 2 * SLOT))
    assert history.records == sum(row[4] // SLOT == BEGIN // SLOT + 1 for row in shop())
    assert read_history(spark, ask(filled, since=BEGIN + 100 * SLOT)) is None


@pytest.mark.long
def test_clocks_of_producers_may_be_wrong(spark, topic, fill, ask):
    """A record from the future in front of all others, and one from the past behind them."""
    name = topic(4)
    fill(name, [(b"", b"a", (), 0, BEGIN + 900 * SLOT)])
    fill(name, [(b"", b"b", (), 0, BEGIN + 100 * n) for n in range(50)])
    fill(name, [(b"", b"c", (), 0, BEGIN - 5 * SLOT)])
    history = read_history(spark, ask(name))
    assert (history.busiest, history.records) == (Busiest(50, BEGIN), 52)
    assert len(read_arrivals(spark, ask(name), history.heaviest_load)) == 50


def test_what_goes_wrong_in_spark_is_one_sentence(spark, ask):
    with pytest.raises(NoHistory, match=r"^the history of nowhere cannot be read: there is no topic 'nowhere'"):
        read_history(spark, ask("nowhere"))


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def plan(kafka):
    """Runs the command in a process of its own: one has one Spark."""

    def run(
        name: str, *arguments: str, program=("-m", "multilane"), **environ: str
    ) -> subprocess.CompletedProcess[str]:
        where = () if "--config" in arguments else ("--brokers", kafka.bootstrap())
        command = [sys.executable, *program, "plan", name, "--latency", "20ms", *where, *arguments]
        told = {**os.environ, **environ}
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE, env=told)

    return run


@pytest.fixture
def config(kafka, credentials, filled, tmp_path):
    """An app that logs in, and has a consumer of the topic."""
    user, password = credentials
    auth = {"username": user, "password": password, "certificates": [str(kafka.certificates.ca)]}
    settings = {
        "clusters": {"main": {"clientId": "shop", "brokers": kafka.bootstrap("SASL_SSL"), "auth": auth}},
        "consumers": {"orders": {"groupId": "g", "name": filled, "cluster": "main", "virtualPartitionCount": 9}},
    }
    path = tmp_path / "multilane.yaml"
    path.write_text(json.dumps(settings))
    return str(path)


@pytest.mark.long
def test_the_hot_key_and_the_busy_partition_are_found(plan, filled, config):
    until = "2023-11-14T22:14:00"  # when the hot key ends
    done = plan(filled, "--config", config, "--until", until, "--json", "--master", "local[2]")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert [load["records"] for load in told["history"]["loads"]] == [200, 3_200, 40]
    assert (told["history"]["without_key"], told["history"]["peak_rate"]) == (40, 176.0)
    hot, *others = told["history"]["heaviest_keys"]
    assert (hot["key"]["text"], hot["partition"], hot["peak_rate"], hot["too_hot"]) == ("hot", 1, 120, True)
    assert not any(key["too_hot"] for key in others)
    assert "Key hot of partition 1 gets 120/s at its peak" in told["advice"][0]
    assert told["now"] == {"virtualPartitionCount": 9, "batchSize": 0}
    # 120/s are 2.4 lanes' time: batches of 5 bring the key to 48 % of one, and the partition's 170/s to 0.68.
    assert told["recommended"]["batchSize"] == 5
    assert told["recommended"]["virtualPartitionCount"] * 5 / 0.02 * 0.7 >= 170
    assert (told["recommended"]["consumers"], told["recommended"]["partitions"]) == (1, 4)
    assert told["simulated"]["records"] == 1_700
    assert told["simulated"]["lane_wait_seconds_p99"] <= 1


@pytest.mark.long
def test_what_cannot_be_planned_is_one_line(plan, topic, filled):
    for name, arguments, environ, said in (
        ("there-is-none", (), {}, "there is no topic 'there-is-none' on these brokers"),
        (topic(2), (), {}, "is empty: there is no history to plan from"),
        (filled, ("--master", "bogus"), {}, "'bogus' is not a Spark master"),
        (filled, (), {"JAVA_HOME": "/nowhere"}, "JAVA_HOME is /nowhere"),
    ):
        done = plan(name, *arguments, **environ)
        assert done.returncode == 1
        assert done.stderr.startswith("error: ")
        assert said in done.stderr
        assert done.stderr.count("\n") == 1
    done = plan(filled, program=("-c", WITHOUT_PYSPARK))
    assert (done.returncode, done.stderr) == (1, 'error: pyspark is not installed: pip install "multilane[spark]"\n')


@pytest.mark.long
def test_a_cluster_without_a_slot_is_reported(plan, filled, tmp_path):
    with standalone_cluster(tmp_path, 0) as master:
        done = plan(filled, "--master", master, "--conf", "spark.driver.host=127.0.0.1")
    assert done.returncode == 1
    assert done.stderr.startswith("error: no task found a slot within 120 s: Spark has no executor for this run.")
    assert done.stderr.count("\n") == 1
