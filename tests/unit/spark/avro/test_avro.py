"""Avro schemas as Spark types, and payloads as columns of them."""

from __future__ import annotations

import json
import sys
import uuid
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.util import PythonEvalType

from multilane import Avro
from multilane.errors import ConfigError
from multilane.spark.avro.decoding import decoder_of, decoding, spec_of
from multilane.spark.typed import struct_of

ITEM = {"type": "record", "name": "Item", "fields": [{"name": "name", "type": "string"}]}
EVERYTHING = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "count", "type": "int"},
        {"name": "paid", "type": "boolean"},
        {"name": "weight", "type": "float"},
        {"name": "price", "type": "double"},
        {"name": "raw", "type": "bytes"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["OPEN", "DONE"]}},
        {"name": "mark", "type": {"type": "fixed", "name": "Mark", "size": 2}},
        {"name": "first", "type": ["null", ITEM]},
        {"name": "items", "type": {"type": "array", "items": "Item"}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "long"]}},
        {"name": "wide", "type": ["int", "null", "long"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "exactly", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "here", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "sum", "type": {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}},
        {
            "name": "fee",
            "type": {"type": "fixed", "name": "Fee", "size": 8, "logicalType": "decimal", "precision": 4, "scale": 1},
        },
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "code", "type": {"type": "fixed", "name": "Code", "size": 16, "logicalType": "uuid"}},
        {"name": "clock", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "odd", "type": {"type": "string", "logicalType": "nobody-knows-it"}},
    ],
}
TYPES = (
    "struct<id:bigint,count:int,paid:boolean,weight:float,price:double,raw:binary,note:string,state:string,mark:binary,"
    "first:struct<name:string>,items:array<struct<name:string>>,tags:map<string,bigint>,wide:bigint,day:date,"
    "at:timestamp,exactly:timestamp,here:timestamp_ntz,sum:decimal(10,2),fee:decimal(4,1),key:string,code:string,"
    "clock:int,odd:string>"
)
KEY = uuid.UUID(int=7)
ORDER = {
    "id": 1,
    "count": 2,
    "paid": True,
    "weight": 0.5,
    "price": 1.25,
    "raw": b"\x00\xff",
    "note": None,
    "state": "DONE",
    "mark": b"ab",
    "first": {"name": "apple"},
    "items": [{"name": "pear"}, {"name": "fig"}],
    "tags": {"a": 1, "b": None},
    "wide": 2**40,
    "day": date(2026, 11, 16),
    "at": datetime(2026, 11, 16, 6, 30, 0, 5_000, tzinfo=UTC),
    "exactly": datetime(2026, 11, 16, 6, 30, 0, 5, tzinfo=UTC),
    "here": datetime(2026, 11, 16, 6, 30),
    "sum": Decimal("-12345678.90"),
    "fee": Decimal("123.4"),
    "key": str(KEY),
    "code": KEY.bytes,
    "clock": 5,
    "odd": "x",
}


def written(schema, value) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def decoded(avro: Avro, *payloads: bytes | None) -> list[tuple[object, str | None]]:
    found = decoder_of(spec_of(avro)).array(pa.array(payloads, pa.binary()))
    return list(zip(found.field(0).to_pylist(), found.field(1).to_pylist(), strict=True))


def read(avro: Avro, *payloads: bytes | None) -> list[object]:
    """An error goes with each payload that is null although its value is not, and only with those."""
    found = decoded(avro, *payloads)
    assert [error is not None for _, error in found] == [
        value is not None and payload is None for value, (payload, _) in zip(payloads, found, strict=True)
    ]
    return [payload for payload, _ in found]


def record(*fields, **more):
    return {"type": "record", "name": "R", "fields": [{"name": n, "type": t} for n, t in fields], **more}


NUMBER = record(("n", "int"))


def test_each_type():
    assert decoder_of(spec_of(Avro(EVERYTHING))).shape.spark.simpleString() == TYPES


def test_each_value():
    clock = (datetime.min + timedelta(milliseconds=ORDER["clock"])).time()
    found, nothing = read(Avro(EVERYTHING), written(EVERYTHING, ORDER | {"clock": clock}), None)
    assert nothing is None
    assert found == ORDER | {"tags": [("a", 1), ("b", None)], "code": str(KEY)}


def test_nulls_within():
    order = ORDER | {"first": None, "at": None, "items": [], "tags": {}, "wide": None, "clock": datetime.min.time()}
    [found] = read(Avro(EVERYTHING), written(EVERYTHING, order))
    assert [found[name] for name in ("first", "at", "items", "tags", "wide")] == [None, None, [], [], None]


def test_spark_knows_that_it_takes_arrays():
    assert decoding(Avro(NUMBER)).evalType == PythonEvalType.SQL_SCALAR_ARROW_UDF


def test_the_ways_to_give_a_schema(tmp_path):
    path = tmp_path / "number.avsc"
    path.write_text(json.dumps(NUMBER))
    payload = written(NUMBER, {"n": 3})
    for given_ in (NUMBER, json.dumps(NUMBER), path, str(path)):
        assert read(Avro(given_), payload) == [{"n": 3}]


def test_types_in_files_beside_it(tmp_path):
    (tmp_path / "shop.Item.avsc").write_text(json.dumps(ITEM | {"namespace": "shop"}))
    outer = record(("item", "shop.Item"), namespace="shop")
    (tmp_path / "shop.R.avsc").write_text(json.dumps(outer))
    whole = record(("item", ITEM | {"namespace": "shop"}), namespace="shop")
    payload = written(whole, {"item": {"name": "fig"}})
    assert read(Avro(tmp_path / "shop.R.avsc"), payload) == [{"item": {"name": "fig"}}]


def test_what_cannot_be_decoded_is_null():
    payload = written(NUMBER, {"n": 300})
    assert read(Avro(NUMBER), payload[:-1], payload + b"\0", b"", None, payload) == [None, None, None, None, {"n": 300}]


def test_what_no_column_holds_is_null_and_the_others_are_not():
    wide = record(("sum", {"type": "bytes", "logicalType": "decimal", "precision": 2}))
    plain = record(("sum", "bytes"))
    payloads = [written(plain, {"sum": n.to_bytes(2, "big", signed=True)}) for n in (99, 100, -99)]
    assert read(Avro(wide), *payloads) == [{"sum": Decimal(99)}, None, {"sum": Decimal(-99)}]
    far = record(("at", {"type": "long", "logicalType": "timestamp-millis"}))
    payloads = [written(record(("at", "long")), {"at": at}) for at in (0, 2**62)]
    assert read(Avro(far), *payloads) == [{"at": datetime(1970, 1, 1, tzinfo=UTC)}, None]


def test_from_the_writers_schema_to_the_readers():
    old = record(("n", "int"), ("gone", "string"))
    new = record(("n", "long"))
    new["fields"].append({"name": "more", "type": "string", "default": "none"})
    assert read(Avro(new, writer=old), written(old, {"n": 1, "gone": "x"})) == [{"n": 1, "more": "none"}]


def test_framed_payloads():
    payload = b"\0" + (7).to_bytes(4, "big") + written(NUMBER, {"n": 3})
    assert read(Avro(NUMBER, framing="confluent"), payload, payload[5:], b"\0\0") == [{"n": 3}, None, None]
    assert read(Avro(NUMBER), payload) == [None], "it has bytes left over"


def test_framed_payloads_by_the_ids_of_their_schemas():
    old, new = record(("n", "int"), ("gone", "string")), record(("n", "long"))
    avro = Avro(new, framing="confluent", writers={1: old, 2: new})
    payloads = [written(old, {"n": 1, "gone": "x"}), written(new, {"n": 2}), written(new, {"n": 3})]
    framed = [b"\0" + (number + 1).to_bytes(4, "big") + payload for number, payload in enumerate(payloads)]
    assert read(avro, *framed) == [{"n": 1}, {"n": 2}, None], "nobody said what schema 3 is"


@given(st.lists(st.none() | st.fixed_dictionaries({"n": st.lists(st.none() | st.integers(-(2**63), 2**63 - 1))})))
def test_what_was_written_is_read(rows):
    schema = record(("n", {"type": "array", "items": ["null", "long"]}))
    assert read(Avro(schema), *(None if row is None else written(schema, row) for row in rows)) == rows


@given(st.binary(max_size=60))
def test_whatever_the_bytes_are(payload):
    read(Avro(EVERYTHING), payload)
    read(Avro(EVERYTHING, framing="confluent"), payload)


LOOP = {"type": "record", "name": "Loop", "fields": [{"name": "next", "type": ["null", "Loop"]}]}
HUGE = {"type": "bytes", "logicalType": "decimal", "precision": 39}


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (record(("a", ["int", "string"])), r"the payload\.a is one of several types \(int, string\)"),
        (record(("a", "null")), r"the payload\.a is null, which has no Spark type"),
        (record(("a", {"type": "record", "name": "E", "fields": []})), "record without fields"),
        (LOOP, r"the payload\.next contains itself \(Loop\)"),
        (record(("a", HUGE)), "a decimal of 39 digits; Spark allows at most 38"),
        ({"type": "array", "items": "int"}, "the payload is array<int>: give an Avro schema of a record"),
        (record(("a", "no.such.Type")), "the Avro schema is not an Avro schema: UnknownType"),
        ({"type": "object"}, "is not an Avro schema"),
        ('{"type": ', "the Avro schema is not JSON"),
        ("no-such.avsc", r"there is no file no-such\.avsc"),
        (7, "give a dict, JSON text or the path"),
    ],
)
def test_what_is_refused(schema, said):
    with pytest.raises(ConfigError, match=said):
        spec_of(Avro(schema))


def test_a_broken_file_is_named(tmp_path):
    path = tmp_path / "broken.avsc"
    path.write_text("{")
    with pytest.raises(ConfigError, match=r"broken\.avsc"):
        spec_of(Avro(path))


@pytest.mark.parametrize(
    ("told", "said"),
    [
        ({"framing": "glue"}, "unknown framing='glue'"),
        ({"writers": {1: NUMBER}}, "set framing='confluent' too"),
        ({"writers": {"1": NUMBER}, "framing": "confluent"}, "schema ids are numbers"),
        ({"writers": {1: NUMBER}, "writer": NUMBER, "framing": "confluent"}, "give either `writer`"),
    ],
)
def test_what_does_not_go_together(told, said):
    with pytest.raises(ConfigError, match=said):
        Avro(NUMBER, **told)


def test_a_writers_schema_that_is_none():
    with pytest.raises(ConfigError, match="the writer's schema 4 is not an Avro schema"):
        spec_of(Avro(NUMBER, framing="confluent", writers={4: {"type": "x"}}))


def test_without_the_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(ConfigError, match=r'pip install "multilane\[avro\]"'):
        spec_of(Avro(NUMBER))


def test_a_schema_of_avro_is_said_to_be_one():
    with pytest.raises(ConfigError, match=r"multilane\.Avro"):
        struct_of(7)
