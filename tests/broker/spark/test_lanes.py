"""Lanes on any DataFrame, in a real Spark: answers as columns, order per key across tasks, batch and stream.

Functions are made inside functions, so that Spark ships them by value, as those of a notebook."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlparse

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StringType, StructField, StructType

from broker.spark.clusters import connect_server
from multilane.clock import SystemClock
from multilane.errors import ConfigError
from multilane.spark import lanes
from multilane.testing import (
    AtLeastOnce,
    JournalReader,
    NoDuplicateWithoutRestart,
    NoSameKeyOverlap,
    PerKeyOrder,
    Produced,
    RecordPlace,
    in_order,
    violations,
)

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

KEYS = 7


def journaled(path, fails=lambda number: False, dies=lambda number: False):
    """A function that writes the beginning and the end of each call to a journal."""
    path, opened = str(path), []

    async def ask(row) -> str:
        import asyncio
        import os
        from contextlib import suppress
        from pathlib import Path

        from multilane.clock import SystemClock
        from multilane.testing import Ended, Journal, RecordPlace, Started

        if not opened:
            opened.append(Journal(Path(path)))
        now, member = SystemClock().monotonic, f"pid-{os.getpid()}"
        event = (member, row.id, str(row.id), None if row.customer is None else str(row.customer))
        place = RecordPlace("rows", 0, row.id)
        opened[0].write("calls", Started(now(), *event, place))
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 0.002)
        if dies(row.id):
            os._exit(1)
        opened[0].write("calls", Ended(now(), *event, place, is_ok=not fails(row.id)))
        if fails(row.id):
            raise ValueError(f"not {row.id}")
        return f"answer {row.id}"

    return ask


def events(path: Path, many: int) -> list:
    """Of the calls, and of the rows as if they had been produced."""
    produced = [Produced(0.0, str(n), str(n % KEYS), RecordPlace("rows", 0, n)) for n in range(many)]
    return in_order(produced, JournalReader(path).news()["calls"])


@pytest.fixture
def journal(tmp_path):
    return tmp_path / "journal"


@pytest.fixture
def orders(spark):
    """Rows whose key comes from a join: after a shuffle their order is lost."""

    def make(many: int):
        customers = spark.range(KEYS).withColumnsRenamed({"id": "number"}).withColumn("customer", F.col("number"))
        rows = spark.range(many, numPartitions=3).withColumn("number", F.col("id") % KEYS)
        return rows.join(customers.hint("shuffle_hash"), "number").select("id", "customer", "number")

    return make


def test_a_batch_in_order_per_key_across_tasks(orders, journal):
    frame = lanes(orders(600), journaled(journal), key="customer", order_by="id", tasks=3, lanes=5)
    assert frame.columns == ["id", "customer", "number", "result", "outcome", "error", "attempts"]
    found = frame.collect()
    assert Counter((row.id, row.result, row.outcome, row.error, row.attempts) for row in found) == Counter(
        (n, f"answer {n}", "done", None, 1) for n in range(600)
    )
    seen = events(journal, 600)
    judges = [AtLeastOnce(), NoSameKeyOverlap(), PerKeyOrder(), NoDuplicateWithoutRestart()]
    assert violations(seen, judges) == []
    assert len({event.member for event in seen if hasattr(event, "member")}) > 1, "in several tasks"


def test_each_action_calls_again_unless_the_answers_are_kept(spark, journal):
    calls = spark.sparkContext.accumulator(0)

    def counted(row) -> int:
        calls.add(1)
        return row.id

    frame = lanes(spark.range(10), counted)
    frame.agg(F.sum("result")).collect()
    frame.agg(F.sum("result")).collect()
    assert calls.value == 20
    kept = lanes(spark.range(10), counted).persist()
    assert [kept.agg(F.sum("result")).first()[0] for _ in range(3)] == [45] * 3
    assert calls.value == 30
    kept.unpersist()


def test_typed_answers_are_columns_for_further_operations(spark, tmp_path):
    @dataclass
    class Check:
        score: float
        reasons: list[str]

    @dataclass
    class Order:
        id: int
        customer: str

    def check(rows):
        return [Check(row.id / 2, [row.customer]) if row.id else ValueError("zero") for row in rows]

    check.__annotations__ = {"rows": list[Order], "return": list[Check | Exception]}

    rows = spark.range(50).withColumn("customer", F.concat(F.lit("c"), F.col("id") % 3))
    frame = lanes(rows, check, key="customer", order_by="id", batch_size=5, retries=1, backoff="10ms")
    assert frame.schema["result"].dataType.simpleString() == "struct<score:double,reasons:array<string>>"
    frame.where("outcome = 'done'").select("customer", "result.*").write.parquet(str(tmp_path / "out"))
    found = spark.read.parquet(str(tmp_path / "out")).groupBy("customer").agg(F.sum("score"), F.first("reasons"))
    assert {row[0]: row[2] for row in found.collect()} == {f"c{n}": [f"c{n}"] for n in range(3)}
    [failed] = frame.where("outcome = 'failed'").collect()
    assert (failed.id, failed.result, failed.error, failed.attempts) == (0, None, "ValueError: zero", 2)


def test_columns_and_a_type_in_sparks_words(spark):
    def total(rows: pa.RecordBatch) -> pa.Array:
        return pa.StructArray.from_arrays([rows.column("id"), rows.column("text")], ["a", "b"])

    rows = spark.range(20).withColumn("text", F.col("id").cast("string"))
    frame = lanes(rows, total, returns="a bigint, b string")
    assert frame.schema["result"].dataType == StructType([StructField("a", LongType()), StructField("b", StringType())])
    assert sorted((row.id, row.result.a, row.result.b) for row in frame.collect()) == [
        (n, n, str(n)) for n in range(20)
    ]


def test_rows_have_the_values_that_collect_has(spark):
    rows = spark.sql(
        "select id, struct(id as n, array(struct('x' as s)) as deep) as st, map('a', id) as m, date'2026-01-02' as d,"
        " current_timestamp() as at, cast(1.5 as decimal(10,2)) as dec, cast('b' as binary) as bin,"
        " cast(null as string) as no from range(3)"
    ).persist()

    def shown(row) -> str:
        return repr(row)

    found = lanes(rows, shown).collect()
    assert [row.result for row in found] == [repr(row) for row in sorted(rows.collect())]
    rows.unpersist()


def test_rows_without_a_key_wait_for_nobody_and_are_in_all_tasks(spark, journal):
    rows = spark.range(60).selectExpr("id", "cast(null as bigint) as customer")
    frame = lanes(rows, journaled(journal), key="customer", order_by="id", tasks=2)
    found = frame.withColumn("task", F.spark_partition_id()).collect()
    assert {row.outcome for row in found} == {"done"}
    assert len({row.task for row in found}) == 2
    calls = [type(event).__name__ for event in JournalReader(journal).news()["calls"]]
    assert calls != ["Started", "Ended"] * 60


def test_all_tasks_together_keep_to_the_pace(orders, journal):
    frame = lanes(orders(60), journaled(journal), key="customer", order_by="id", tasks=2, max_per_second=40)
    before = SystemClock().monotonic()
    found = frame.withColumn("task", F.spark_partition_id()).collect()
    assert {row.outcome for row in found} == {"done"}
    assert len({row.task for row in found}) == 2
    began = [event.at for event in JournalReader(journal).news()["calls"] if type(event).__name__ == "Started"]
    assert len(began) == 60
    assert max(began) - before >= (60 / 2 - 1) / (40 / 2), "each task has half of the calls"


def test_a_worker_that_dies_loses_no_row(orders, journal, tmp_path):
    mark = str(tmp_path / "died")

    def dies(number: int) -> bool:
        import os

        if number != 300 or os.path.exists(mark):
            return False
        with open(mark, "w"):
            return True

    found = lanes(orders(600), journaled(journal, dies=dies), key="customer", order_by="id", tasks=2).collect()
    assert os.path.exists(mark)
    assert Counter(row.id for row in found) == Counter(range(600))
    assert {row.result for row in found} == {f"answer {n}" for n in range(600)}
    assert violations(events(journal, 600), [AtLeastOnce()]) == []


def test_a_function_that_a_worker_cannot_import_fails_the_job_in_one_sentence(spark, tmp_path, monkeypatch):
    (tmp_path / "only_here.py").write_text("def ask(row) -> int:\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_here

    with pytest.raises(PySparkException, match=r"ConfigError: Spark's worker cannot import .*No module named 'only_h"):
        lanes(spark.range(1), only_here.ask).collect()


class Checks(BaseHTTPRequestHandler):
    """Answers as the service of the page's example."""

    def do_GET(self):
        asked = parse_qs(urlparse(self.path).query)
        body = json.dumps({"score": float(asked["amount"][0]) * 2, "note": asked["customer"][0]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_): ...


def test_the_example_of_the_page_as_a_script(spark, kafka, topic, fill, tmp_path):
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text().partition("## Lanes on any DataFrame\n")[2]
    code = page.partition("```python\n")[2].partition("```")[0]
    name = topic()
    values = [{"customer": f"c{n % 3}", "currency": "EUR", "amount": n} for n in range(30)]
    fill(name, [(json.dumps(one).encode(), one["customer"].encode(), (), 0) for one in values])
    spark.createDataFrame([("EUR", 1.5)], "currency string, rate double").write.parquet(str(tmp_path / "rates"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Checks)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        for before, now in (
            ("localhost:9092", kafka.bootstrap()),
            ('"orders")', f'"{name}")'),
            ("localhost:8080", f"127.0.0.1:{server.server_port}"),
            ('"rates"', repr(str(tmp_path / "rates"))),
            ('"state"', repr(str(tmp_path / "state"))),
            ('.start("checked")', f'.trigger(availableNow=True).start("{tmp_path}/checked").awaitTermination()'),
        ):
            assert before in code
            code = code.replace(before, now)
        exec(compile(code, "spark.md", "exec", dont_inherit=True), {"__name__": "__main__"})  # noqa: S102 - as a script
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
    found = spark.read.parquet(str(tmp_path / "checked")).collect()
    assert sorted((row.amount, row.result.score, row.result.note, row.outcome) for row in found) == [
        (float(n), n * 3.0, f"c{n % 3}", "done") for n in range(30)
    ]


# --- streams ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def arrivals(spark, tmp_path):
    """A stream of files; rows of a key are in several of them, in no order."""
    folder = str(tmp_path / "in")

    def make(many: int):
        rows = spark.range(many, numPartitions=4).withColumn("customer", F.col("id") % KEYS)
        rows.orderBy(F.hash("id")).repartition(4).write.parquet(folder)
        return spark.readStream.schema(rows.schema).parquet(folder)

    return make


def test_a_stream_is_sorted_within_its_micro_batches(spark, arrivals, journal, tmp_path):
    frame = lanes(arrivals(300), journaled(journal, fails=lambda n: n == 5), key="customer", order_by="id", tasks=2)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
    query = writer.trigger(availableNow=True).start(str(tmp_path / "out"))
    assert query.awaitTermination(120)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert Counter(row.id for row in found) == Counter(range(300))
    assert {(row.id, row.outcome, row.error) for row in found if row.result is None} == {
        (5, "failed", "ValueError: not 5")
    }
    assert violations(events(journal, 300), [NoSameKeyOverlap(), PerKeyOrder()]) == []


def test_within_foreach_batch(spark, arrivals, journal, tmp_path):
    ask, found = journaled(journal), []

    def each(batch, number):
        found.extend(lanes(batch, ask, key="customer", order_by="id", tasks=2).collect())

    writer = arrivals(100).writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "state"))
    assert writer.trigger(availableNow=True).start().awaitTermination(120)
    assert Counter(row.id for row in found) == Counter(range(100))
    assert violations(events(journal, 100), [NoSameKeyOverlap(), PerKeyOrder()]) == []


def test_a_watermark_goes_through(spark, arrivals, tmp_path):
    def doubled(row) -> int:
        return row.id * 2

    rows = arrivals(120).withColumn("at", F.timestamp_seconds(F.col("id") * 60)).withWatermark("at", "1 minute")
    hours = lanes(rows, doubled).groupBy(F.window("at", "1 hour")).agg(F.sum("result").alias("total"))
    writer = hours.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "state"))
    assert writer.trigger(availableNow=True).start(str(tmp_path / "out")).awaitTermination(120)
    found = spark.read.parquet(str(tmp_path / "out")).collect()
    assert [row.total for row in found] == [sum(range(60)) * 2], "the second hour may go on"


# --- where the rows of a key are -------------------------------------------------------------------------------------


def topic_of(spark, **options):
    options = {"subscribe": "orders", **options}
    return spark.read.format("multilane").options(**{"kafka.bootstrap.servers": "localhost:1"}, **options).load()


def asked(row) -> int:
    return 1


def plan_text(frame) -> str:
    return frame._jdf.queryExecution().executedPlan().toString()


@pytest.mark.parametrize(
    ("change", "options"),
    [
        (lambda frame: frame, {"key": "key"}),
        (lambda frame: frame.where("offset > 3").select("key", "value", "offset"), {"key": "key"}),
        (lambda frame: frame, {"key": "key", "order_by": "offset"}),
        (lambda frame: frame.withColumn("customer", F.lit(1)), {}),
    ],
)
def test_rows_stay_where_the_source_has_put_them(spark, change, options):
    text = plan_text(lanes(change(topic_of(spark)), asked, **options))
    assert "Exchange" not in text
    assert "Sort" not in text


def test_rows_that_are_in_place_are_sorted_by_what_the_caller_names(spark):
    text = plan_text(lanes(topic_of(spark), asked, key="key", order_by="timestamp"))
    assert "Exchange" not in text
    assert "Sort" in text


def test_an_offset_of_ones_own_is_sorted_by(spark):
    rows = topic_of(spark).withColumn("offset", -F.col("offset"))
    assert "Sort" in plan_text(lanes(rows, asked, key="key", order_by="offset"))


def test_rows_of_a_stream_stay_where_the_source_has_put_them(spark):
    options = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "orders"}
    rows = spark.readStream.format("multilane").options(**options).load().withWatermark("timestamp", "1 minute")
    frame = lanes(rows.select("key", "timestamp", F.upper(F.col("value").cast("string"))), asked, key="key")
    assert "Repartition" not in frame._jdf.queryExecution().analyzed().toString()
    with pytest.raises(ConfigError, match="key is not the column `key` as"):
        lanes(rows.withColumn("key", F.col("value")), asked, key="key")


@pytest.mark.parametrize(
    ("change", "key", "why"),
    [
        (lambda frame: frame.repartition(2), "key", "RepartitionByExpression may have moved rows|Repartition may have"),
        (
            lambda frame: frame.withColumn("key", F.upper(F.col("key").cast("string"))),
            "key",
            "key is not the column `key` as",
        ),
        (lambda frame: frame, "value", "value is not the column `key` as the source delivers it, of one topic"),
        (lambda frame: frame, ["key", "offset"], "key and offset is not the column"),
    ],
)
def test_an_order_that_is_not_known_is_refused(spark, change, key, why):
    with pytest.raises(ConfigError, match=rf"the order of the rows of a key is not known here: ({why}).*order_by="):
        lanes(change(topic_of(spark)), asked, key=key)


def test_an_order_over_two_topics_or_over_files_is_not_known(spark):
    with pytest.raises(ConfigError, match="not known here"):
        lanes(topic_of(spark, subscribe="orders,payments"), asked, key="key")
    with pytest.raises(ConfigError, match="do not come straight from a topic, but from Range"):
        lanes(spark.range(1), asked, key="id")


def test_what_is_refused_before_a_task_starts(spark):
    rows = spark.range(1).withColumn("nested", F.struct(F.lit(1).alias("a")))
    lanes(rows, asked, key="nested.a", order_by="id")
    session = spark

    def unshippable(row) -> int:
        return session.range(1).count()

    refused = [
        (rows, asked, {"key": "customer", "order_by": "id"}, "key='customer': the DataFrame has no such column. Its"),
        (rows, asked, {"key": "id", "order_by": "when"}, "order_by='when': the DataFrame has no such column"),
        (rows, asked, {"order_by": "id"}, "order_by orders the rows of a key: pass key="),
        (
            rows.withColumn("Error", F.lit(1)),
            asked,
            {},
            "has a column Error already: lanes adds result, outcome, error",
        ),
        (rows, unshippable, {}, "unshippable .* cannot be shipped to Spark's workers: .*such as a connection, a lock"),
        (rows, asked, {"lanes": 0}, "lanes=0: pass a whole number, 1 or more"),
        (rows, asked, {"timeout": "soon"}, "timeout='soon': .*'500ms'"),
        (rows, asked, {"max_per_second": 0}, "max_per_second=0: pass a number above 0"),
        (rows, asked, {"max_per_second": 5}, "max_per_second is shared by all tasks, and .* pass tasks="),
        (rows, asked, {"tasks": 0}, "tasks=0: pass a whole number, 1 or more"),
        (rows, asked, {"key": "id", "order_by": "nested"}, "order_by='nested' is struct<a:int>, which has no order"),
        (rows, asked, {"tasks": -1}, "tasks=-1: pass a whole number, 1 or more"),
        (topic_of(spark), asked, {"key": "key", "max_per_second": 5}, "max_per_second is shared .* Pass order_by="),
        (rows, asked, {"breaker": "on"}, "breaker='on': one of off, pause, stop"),
        (rows, asked, {"batch_size": 5}, "batch_size: asked .* takes one row; annotate"),
        (rows, asked, {"returns": "nonsense("}, "returns='nonsense\\(' is no Spark type"),
        (rows, asked, {"key": F.col("id")}, "pass names of columns"),
    ]
    for frame, function, options, message in refused:
        with pytest.raises(ConfigError, match=message):
            lanes(frame, function, **options)
    with pytest.raises(TypeError, match="lanes\\(\\) has no option 'order'"):
        lanes(rows, asked, order="id")


CONNECTED = """
import sys
from pyspark.sql import SparkSession
from multilane.spark import lanes
spark = SparkSession.builder.remote(sys.argv[1]).getOrCreate()
rows = spark.range(40).selectExpr("id", "id % 3 as customer")
async def ask(row) -> int:
    return row.id * 2
try:
    lanes(rows, ask, key="customer")
except Exception as error:
    print(error)
found = lanes(rows, ask, key="customer", order_by="id", tasks=2).collect()
print(sum(row.result for row in found), {row.outcome for row in found})
"""


@pytest.mark.long
def test_through_spark_connect(tmp_path):
    with connect_server(tmp_path) as master:
        environment = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
        ran = subprocess.run(
            [sys.executable, "-c", CONNECTED, master], env=environment, capture_output=True, text=True, check=False
        )
    assert ran.returncode == 0, ran.stderr[-4_000:]
    assert "is not known here: Spark shows no plan (Spark Connect). Pass order_by=" in ran.stdout
    assert "1560 {'done'}" in ran.stdout
