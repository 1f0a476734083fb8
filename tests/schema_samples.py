"""Schemas and messages that the tests of schema registries share."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

ITEM = {"type": "record", "name": "Item", "namespace": "shop", "fields": [{"name": "name", "type": "string"}]}
OLD = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "gone", "type": "string"}],
}
NEW = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "long"}, {"name": "item", "type": "string", "default": "none"}],
}
PROTO = """\
syntax = "proto3";
package shop; // message Hidden {
import "google/protobuf/timestamp.proto";
message Refund { int64 id = 1; message Part { int64 n = 1; } }
message Order {
  /* message Comment { */
  enum Colour { RED = 0; BLUE = 1; }
  message Item { string name = 1; }
  int64 id = 1;
  string item = 2;
  repeated Item items = 3;
  map<string, int64> tags = 4;
  optional string note = 5;
  google.protobuf.Timestamp placed = 6;
  Colour colour = 7;
}
"""
JSON_SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"id": {"type": "integer"}, "item": {"type": "string"}},
    "required": ["id"],
}


def avro(schema: Any, value: Any) -> bytes:
    out = BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def framed(number: int, content: bytes, size: int = 4) -> bytes:
    return b"\0" + number.to_bytes(size, "big") + content


def _classes() -> tuple[Any, Any]:
    """Classes as protoc generates them, made from the same descriptors."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append(timestamp_pb2.DESCRIPTOR.name)
    refund = file.message_type.add(name="Refund")
    refund.field.add(name="id", number=1, type=3, label=1)
    order = file.message_type.add(name="Order")
    colour = order.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    order.nested_type.add(name="Item").field.add(name="name", number=1, type=9, label=1)
    entry = order.nested_type.add(name="TagsEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=1)
    entry.field.add(name="value", number=2, type=3, label=1)
    order.field.add(name="id", number=1, type=3, label=1)
    order.field.add(name="item", number=2, type=9, label=1)
    order.field.add(name="items", number=3, type=11, label=3, type_name=".shop.Order.Item")
    order.field.add(name="tags", number=4, type=11, label=3, type_name=".shop.Order.TagsEntry")
    order.oneof_decl.add(name="_note")
    order.field.add(name="note", number=5, type=9, label=1, proto3_optional=True, oneof_index=0)
    order.field.add(name="placed", number=6, type=11, label=1, type_name=".google.protobuf.Timestamp")
    order.field.add(name="colour", number=7, type=14, label=1, type_name=".shop.Order.Colour")
    pool = descriptor_pool.Default()
    pool.Add(file)
    found = pool.FindFileByName("shop.proto").message_types_by_name
    return message_factory.GetMessageClass(found["Order"]), message_factory.GetMessageClass(found["Refund"])


OrderMessage, RefundMessage = _classes()
