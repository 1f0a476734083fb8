"""`format("multilane")` reading, on a real Spark and a real Kafka."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import pytest
from pydantic import BaseModel
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F

from multilane.app.app import App
from multilane.client.admin.admin import Admin
from multilane.client.consumer import Consumer
from multilane.client.produce.producer import Producer
from multilane.types import TopicPartition

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


def numbers(rows) -> list[int]:
    return sorted(int(bytes(row.value)) for row in rows)


def test_rows_are_those_of_sparks_own_source(topic, fill, table):
    name = topic(2)
    at = 1_700_000_000_123
    fill(
        name,
        [
            (b"v", b"k", (("a", b"1"), ("a", None)), 1, at),
            (None, None, (), 1, at + 1),
            (b"", b"", (), 0, at + 2),
        ],
    )
    frame = table(name, includeHeaders="true")
    assert frame.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    rows = {(row.partition, row.offset): row for row in frame.collect()}
    first, second, third = rows[1, 0], rows[1, 1], rows[0, 0]
    assert (bytes(first.key), bytes(first.value), first.topic, first.timestampType) == (b"k", b"v", name, 0)
    assert first.timestamp.astimezone(UTC) == datetime.fromtimestamp(at / 1000, UTC)
    assert [(h.key, h.value and bytes(h.value)) for h in first.headers] == [("a", b"1"), ("a", None)]
    assert (second.key, second.value, second.headers) == (None, None, None)
    assert (bytes(third.key), bytes(third.value)) == (b"", b"")
    assert "headers" not in table(name).columns


def test_everything_is_read_once_by_however_many_tasks(topic, fill, table):
    name = topic(3)
    fill(name, [(b"%d" % n, b"k%d" % n) for n in range(5_000)])
    for options, tasks in (({}, 3), ({"minPartitions": 7}, None), ({"maxTasks": 2}, 2)):
        frame = table(name, **options)
        assert numbers(frame.collect()) == list(range(5_000))
        found = frame.rdd.getNumPartitions()
        assert found == tasks if tasks else found >= 7


def test_from_here_to_there(topic, fill, table):
    name = topic(1)
    fill(name, [(b"%d" % n, None, (), 0, 1_000 + n) for n in range(100)])
    spans = [
        ({"startingOffsets": json.dumps({name: {"0": 20}}), "endingOffsets": json.dumps({name: {"0": 25}})}, (20, 25)),
        ({"startingOffsets": json.dumps({name: {"0": -2}}), "endingOffsets": json.dumps({name: {"0": 3}})}, (0, 3)),
        ({"startingOffsets": "latest"}, (100, 100)),
        ({"startingTimestamp": 1_090, "endingTimestamp": 1_095}, (90, 95)),
        ({"startingOffsetsByTimestamp": json.dumps({name: {"0": 1_098}})}, (98, 100)),
        ({"startingTimestamp": 5_000, "startingOffsetsByTimestampStrategy": "latest"}, (100, 100)),
    ]
    for options, (first, end) in spans:
        assert numbers(table(name, **options).collect()) == list(range(first, end)), options
    assigned = table("", assign=json.dumps({name: [0]}), endingOffsets=json.dumps({name: {"0": 2}}))
    assert numbers(assigned.collect()) == [0, 1]
    pattern = table("", subscribePattern=name[:-2] + "..")
    assert numbers(pattern.filter(pattern.topic == name).collect()) == list(range(100))


def test_only_committed_transactions_and_the_end_of_a_log_of_markers(topic, table, kafka):
    from confluent_kafka import Producer as Transactional

    name = topic(1)
    producer = Transactional({"bootstrap.servers": kafka.bootstrap(), "transactional.id": f"{name}.t"})
    producer.init_transactions()
    for n in range(10):
        producer.begin_transaction()
        producer.produce(name, b"%d" % n)
        producer.flush(30)  # or what is aborted was never sent
        if n % 3:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    committed = [n for n in range(10) if n % 3]
    assert numbers(table(name, **{"kafka.isolation.level": "read_committed"}).collect()) == committed
    assert numbers(table(name, **{"kafka.isolation.level": "read_uncommitted"}).collect()) == list(range(10))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscribe": "there-is-no-such-topic"}, "there is no topic 'there-is-no-such-topic'"),
        ({"startingOffset": "latest"}, "did you mean startingOffsets"),
        ({"startingOffsets": '{"other": {"0": 1}}'}, "not read at all"),
        ({"startingTimestamp": "99999999999999"}, "no record of"),
    ],
)
def test_what_is_wrong_is_reported(topic, table, options, said):
    with pytest.raises(Exception, match=said):
        table(options.pop("subscribe", None) or topic(1), **options).collect()


# --- streams ---------------------------------------------------------------------------------------------------------


class Batches:
    """What a stream brought, batch by batch."""

    def __init__(self) -> None:
        self.rows: list[list[tuple[int, int, int]]] = []

    def __call__(self, frame, number) -> None:
        self.rows.append([(row.partition, row.offset, int(bytes(row.value))) for row in frame.collect()])

    @property
    def values(self) -> list[int]:
        return [value for batch in self.rows for _, _, value in batch]


def run(frame, folder, **settings) -> Batches:
    """All that is available now."""
    batches = Batches()
    writer = frame.writeStream.foreachBatch(batches).option("checkpointLocation", str(folder))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return batches


def test_a_stream_goes_on_where_its_checkpoint_says_and_takes_new_partitions(topic, fill, table, kafka, tmp_path):
    name, group = topic(2), f"{topic(1)}.group"
    fill(name, [(b"%d" % n, None, (), n % 2) for n in range(1_000)])
    options = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": 300, "commitGroup": group}
    first = run(table(name, is_stream=True, **options), tmp_path)
    assert sorted(first.values) == list(range(1_000))
    assert [len(batch) for batch in first.rows] == [300, 300, 300, 100]
    for batch in first.rows:
        for partition in (0, 1):
            own = [offset for p, offset, _ in batch if p == partition]
            assert own == list(range(own[0], own[0] + len(own))), "in the order of the log"
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        told = admin.group_offsets(group)
        assert {p.partition: place.offset for p, place in told.items()} == {0: 500, 1: 500}, "also of the last batch"
        admin.create_partitions({name: 3})
    fill(name, [(b"%d" % n, None, (), n % 3) for n in range(1_000, 1_300)])
    second = run(table(name, is_stream=True, **options), tmp_path)
    assert sorted(second.values) == list(range(1_000, 1_300))


def test_a_stream_begins_at_the_position_of_a_group(topic, fill, table, kafka, tmp_path):
    name = topic(2)
    fill(name, [(b"%d" % n, None, (), n % 2) for n in range(20)])
    group = f"{name}.group"
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "group.id": group}) as consumer:
        consumer.commit({TopicPartition(name, 0): 7})
    frame = table(name, is_stream=True, startingOffsets="group", **{"kafka.group.id": group})
    found = run(frame, tmp_path)
    taken = Counter(partition for batch in found.rows for partition, _, _ in batch)
    assert taken == {0: 3, 1: 10}, "a partition without a position is read from its beginning"


def test_a_checkpoint_of_another_topic_is_refused_before_anything_is_read(topic, fill, table, kafka, tmp_path):
    orders, stock, group = topic(2), topic(1), f"{topic(1)}.group"
    for name in (orders, stock):
        fill(name, [(b"%d" % n,) for n in range(10)])
    options = {"startingOffsets": "earliest", "commitGroup": group}
    assert run(table(f"{orders},{stock}", is_stream=True, startingOffsets="earliest"), tmp_path / "both").values
    assert run(table(orders, is_stream=True, startingOffsets="earliest"), tmp_path / "orders").values

    said = rf"the checkpoint is of a query that read {orders}-0, {orders}-1, and this one reads {stock}"
    for lenient in ("false", "true"):
        with pytest.raises(StreamingQueryException, match=f"{said}: give it a checkpointLocation of its own"):
            run(table(stock, is_stream=True, failOnDataLoss=lenient, **options), tmp_path / "orders")
    with pytest.raises(StreamingQueryException, match=f"{said}. Set failOnDataLoss to false"):
        run(table(stock, is_stream=True, **options), tmp_path / "both")
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        assert admin.group_offsets(group) == {}

    fill(stock, [(b"10",)])
    assert run(table(stock, is_stream=True, failOnDataLoss="false", **options), tmp_path / "both").values == [10]
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        assert {str(p) for p in admin.group_offsets(group)} == {f"{stock}-0"}


def test_a_topic_that_was_made_again_between_two_runs_is_another(topic, fill, table, kafka, tmp_path, eventually):
    name = topic(1)
    fill(name, [(b"%d" % n,) for n in range(10)])
    assert run(table(name, is_stream=True, startingOffsets="earliest"), tmp_path).values == list(range(10))
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        admin.delete_topics([name])
        eventually(lambda: name not in admin.topics())
        admin.create_topics({name: 1})
    fill(name, [(b"%d" % n,) for n in range(100, 120)])
    with pytest.raises(StreamingQueryException, match=f"{name} was deleted and recreated since it was read"):
        run(table(name, is_stream=True), tmp_path)
    again = run(table(name, is_stream=True, failOnDataLoss="false"), tmp_path)
    assert again.values == list(range(100, 120)), "all of the new one"
    fill(name, [(b"120",)])
    assert run(table(name, is_stream=True), tmp_path).values == [120]


def test_a_group_that_was_nowhere_yet_begins_at_the_beginning(topic, fill, table):
    name = topic(1)
    fill(name, [(b"%d" % n,) for n in range(3)])
    assert table(name, startingOffsets="group", **{"kafka.group.id": f"{name}.group"}).count() == 3


def test_a_group_beyond_the_end_of_its_log(topic, fill, table, kafka):
    name = topic(1)
    fill(name, [(b"%d" % n,) for n in range(3)])
    group = f"{name}.group"
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "group.id": group}) as consumer:
        consumer.commit({TopicPartition(name, 0): 7})
    rows = table(name, startingOffsets="group", **{"kafka.group.id": group})
    with pytest.raises(Exception, match=rf"the group is at 7 of {name}-0, but the log ends at 3. Set failOnDataLoss"):
        rows.count()


@pytest.mark.parametrize("fails", [True, pytest.param(False, marks=pytest.mark.long)])
def test_what_is_gone_from_the_log_is_never_passed_over_in_silence(topic, fill, table, kafka, tmp_path, fails):
    name = topic(1)
    fill(name, [(b"%d" % n,) for n in range(100)])
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        admin.delete_records({TopicPartition(name, 0): 50})
    options = {"startingOffsets": json.dumps({name: {"0": 10}}), "maxOffsetsPerTrigger": 30}
    frame = table(name, is_stream=True, failOnDataLoss=str(fails).lower(), **options)
    if fails:
        with pytest.raises(Exception, match=r"begins at 50: records are gone. Set failOnDataLoss to false"):
            run(frame, tmp_path)
    else:
        assert run(frame, tmp_path).values == list(range(50, 100))


def test_secrets_do_not_show_in_plans(topic, table, kafka):
    name = topic(1)
    for is_stream in (False, True):
        frame = table(name, is_stream=is_stream, **{"kafka.ssl.key.password": "do-not-tell"})
        assert "do-not-tell" not in frame._jdf.queryExecution().toString()
        assert "do-not-tell" not in str(frame._jdf.queryExecution().logical())
        with pytest.raises(Exception, match=r"Spark would show the private key .* kafka\.ssl\.keystore\.location"):
            table(name, is_stream=is_stream, **{"kafka.ssl.keystore.key": "do-not-tell"})


@pytest.mark.long
def test_a_producer_that_goes_on_is_followed(topic, fill, table, kafka, tmp_path, eventually):
    name = topic(2)
    batches = Batches()
    frame = table(name, is_stream=True, startingOffsets="earliest")
    query = frame.writeStream.foreachBatch(batches).option("checkpointLocation", str(tmp_path)).start()
    try:
        with Producer({"bootstrap.servers": kafka.bootstrap()}) as producer:
            for n in range(30):
                producer.send(name, b"%d" % n, b"k%d" % n).result(30)
                if n == 15:
                    eventually(lambda: len(batches.values) == 16, 60)
        eventually(lambda: len(batches.values) == 30, 60)
    finally:
        query.stop()
    assert sorted(batches.values) == list(range(30))


class Order(BaseModel):
    id: int
    item: str | None = None


def test_a_consumers_topic_as_typed_rows(topic, fill, spark, kafka, tmp_path):
    name = topic(2)
    fill(name, [(b'{"id": 1, "item": "apple"}',), (b'{"id": 2}',), (b"no json",)])
    settings = {
        "clusters": {"main": {"clientId": "x", "brokers": kafka.bootstrap()}},
        "consumers": {"orders": {"groupId": "g", "name": name, "cluster": "main", "offsetInitial": "oldest"}},
    }
    path = tmp_path / "multilane.yaml"
    path.write_text(json.dumps(settings))
    frame = App(path).stream("orders", Order, spark=spark, includeHeaders=True)
    found = []
    query = (
        frame.select("payload.*", "offset", "headers")
        .writeStream.foreachBatch(lambda rows, number: found.extend(rows.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sorted((row.id or 0, row.item) for row in found) == [(0, None), (1, "apple"), (2, None)]


def test_a_table_of_the_catalog_and_the_pace_of_streams(spark, kafka, topic, fill):
    name = topic(1)
    fill(name, [(b"v", b"k", (("a", b"1"),))] * 7)
    options = {"kafka.bootstrap.servers": kafka.bootstrap(), "subscribe": name, "includeHeaders": "true"}
    options["maxOffsetsPerTrigger"] = "2"
    written = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    spark.sql(f"CREATE TABLE kept USING multilane OPTIONS ({written}) COMMENT 'orders' TBLPROPERTIES ('own' = 'one')")
    try:
        found = spark.sql("SELECT * FROM kept").collect()
        assert [row.offset for row in found] == list(range(7))
        assert found[0].headers[0].value == b"1"
        assert spark.sql("SELECT 1 FROM kept WITH (`startingOffsets` = 'latest')").collect() == []
    finally:
        spark.sql("DROP TABLE kept")


@pytest.fixture
def kept_table(spark, kafka, topic, fill):
    """A table of the catalog, over a topic with seven records."""
    name = topic(1)
    fill(name, [(b"%d" % n, b"k") for n in range(7)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap(), "subscribe": name, "maxOffsetsPerTrigger": "2"}
    written = ", ".join(f"'{key}' = '{value}'" for key, value in options.items())
    spark.sql(f"CREATE TABLE kept_orders USING multilane OPTIONS ({written})")
    yield "kept_orders"
    spark.sql("DROP TABLE kept_orders")


def test_a_table_of_the_catalog_is_not_overwritten(spark, kept_table):
    with pytest.raises(Exception, match="a Kafka topic cannot be overwritten"):
        spark.sql(f"INSERT OVERWRITE {kept_table} TABLE {kept_table}")
    with pytest.raises(Exception, match="a Kafka topic cannot be overwritten"):
        spark.table(kept_table).writeTo(kept_table).overwrite(F.lit(True))
    assert spark.table(kept_table).count() == 7


def test_a_stream_from_a_table_of_the_catalog_has_its_options(spark, kept_table, tmp_path):
    found = []
    rows = spark.readStream.option("startingOffsets", "earliest").table(kept_table)
    writer = rows.writeStream.foreachBatch(lambda batch, number: found.append([r.offset for r in batch.collect()]))
    query = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    assert found == [[0, 1], [2, 3], [4, 5], [6]]
