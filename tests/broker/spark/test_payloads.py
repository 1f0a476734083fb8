"""Payloads as columns, through Spark: what cannot be read is an error beside a null, never nulls within."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

import pytest
from pydantic import BaseModel
from pyspark.sql.types import LongType, StructField, StructType

import schema_samples as samples
from multilane import App, Avro, JsonSchema, Protobuf
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.registry import SchemaRegistryConfig
from multilane.engines.dataframe.lineage import keeps_order, plan_of
from multilane.errors import ConfigError
from multilane.secret import Secret
from multilane.spark.json_payload import NOT_JSON
from multilane.spark.typed import with_payload
from registry_server import RegistryServer

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

PASSWORD = os.environ["PATH"]  # a variable that the workers of a Spark that runs already have


class Line(BaseModel):
    sku: str
    count: int = 1


class Order(BaseModel):
    id: int
    item: str | None = None
    at: datetime | None = None
    first: Line | None = None
    lines: list[Line] = []
    by_name: dict[str, Line] = {}


@dataclass
class Plain:
    id: int
    item: str = ""


def frame_of(spark, *values: bytes | None):
    rows = [(value, "orders", 0, number) for number, value in enumerate(values)]
    return spark.createDataFrame(rows, "value binary, topic string, partition int, offset bigint")


CASES = [
    (b'{"id": 1, "item": "fig", "more": 1}', None),
    (b'{"id": 2, "first": {"sku": "a"}, "lines": [{"sku": "b"}], "by_name": {"x": {"sku": "c"}}}', None),
    (None, None),
    (b'{"id": "x"}', NOT_JSON),
    (b'{"id": 1.5}', NOT_JSON),
    (b'{"id": 1, "at": "yesterday"}', NOT_JSON),
    (b'{"id": 1, "lines": [{"sku": "a", "count": "x"}]}', NOT_JSON),
    (b"no json", NOT_JSON),
    (b"", NOT_JSON),
    (b"null", NOT_JSON),
    (b"[]", NOT_JSON),
    (b'{"id": 1, "item": "\xff"}', "the value is not UTF-8"),
    (b"{}", "id is missing or null"),
    (b'{"id": null}', "id is missing or null"),
    (b'{"id": 1, "first": {}}', "first.sku is missing or null"),
    (b'{"id": 1, "lines": [{"sku": "a"}, {}]}', "an item of lines.sku is missing or null"),
    (b'{"id": 1, "by_name": {"x": {}}}', "a value of by_name.sku is missing or null"),
]


def test_json_that_does_not_fit_its_model_is_an_error_and_no_struct_of_nulls(spark):
    frame = with_payload(frame_of(spark, *(value for value, _ in CASES)), Order)
    assert frame.columns == ["value", "topic", "partition", "offset", "payload", "payload_error"]
    found = frame.orderBy("offset").collect()
    assert [row.payload_error for row in found] == [error for _, error in CASES]
    assert [row.offset for row in found if row.payload is None] == list(range(2, len(CASES)))
    assert found[0].payload.item == "fig"
    assert found[1].payload.lines[0].sku == "b"
    assert frame.where("payload.id > 0").count() == 2


@pytest.mark.parametrize(
    "model",
    [
        Plain,
        StructType([StructField("id", LongType(), nullable=False)]),
        {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
    ],
)
def test_other_models(spark, model):
    found = with_payload(frame_of(spark, b'{"id": 1}', b"{}", b"x"), model).orderBy("offset").collect()
    assert [row.payload and row.payload.id for row in found] == [1, None, None]
    assert [row.payload_error for row in found] == [None, "id is missing or null", NOT_JSON]


def test_json_behind_a_schema_id(spark):
    cluster = ClusterConfig(
        name="main", client_id="x", brokers="a:1", schema_registry=SchemaRegistryConfig(url="http://localhost:9")
    )
    frame = frame_of(spark, samples.framed(7, b'{"id": 1}'), samples.framed(7, b"{}"), b'.....{"id": 1}', b"", None)
    found = with_payload(frame, Annotated[Plain, JsonSchema(validate=False)], cluster).orderBy("offset").collect()
    no_frame = "the value does not begin with a zero byte and a schema id of 4 bytes"
    assert [row.payload_error for row in found] == [None, "id is missing or null", no_frame, no_frame, None]
    assert [row.payload and row.payload.id for row in found] == [1, None, None, None, None]
    for model, said in ((Annotated[Plain, JsonSchema()], "validate=False"), (Annotated[Plain, Avro()], "by itself")):
        with pytest.raises(ConfigError, match=said):
            with_payload(frame, model, cluster)


def test_avro_by_a_registry_whose_password_no_plan_has(spark):
    with RegistryServer(login=("u", PASSWORD)) as server:
        old = server.register("orders-value", samples.OLD)
        new = server.register("orders-value", samples.NEW)
        other = server.register("other-value", samples.JSON_SCHEMA, "JSON")
        values = [
            samples.framed(old, samples.avro(samples.OLD, {"id": 1, "gone": "x"})),
            samples.framed(new, samples.avro(samples.NEW, {"id": 2, "item": "fig"})),
            samples.framed(other, b"{}"),
            samples.framed(99, b""),
            b"{}",
            None,
        ]
        password = Secret(PASSWORD, "${PATH}")
        registry = SchemaRegistryConfig(url=server.url, username="u", password=password)
        cluster = ClusterConfig(name="main", client_id="x", brokers="a:1", schema_registry=registry)
        frame = with_payload(frame_of(spark, *values), Avro(), cluster, "orders")
        assert frame.schema["payload"].dataType.simpleString() == "struct<id:bigint,item:string>"
        found = frame.orderBy("offset").collect()
        asked = server.requests.copy()
        plan = frame._jdf.queryExecution().toString()
    assert [row.payload and tuple(row.payload) for row in found] == [(1, "none"), (2, "fig"), None, None, None, None]
    said = [None, None, "which is JSON, not AVRO", "has no id 99", "does not begin with a zero byte|too short", None]
    for row, words in zip(found, said, strict=True):
        assert (row.payload_error is None) == (words is None)
        assert words is None or any(one in row.payload_error for one in words.split("|"))
    assert len(asked) <= 9, "once for each worker"
    assert PASSWORD not in plan


def test_protobuf_by_a_registry(spark):
    order = samples.OrderMessage(id=1, item="fig", items=[{"name": "a"}], tags={"x": 2}, colour="BLUE")
    order.placed.seconds = 60
    with RegistryServer() as server:
        number = server.register("orders-value", samples.PROTO, "PROTOBUF")
        registry = SchemaRegistryConfig(url=server.url)
        cluster = ClusterConfig(name="main", client_id="x", brokers="a:1", schema_registry=registry)
        contents = (b"\x02\x02" + order.SerializeToString(), b"\x02\x02", b"\0", b"\x02\x02\xff")
        values = [samples.framed(number, content) for content in contents]
        frame = with_payload(frame_of(spark, *values), Protobuf(samples.OrderMessage), cluster)
        found = frame.orderBy("offset").collect()
    assert frame.schema["payload"].dataType.simpleString() == (
        "struct<id:bigint,item:string,items:array<struct<name:string>>,tags:map<string,bigint>,note:string,"
        "placed:timestamp,colour:string>"
    )
    first = found[0].payload
    assert (first.id, first.items[0].name, first.tags, first.note, first.colour) == (1, "a", {"x": 2}, None, "BLUE")
    assert first.placed.timestamp() == 60
    assert (found[1].payload.id, found[1].payload_error) == (0, None), "every field has its default"
    assert [row.payload for row in found[2:]] == [None, None]
    assert "is a shop.Refund" in found[2].payload_error
    assert "not a valid shop.Order" in found[3].payload_error


def test_a_registry_that_is_down_fails_the_query_with_the_records_place(spark, monkeypatch):
    from multilane.spark import decoding

    monkeypatch.setattr(decoding, "PATIENCE", 0.5)
    with RegistryServer() as server:
        number = server.register("orders-value", samples.NEW)
        server.failure = 503
        registry = SchemaRegistryConfig(url=server.url, timeout=1.0)
        cluster = ClusterConfig(name="main", client_id="x", brokers="a:1", schema_registry=registry)
        value = samples.framed(number, samples.avro(samples.NEW, {"id": 1, "item": "x"}))
        frame = with_payload(frame_of(spark, None, value), Avro(samples.NEW, framing="registry"), cluster, "orders")
        with pytest.raises(Exception, match=r"orders-0@1 cannot be decoded, .*answered HTTP 503"):
            frame.collect()


def test_a_consumers_topic_as_a_table(topic, fill, spark, kafka, tmp_path):
    name = topic(2)
    fill(name, [(b'{"id": %d}' % number, b"k", (), number % 2) for number in range(6)] + [(b"{}", b"k", (), 0)])
    settings = {
        "clusters": {"main": {"clientId": "x", "brokers": kafka.bootstrap()}},
        "consumers": {"orders": {"groupId": "g", "name": name, "cluster": "main", "offsetInitial": "newest"}},
    }
    path = tmp_path / "multilane.yaml"
    path.write_text(json.dumps(settings))
    app = App(path)
    whole = app.table("orders", Plain, spark=spark)
    assert not whole.isStreaming
    for frame in (
        whole,
        app.stream("orders", Plain, spark=spark),
        app.stream("orders", Avro(samples.NEW), spark=spark),
    ):
        plan = plan_of(frame)
        assert plan is not None
        assert keeps_order(plan), "lanes need no shuffle"
    rows = whole.collect()
    assert sorted(row.payload.id for row in rows if row.payload) == list(range(6))
    assert [row.payload_error for row in rows if row.payload is None] == ["id is missing or null"]
    ranges = {
        "startingOffsets": json.dumps({name: {"0": 1, "1": 0}}),
        "endingOffsets": json.dumps({name: {"0": 2, "1": 1}}),
    }
    assert sorted(row.payload.id for row in app.table("orders", Plain, spark=spark, **ranges).collect()) == [1, 2]
    middle = datetime.fromtimestamp(max(row.timestamp.timestamp() for row in rows) + 1, UTC)
    assert app.table("orders", since=middle, spark=spark).count() == 0
