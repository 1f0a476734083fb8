"""`format("multilane")` writing, on a real Spark and a real Kafka."""

from __future__ import annotations

import pytest

import multilane.spark
from multilane.client.consumer import Consumer

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

HEADERS = "array<struct<key:string,value:binary>>"


def read_all(kafka, topic):
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}) as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found = []
        while any(consumer.position(p) < end for p, end in ends.items()):
            found += consumer.poll(5.0).records()
        return found


def write(frame, kafka, **options):
    named = {"kafka.bootstrap.servers": kafka.bootstrap(), **options}
    frame.write.format("multilane").options(**named).mode("append").save()


def test_every_column(spark, kafka, topic):
    one, other = topic(2), topic(1)
    rows = [
        (b"k", b"v", one, 1, [("a", b"1"), ("a", None)]),
        (None, None, other, None, None),
        (b"", b"", other, 0, []),
    ]
    columns = f"key binary, value binary, topic string, partition int, headers {HEADERS}"
    write(spark.createDataFrame(rows, columns), kafka)
    (first,) = read_all(kafka, one)
    assert (first.partition, first.key, first.value) == (1, b"k", b"v")
    assert first.headers == (("a", b"1"), ("a", None))
    assert {(record.key, record.value) for record in read_all(kafka, other)} == {(None, None), (b"", b"")}


def test_a_topic_is_not_overwritten(spark, kafka, topic):
    name = topic(1)
    rows = spark.range(3).selectExpr("cast(id as string) as value")
    options = {"kafka.bootstrap.servers": kafka.bootstrap(), "topic": name}
    with pytest.raises(Exception, match="a Kafka topic cannot be overwritten"):
        rows.write.format("multilane").options(**options).mode("overwrite").save()
    assert read_all(kafka, name) == []
    multilane.spark.write(rows, {"bootstrap.servers": kafka.bootstrap()}, topic=name)
    assert sorted(record.value for record in read_all(kafka, name)) == [b"0", b"1", b"2"]


@pytest.mark.long
def test_text_and_one_topic_for_all(spark, kafka, topic):
    name = topic(3)
    columns = "cast(id as string) as value", "concat('k', id % 10) as key"
    write(spark.range(5_000).selectExpr(*columns), kafka, topic=name)
    found = read_all(kafka, name)
    assert sorted(int(record.value) for record in found) == list(range(5_000))
    places = {}
    for record in found:
        places.setdefault(record.key, set()).add(record.partition)
    assert all(len(partitions) == 1 for partitions in places.values()), "a key has one partition"


@pytest.mark.long
def test_a_stream_from_one_topic_to_another(spark, kafka, topic, fill, table, tmp_path):
    source, target = topic(2), topic(2)
    fill(source, [(b"%d" % n, b"k%d" % (n % 5)) for n in range(2_000)])
    frame = table(source, is_stream=True, startingOffsets="earliest", maxOffsetsPerTrigger=700)
    query = (
        frame.selectExpr("key", "cast(cast(value as string) as long) * 2 as doubled")
        .selectExpr("key", "cast(doubled as string) as value")
        .writeStream.format("multilane")
        .options(**{"kafka.bootstrap.servers": kafka.bootstrap(), "topic": target})
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sorted(int(record.value) for record in read_all(kafka, target)) == list(range(0, 4_000, 2))


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ("id as key", {"topic": "x"}, "needs a column `value`"),
        ("cast(id as string) as value", {}, "set the option topic, or add a column `topic`"),
        ("id as value", {"topic": "x"}, "column `value` is bigint, but must be string or binary"),
        ("cast(id as string) as value, cast(id as string) as headers", {"topic": "x"}, "`headers` is string"),
        ("cast(id as string) as value, cast(null as string) as topic", {}, "has no topic"),
        ("cast(id as string) as value", {"topic": "x", "kafka.acks": "some"}, "acks"),
        ("cast(id as string) as value", {"topik": "x"}, "did you mean topic"),
    ],
)
def test_what_is_wrong_is_reported(spark, kafka, columns, options, said):
    with pytest.raises(Exception, match=said):
        write(spark.range(3).selectExpr(*columns.split(", ")), kafka, **options)


def test_a_task_ends_when_its_records_are_stored_or_fails(spark, kafka):
    with pytest.raises(Exception, match="there-is-no-such-topic"):
        write(
            spark.range(3).selectExpr("cast(id as string) as value"),
            kafka,
            topic="there-is-no-such-topic",
            **{"kafka.delivery.timeout.ms": "3000", "kafka.request.timeout.ms": "1000", "kafka.max.block.ms": "3000"},
        )
