"""A consumer's topic as typed rows of Avro, through Spark."""

from __future__ import annotations

import json
from datetime import date
from io import BytesIO

import fastavro
import pytest

from multilane import App, Avro

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long, pytest.mark.filterwarnings("ignore")]


def test_a_consumers_topic_as_typed_rows_of_avro(topic, fill, spark, kafka, tmp_path):
    name = topic(2)
    day = {"type": "int", "logicalType": "date"}
    fields = [
        {"name": "id", "type": "long"},
        {"name": "item", "type": ["null", "string"]},
        {"name": "day", "type": day},
    ]
    old = {"type": "record", "name": "Order", "fields": fields}
    new = old | {"fields": [*fields, {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}]}
    rows = [{"id": 1, "item": "fig", "day": date(2026, 1, 2)}, {"id": 2, "day": date(2026, 1, 3), "tags": ["a"]}]
    payloads = [_framed(number, schema, row) for number, schema, row in zip((7, 9), (old, new), rows, strict=True)]
    fill(name, [*((payload,) for payload in payloads), (b"no avro",), (None,)])
    settings = {
        "clusters": {"main": {"clientId": "x", "brokers": kafka.bootstrap()}},
        "consumers": {"orders": {"groupId": "g", "name": name, "cluster": "main", "offsetInitial": "oldest"}},
    }
    path, schema = tmp_path / "multilane.yaml", tmp_path / "order.avsc"
    path.write_text(json.dumps(settings))
    schema.write_text(json.dumps(new))
    avro = Avro(schema, framing="confluent", writers={7: old, 9: new})
    frame = App(path).stream("orders", avro, spark=spark)
    found = []
    query = (
        frame.select("payload", "payload.*", "offset")
        .where("payload is null or payload.id > 0")
        .writeStream.foreachBatch(lambda rows, number: found.extend(rows.collect()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert sorted((row.id or 0, row.item, str(row.day), row.tags or []) for row in found) == [
        (0, None, "None", []),
        (0, None, "None", []),
        (1, "fig", "2026-01-02", []),
        (2, None, "2026-01-03", ["a"]),
    ]
    assert [row.payload is None for row in found].count(True) == 2


def _framed(number: int, schema: dict, row: dict) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), row)
    return b"\0" + number.to_bytes(4, "big") + out.getvalue()
