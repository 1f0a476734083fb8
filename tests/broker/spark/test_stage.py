"""Rows of a DataFrame on lanes: an app's listener as a stage after whatever Spark did before."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import uuid
from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from broker.spark.clusters import standalone_cluster
from multilane import Admin, App, Consumer, Record, TopicPartition
from multilane.outcome.headers import RETRY_COUNT

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

SINGLE = """
import os
from multilane import App, Record
app = App("multilane.yaml")
@app.listener("orders")
async def index(record: Record) -> None:
    with open("seen", "a") as seen:
        seen.write(f"{record.key.decode()} {record.partition} {record.offset} {os.getpid()}\\n")
    if record.value.startswith(b"bad"):
        raise ValueError("not today")
"""
ENDLESS = """
    if record.value == b"long":
        import asyncio
        await asyncio.Event().wait()
"""
COLUMNS = """
import pyarrow as pa
from multilane import App
app = App("multilane.yaml")
@app.listener("orders")
def index(records: pa.RecordBatch) -> dict[int, Exception]:
    rows = records.to_pylist()
    with open("seen", "a") as seen:
        seen.writelines(f"{row['key'].decode()} {row['partition']} {row['offset']} 0\\n" for row in rows)
    return {at: ValueError("not today") for at, row in enumerate(rows) if row["value"].startswith(b"bad")}
"""
UNIQUE = """
from multilane import App, Record
app = App("multilane.yaml")
@app.listener("orders")
async def index(record: Record) -> None:
    with open("seen", "a") as seen:
        seen.write(f"{record.key.decode()} {record.partition} {record.offset} 0\\n")
"""


class Stall:
    """An app in a directory of its own, with its topics; what its listener saw is in a file there."""

    def __init__(self, directory: Path, bootstrap: str, module: str, **consumer: object) -> None:
        self.topic = f"stall-{uuid.uuid4().hex[:8]}"
        self.module = f"app_{uuid.uuid4().hex[:8]}"
        self._directory, self.bootstrap = directory, bootstrap
        told = {"groupId": self.topic, "name": self.topic, "cluster": "main", "virtualPartitionCount": 5}
        told |= {"retry": f"{self.topic}-retry", "error": f"{self.topic}-error", "retryCount": 1} | consumer
        told = {name: value for name, value in told.items() if value is not None}
        settings = {
            "clusters": {"main": {"clientId": "stall", "brokers": bootstrap}},
            "consumers": {"orders": told | {"offsetInitial": "oldest"}},
        }
        (directory / "multilane.yaml").write_text(json.dumps(settings))
        (directory / f"{self.module}.py").write_text(module)
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics({self.topic: 3, f"{self.topic}-retry": 1, f"{self.topic}-error": 1})

    @property
    def app(self) -> App:
        return importlib.import_module(self.module).app

    @property
    def seen(self) -> list[tuple[str, int, int]]:
        """Key, partition and offset, in the order in which they came; those of one key came to one process."""
        path = self._directory / "seen"
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        return [(key, int(partition), int(offset)) for key, partition, offset, _ in lines]

    def copies(self) -> list[Record]:
        """What is in the retry topic."""
        retry = TopicPartition(f"{self.topic}-retry", 0)
        with Consumer({"bootstrap.servers": self.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign([retry])
            end = consumer.end_offsets([retry])[retry]
            found: list[Record] = []
            while len(found) < end:
                found += consumer.poll(30.0).records()
        return found

    def is_in_key_order(self) -> bool:
        by_key: dict[tuple[str, int], list[int]] = {}
        for key, partition, offset in self.seen:
            by_key.setdefault((key, partition), []).append(offset)
        return all(offsets == sorted(offsets) for offsets in by_key.values())


@pytest.fixture
def stall(tmp_path, kafka, monkeypatch):
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    monkeypatch.syspath_prepend(home)

    def make(module: str = SINGLE, **consumer: object) -> Stall:
        return Stall(home, kafka.bootstrap(), module, **consumer)

    yield make
    for name in [name for name in sys.modules if name.startswith("app_")]:
        del sys.modules[name]


def orders(many: int) -> list[tuple]:
    """Six keys over three partitions; each tenth is not wanted, each seventh is bad."""
    values = [b"unwanted" if n % 10 == 9 else b"bad" if n % 7 == 6 else b"good" for n in range(many)]
    return [(value, b"k%d" % (n % 6), (("n", b"%d" % n),), n % 3) for n, value in enumerate(values)]


def plan_text(frame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.long
def test_what_a_filter_leaves_is_handled_once_in_the_order_of_its_keys(stall, fill, table):
    made = stall()
    fill(made.topic, orders(400))
    rows = table(made.topic, includeHeaders=True).where("value != cast('unwanted' as binary)")
    frame = made.app.handle(rows, "orders")
    assert "Exchange" not in plan_text(frame), "the source's own order was kept"
    found = frame.collect()
    wanted = [n for n in range(400) if n % 10 != 9]
    assert len(found) == len({(row.partition, row.offset) for row in found}) == len(wanted)
    assert Counter(made.seen) == Counter((f"k{n % 6}", n % 3, n // 3) for n in wanted)
    assert made.is_in_key_order()
    bad = {(n % 3, n // 3) for n in wanted if n % 7 == 6}
    assert {(row.partition, row.offset) for row in found if row.outcome == "retried"} == bad
    assert {(row.outcome, row.error, row.topic) for row in found} == {
        ("done", None, made.topic),
        ("retried", "ValueError: not today", made.topic),
    }
    copies = made.copies()
    assert len(copies) == len(bad), "they were acknowledged before the task ended"
    assert all({"n", RETRY_COUNT} <= {name for name, _ in copy.headers} for copy in copies)


@pytest.mark.long
def test_rows_that_were_shuffled_are_brought_in_order(stall, fill, table):
    made = stall()
    fill(made.topic, orders(400))
    frame = made.app.handle(table(made.topic).repartition(4), "orders", tasks=3)
    assert "hashpartitioning(topic" in plan_text(frame)
    assert len(frame.collect()) == len(made.seen) == 400
    assert made.is_in_key_order()


@pytest.mark.long
def test_rows_in_the_wrong_order_are_refused(stall, fill, table):
    made = stall()
    fill(made.topic, orders(40))
    frame = made.app.handle(table(made.topic).orderBy("offset", ascending=False), "orders", in_order=True)
    with pytest.raises(PySparkException, match=r"WrongRows: .*comes after.*in_order=False"):
        frame.collect()


@pytest.mark.long
def test_rows_of_another_topic_are_refused(stall, fill, table):
    made = stall()
    fill(made.topic, orders(3))
    frame = made.app.handle(table(made.topic).withColumn("topic", F.lit("other")), "orders")
    with pytest.raises(
        PySparkException, match=f"a row is from other: consumer 'orders' handles {made.topic}-retry and"
    ):
        frame.collect()


@pytest.mark.long
def test_a_stream_into_files_and_its_next_run(stall, fill, table, spark, tmp_path):
    made = stall()
    out, checkpoint = str(tmp_path / "out"), str(tmp_path / "checkpoint")

    def run() -> None:
        rows = table(made.topic, is_stream=True, startingOffsets="earliest", maxOffsetsPerTrigger=100)
        frame = made.app.handle(rows.where("value != cast('unwanted' as binary)"), "orders")
        writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start(out)
        assert query.awaitTermination(120)

    for times in (1, 2):
        fill(made.topic, orders(200))
        run()
        found = spark.read.parquet(out).collect()
        assert len(found) == len(made.seen) == times * 180, "each record once, over both runs"
    assert {row.outcome for row in found} == {"done", "retried"}
    assert made.is_in_key_order()


@pytest.mark.long
def test_a_stream_that_was_shuffled(stall, fill, table, tmp_path):
    made = stall()
    fill(made.topic, orders(300))
    rows = table(made.topic, is_stream=True, startingOffsets="earliest", maxOffsetsPerTrigger=150).repartition(3)
    found = []
    query = (
        made.app.handle(rows, "orders", tasks=2)
        .writeStream.foreachBatch(lambda batch, number: found.extend(batch.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert len(found) == len(made.seen) == 300
    assert made.is_in_key_order()


@pytest.mark.long
def test_within_a_batch_of_a_stream(stall, fill, table, tmp_path):
    """What foreachBatch is given has no plan that tells where it came from: its user knows."""
    made = stall()
    fill(made.topic, orders(100))
    app, found = made.app, []
    rows = table(made.topic, is_stream=True, startingOffsets="earliest")
    query = (
        rows.writeStream.foreachBatch(
            lambda batch, number: found.extend(app.handle(batch, "orders", in_order=True).collect())
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert len(found) == len(made.seen) == 100
    assert made.is_in_key_order()


@pytest.mark.long
def test_columns_at_a_time(stall, fill, table):
    made = stall(COLUMNS, batchSize=16)
    fill(made.topic, orders(300))
    found = made.app.handle(table(made.topic), "orders").collect()
    bad = sum(value == b"bad" for value, *_ in orders(300))
    assert Counter(row.outcome for row in found) == {"done": 300 - bad, "retried": bad}
    assert len(made.seen) == 300
    assert made.is_in_key_order()


@pytest.mark.long
def test_the_newest_of_each_key(stall, fill, table):
    made = stall(UNIQUE, batchSize=50, uniqueListener=True, retry=None, retryCount=None)
    fill(made.topic, orders(300))
    found = made.app.handle(table(made.topic), "orders").collect()
    outcomes = Counter(row.outcome for row in found)
    assert sum(outcomes.values()) == 300
    assert outcomes["done"] == len(made.seen)
    assert outcomes["skipped"] > 200
    last = {(f"k{n % 6}", n % 3, n // 3) for n in range(294, 300)}
    assert last <= set(made.seen)


@pytest.mark.long
def test_a_call_that_takes_too_long_and_one_from_the_retry_topic(stall, fill, table):
    made = stall(SINGLE + ENDLESS, maxProcessingTime="500ms")
    fill(made.topic, [(b"long", b"k", (), 0), (b"good", b"k", (), 0)])
    found = made.app.handle(table(made.topic), "orders").collect()
    assert [(row.outcome, (row.error or "").partition(":")[0]) for row in sorted(found, key=lambda r: r.offset)] == [
        ("retried", "ProcessingTimeout"),
        ("done", ""),
    ]
    again = made.app.handle(table(f"{made.topic}-retry"), "orders").collect()
    assert [(row.topic, row.outcome) for row in again] == [(f"{made.topic}-retry", "dead")]
    assert table(f"{made.topic}-error").count() == 1


WATCHED = """
import asyncio
import logging
import re
from multilane import App, Record
app = App("multilane.yaml")
loop, settled = None, 0
class Line(logging.Handler):
    def emit(self, record):
        global settled
        if found := re.search(r"settled (\\d+) \\(", record.getMessage()):
            settled += int(found[1])
        if settled == 39 and loop is not None:
            loop.call_soon_threadsafe(shown.set)
logging.getLogger("multilane.lanes.progress").addHandler(Line())
@app.listener("orders")
async def index(record: Record) -> None:
    global loop, shown
    if record.value == b"last":  # waits until the others are in a line of the log
        loop, shown = asyncio.get_running_loop(), asyncio.Event()
        await shown.wait()
    if record.value.startswith(b"bad"):
        raise ValueError("not today")
"""
WATCHING = """
import logging, sys, time
from pyspark.sql import SparkSession
from multilane import Observer
logging.basicConfig(level="INFO", format="DRIVER %(levelname)s %(message)s")
bootstrap, topic, module, checkpoint = sys.argv[1:]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate()
)
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
app = __import__(module).app
class Printer(Observer):
    def count(self, name, value=1, **labels):
        print("count", name, round(value), labels, flush=True)
    def duration(self, name, seconds, times=1, **labels):
        print("duration", name, times, flush=True)
app.observer = Printer()
if checkpoint:
    rows = spark.readStream.format("multilane").options(**options, maxOffsetsPerTrigger=10).load()
    writer = app.handle(rows, "orders").writeStream.format("noop").option("checkpointLocation", checkpoint)
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
else:
    app.handle(spark.read.format("multilane").options(**options).load(), "orders").collect()
"""


def watched(made: Stall, checkpoint: str = "") -> tuple[list[str], list[str]]:
    """The lines that a script's user sees, and what the script's observer was given."""
    ran = subprocess.run(
        [sys.executable, "-c", WATCHING, made.bootstrap, made.topic, made.module, checkpoint],
        env=dict(os.environ) | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
        timeout=180,
    )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    return ran.stderr.splitlines(), ran.stdout.splitlines()


def test_the_log_and_the_observer_of_a_batch(stall, fill):
    made = stall(WATCHED, maxProcessingTime="10m")
    fill(made.topic, [(b"bad" if n == 3 else b"good", b"k%d" % n, (), 0) for n in range(39)])
    fill(made.topic, [(b"last", b"last", (), 0)])
    lines, observed = watched(made)
    workers = [found[1] for line in lines if (found := re.search(r" worker \d+ (.*)", line))]
    driver = [line.removeprefix("DRIVER ") for line in lines if line.startswith("DRIVER ")]
    each_ten_seconds = [re.match(r"(WARNING|INFO) consumer orders: settled (\d+) \(", line) for line in workers]
    assert sum(int(found[2]) for found in each_ten_seconds if found) == 39
    for told in (workers, driver):
        [first] = [line for line in told if "failed: ValueError at" in line]
        assert first.startswith(f"ERROR consumer orders: {made.topic}-0@3, key #")
    assert any("raise ValueError" in line for line in lines)
    [total] = [line for line in workers if " total " in line]
    assert total.startswith("WARNING consumer orders, total of task 0 in stage ")
    [summary] = [line for line in driver if " total " in line]
    assert summary.startswith("WARNING consumer orders, total of 1 task (")
    for told in (total, summary):
        assert "settled 40, failed 1, retried 1, dead 0. Errors: 1 x ValueError at" in told
    assert "count lanes.records.settled 40 {'consumer': 'orders'}" in observed
    assert "count lanes.records.retried 1 {'consumer': 'orders'}" in observed
    calls = [line.split() for line in observed if line.startswith("duration lanes.call.duration")]
    assert sum(int(times) for *_, times in calls) == 40


@pytest.mark.long
def test_the_log_of_a_stream_has_one_total_at_its_end(stall, fill, tmp_path):
    made = stall(SINGLE)
    fill(made.topic, orders(60))
    lines, observed = watched(made, str(tmp_path / "checkpoint"))
    [summary] = [line for line in lines if " total " in line]
    bad = sum(value == b"bad" for value, *_ in orders(60))
    assert "DRIVER WARNING consumer orders, total of " in summary
    assert f"settled 60, failed {bad}, retried {bad}, dead 0. Errors: {bad} x ValueError at" in summary
    settled = [float(line.split()[2]) for line in observed if line.startswith("count lanes.records.settled")]
    assert len(settled) > 1
    assert sum(settled) == 60


ON_A_CLUSTER = """
import sys
from pyspark.sql import SparkSession
master, bootstrap, topic, module = sys.argv[1:]
spark = (
    SparkSession.builder.master(master)
    .config("spark.archives", "app.zip#multilane-app")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.executor.memory", "512m")
    .config("spark.ui.enabled", "false")
    .getOrCreate()
)
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
rows = spark.read.format("multilane").options(**options).load()
app = __import__(module).app
found = app.handle(rows, "orders", home="multilane-app").collect()
print(len(found), len({row.offset for row in found}))
spark.stop()
"""


@pytest.mark.long
def test_on_a_cluster_that_unpacks_the_application(stall, fill, tmp_path):
    made = stall(SINGLE.replace('"seen"', f'"{tmp_path}/home/seen"'))
    fill(made.topic, orders(300))
    subprocess.run([sys.executable, "-m", "multilane", "pack", "app.zip"], check=True)
    with standalone_cluster(tmp_path, 2) as master:
        told = subprocess.run(
            [sys.executable, "-c", ON_A_CLUSTER, master, made.bootstrap, made.topic, made.module],
            env=dict(os.environ) | {"PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.returncode == 0, told.stderr[-4_000:]
    assert told.stdout.split()[-2:] == ["300", "100"], told.stdout
    assert Counter(made.seen) == Counter((f"k{n % 6}", n % 3, n // 3) for n in range(300))
    assert made.is_in_key_order()
