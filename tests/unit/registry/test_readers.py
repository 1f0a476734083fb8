"""Payloads by the schema that they were written with."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

import schema_samples as samples
from multilane.errors import UndecodablePayload
from multilane.registry.answers import AVRO, JSON, PROTOBUF, WriterSchema
from multilane.registry.avro_reader import AvroReader
from multilane.registry.formats import Avro
from multilane.registry.json_reader import json_checker
from multilane.registry.protobuf_reader import message_reader, messages_of, plain

SECRET = "a very private thing"


def avro_schema(schema, *references) -> WriterSchema:
    return WriterSchema("schema id 7", AVRO, json.dumps(schema), tuple((r["name"], json.dumps(r)) for r in references))


def test_avro_as_it_was_written_and_as_the_reader_wants_it():
    value = samples.avro(samples.OLD, {"id": 1, "gone": "x"})
    assert AvroReader(Avro()).reader(avro_schema(samples.OLD))(b"....." + value, 5) == {"id": 1, "gone": "x"}
    assert AvroReader(Avro(samples.NEW)).given(Avro(samples.NEW, writer=samples.OLD))(None)(value, 0) == {
        "id": 1,
        "item": "none",
    }
    reader = AvroReader(Avro(samples.NEW, framing="registry"))
    assert reader.reader(avro_schema(samples.OLD))(value, 0) == {"id": 1, "item": "none"}


def test_avro_with_types_of_other_schemas():
    outer = samples.OLD | {"fields": [{"name": "item", "type": "shop.Item"}]}
    whole = samples.OLD | {"fields": [{"name": "item", "type": samples.ITEM}]}
    value = samples.avro(whole, {"item": {"name": "fig"}})
    assert AvroReader(Avro()).reader(avro_schema(outer, samples.ITEM))(value, 0) == {"item": {"name": "fig"}}
    with pytest.raises(UndecodablePayload, match=r"schema id 7 is not an Avro schema.*shop\.Item"):
        AvroReader(Avro()).reader(avro_schema(outer))


def test_avro_that_cannot_be_read():
    wide = samples.NEW | {"fields": [{"name": "id", "type": "string"}]}
    read = AvroReader(Avro(wide, framing="registry")).reader(avro_schema(samples.OLD))
    with pytest.raises(UndecodablePayload, match="written with schema id 7, which is not readable as the reader's: "):
        read(samples.avro(samples.OLD, {"id": 1, "gone": SECRET}), 0)
    read = AvroReader(Avro()).reader(avro_schema(samples.OLD))
    value = samples.avro(samples.OLD, {"id": 1, "gone": SECRET})
    with pytest.raises(UndecodablePayload, match=r"not valid Avro of schema id 7 \(EOFError\)"):
        read(value[:-1], 0)
    with pytest.raises(UndecodablePayload, match="2 bytes are left over"):
        read(value + b"xx", 0)


@given(st.binary(max_size=60))
def test_whatever_the_bytes_are(value):
    for read in (
        AvroReader(Avro()).reader(avro_schema(samples.OLD)),
        message_reader(samples.OrderMessage, WriterSchema("s", PROTOBUF, samples.PROTO)),
    ):
        with suppress(UndecodablePayload):
            read(value, 0)


def test_the_messages_of_a_proto_file():
    assert dict(messages_of(samples.PROTO)) == {
        (0,): "shop.Refund",
        (0, 0): "shop.Refund.Part",
        (1,): "shop.Order",
        (1, 0): "shop.Order.Item",
    }
    content = samples.OrderMessage.DESCRIPTOR.file.serialized_pb
    compiled = dict(messages_of(base64.b64encode(content).decode()))
    assert compiled[(0,)] == "shop.Refund"
    assert compiled[(1, 0)] == "shop.Order.Item"
    nameless = 'syntax = "proto3"; option (x) = { message: "a" }; service S { rpc M (A) returns (B) { } } message A {}'
    assert dict(messages_of(nameless)) == {(0,): "A"}


def test_messages():
    schema = WriterSchema("schema id 7", PROTOBUF, samples.PROTO)
    order = samples.OrderMessage(id=1, item="fig", items=[{"name": "a"}], tags={"x": 2}, colour="BLUE")
    order.placed.seconds = 60
    read = message_reader(samples.OrderMessage, schema)
    found = read(b"\x02\x02" + order.SerializeToString(), 0)
    assert found == order
    assert plain(found) == {
        "id": 1,
        "item": "fig",
        "items": [{"name": "a"}],
        "tags": {"x": 2},
        "note": None,
        "placed": datetime(1970, 1, 1, 0, 1, tzinfo=UTC),
        "colour": "BLUE",
    }
    with pytest.raises(UndecodablePayload, match=r"is a shop\.Refund of schema id 7, but a shop\.Order is expected"):
        read(b"\0" + samples.RefundMessage(id=1).SerializeToString(), 0)
    with pytest.raises(UndecodablePayload, match=r"no message of that schema \(indexes \[9\]\)"):
        read(b"\x02\x12", 0)
    with pytest.raises(UndecodablePayload, match=r"not a valid shop\.Order \(DecodeError\)"):
        read(b"\x02\x02\xff\xff", 0)


def test_json_by_its_schema():
    check = json_checker(WriterSchema("schema id 7", JSON, json.dumps(samples.JSON_SCHEMA)))
    check(b'{"id": 1}')
    for value, said in (
        (f'{{"id": "{SECRET}"}}'.encode(), 'does not fit schema id 7: id: ... is not of type "integer"'),
        (b"{}", '"id" is a required property'),
        (b"{", "not valid JSON"),
    ):
        with pytest.raises(UndecodablePayload) as caught:
            check(value)
        assert said in str(caught.value)
        assert SECRET not in str(caught.value)


def test_json_schemas_that_refer_to_others():
    outer = {"type": "object", "properties": {"item": {"$ref": "item.json"}}}
    item = ("item.json", json.dumps({"type": "string"}))
    check = json_checker(WriterSchema("s", JSON, json.dumps(outer), (item,)))
    check(b'{"item": "x"}')
    with pytest.raises(UndecodablePayload, match="item: "):
        check(b'{"item": 1}')
    with pytest.raises(UndecodablePayload, match="is not a JSON Schema"):
        json_checker(WriterSchema("s", JSON, json.dumps(outer)))
