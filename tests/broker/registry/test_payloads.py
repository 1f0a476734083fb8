"""Payloads as functions annotate them, with a real registry, from the bytes of the producers' own serialisers."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import BaseModel

import apicurio
import schema_samples as samples
from lane_world import record_of
from multilane import Avro, JsonSchema, Protobuf
from multilane.config.app.registry import SchemaRegistryConfig
from multilane.errors import ConfigError, RegistryUnavailable, UndecodablePayload
from multilane.lanes.threads import Threads
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import Listener
from multilane.listeners.payload import decoder_for
from multilane.listeners.signature import read_signature
from multilane.listeners.window import Window
from multilane.registry.schema_registry import SchemaRegistry

pytestmark = [pytest.mark.broker]


class Order(BaseModel):
    id: int
    item: str = "?"


class Placed(Order):
    placed: datetime
    tags: dict[str, int]
    note: str | None


@dataclass
class Plain:
    id: int
    item: str


class Struct(msgspec.Struct):
    id: int
    item: str


def registry_at(url: str, **settings: Any) -> SchemaRegistry:
    return SchemaRegistry(SchemaRegistryConfig(url=url, **settings))


def record(value: bytes | None, offset: int = 0, headers: tuple = ()) -> Any:
    return record_of("a", offset, headers=headers)._replace(value=value)


async def decoded(annotation: Any, schemas: SchemaRegistry, *records: Any) -> list[Any]:
    """What a function with this annotation gets; an error for a record that fails."""
    decode = decoder_for(annotation, schemas)
    await decode.fetch(decode.missing(records))
    found: list[Any] = []
    for one in records:
        try:
            found.append(decode(one))
        except (UndecodablePayload, RegistryUnavailable) as error:
            found.append(str(error))
    return found


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Annotated[dict, Avro], {"id": 1, "item": "fig"}),
        (Annotated[dict[str, Any], Avro()], {"id": 1, "item": "fig"}),
        (Annotated[Order, Avro()], Order(id=1, item="fig")),
        (Annotated[Plain, Avro()], Plain(1, "fig")),
        (Annotated[Struct, Avro()], Struct(1, "fig")),
        (Annotated[Order | None, Avro()], Order(id=1, item="fig")),
        (Annotated[Order, Avro()] | None, Order(id=1, item="fig")),
    ],
)
async def test_the_types_that_a_function_may_ask_for(scripted, wanted, expected):
    number = scripted.register("orders-value", samples.NEW)
    value = samples.framed(number, samples.avro(samples.NEW, {"id": 1, "item": "fig"}))
    found = await decoded(wanted, registry_at(scripted.url), record(value), record(value, 1), record(None, 2))
    assert found[:2] == [expected, expected]
    assert (found[2] is None) == ("| None" in str(wanted) or "Optional" in str(wanted))
    assert scripted.requests == [f"/schemas/ids/{number}"], "it is asked for once"


async def test_avro_without_a_registry(scripted):
    plain, framed = Annotated[Order, Avro(samples.NEW)], Annotated[Order, Avro(samples.NEW, framing="confluent")]
    value = samples.avro(samples.NEW, {"id": 1, "item": "fig"})
    for annotation, content in ((plain, value), (framed, samples.framed(7, value))):
        decode = decoder_for(annotation)
        assert decode(record(content)) == Order(id=1, item="fig")
        assert not decode.missing([record(content)])
        with pytest.raises(UndecodablePayload):
            decode(record(b"{}"))
    old = decoder_for(Annotated[Order, Avro(samples.NEW, framing="confluent", writers={3: samples.OLD})])
    assert old(record(samples.framed(3, samples.avro(samples.OLD, {"id": 1, "gone": "x"})))) == Order(id=1, item="none")
    with pytest.raises(UndecodablePayload, match="id 4, which `writers` does not have"):
        old(record(samples.framed(4, value)))


async def test_avro_of_the_serialiser_of_producers(registry):
    api = f"{registry}/apis/ccompat/v7"
    context = SerializationContext("payloads.avro", MessageField.VALUE)
    with SchemaRegistryClient({"url": api}) as client:
        serialise = AvroSerializer(client, json.dumps(samples.NEW))
        value = serialise({"id": 1, "item": "fig"}, context)
    assert await decoded(Annotated[Order, Avro()], registry_at(api), record(value)) == [Order(id=1, item="fig")]


async def test_protobuf_of_the_serialiser_of_producers(registry):
    api = f"{registry}/apis/ccompat/v7"
    message = samples.OrderMessage(id=1, item="fig", tags={"a": 1})
    message.placed.seconds = 60
    context = SerializationContext("payloads.proto", MessageField.VALUE)
    with SchemaRegistryClient({"url": api}) as client:
        conf = {"use.deprecated.format": False, "skip.known.types": True}
        value = ProtobufSerializer(samples.OrderMessage, client, conf)(message, context)
    as_model = Annotated[Placed, Protobuf(samples.OrderMessage)]
    placed = datetime(1970, 1, 1, 0, 1, tzinfo=UTC)
    schemas = registry_at(api)
    assert await decoded(as_model, schemas, record(value)) == [
        Placed(id=1, item="fig", placed=placed, tags={"a": 1}, note=None)
    ]
    assert await decoded(Annotated[samples.OrderMessage, Protobuf(samples.OrderMessage)], schemas, record(value)) == [
        message
    ]
    number = apicurio.register(registry, "payloads.text", samples.PROTO, "PROTOBUF")
    values = [samples.framed(number, index + message.SerializeToString()) for index in (b"\x02\x02", b"\0")]
    found = await decoded(as_model, schemas, *map(record, values))
    assert found[0].item == "fig"
    assert "is a shop.Refund" in found[1]


async def test_json_by_apicurios_own_ids_in_the_payload_and_in_headers(registry):
    apicurio.register(registry, "payloads.own-value", samples.JSON_SCHEMA, "JSON")
    number = apicurio.global_id(registry, "payloads.own-value")
    good, bad, wrong = (samples.framed(number, value, 8) for value in (b'{"id": 1}', b'{"item": "x"}', b'{"id": "x"}'))
    headers = (("apicurio.value.globalId", number.to_bytes(8, "big")),)
    schemas = registry_at(f"{registry}/apis/registry/v3", wire_format="apicurio")
    records = [record(good), record(bad), record(b'{"id": 2, "item": "fig"}', 2, headers), record(wrong)]
    found = await decoded(Annotated[Order, JsonSchema()], schemas, *records)
    assert (found[0], found[2]) == (Order(id=1), Order(id=2, item="fig"))
    assert '"id" is a required property' in found[1]
    assert "id: " in found[3]
    unchecked = await decoded(Annotated[Order, JsonSchema(validate=False)], schemas, record(wrong))
    assert "is not a valid Order: id: " in unchecked[0]


async def test_a_batch_keeps_what_can_be_decoded(scripted):
    number = scripted.register("orders-value", samples.NEW)
    good = samples.framed(number, samples.avro(samples.NEW, {"id": 1, "item": "fig"}))
    found: list[Any] = []

    async def handle(orders: Annotated[list[Order], Avro()]) -> None:
        found.extend(orders)

    signature = read_signature(handle)
    signature = replace(signature, payload=decoder_for(signature.payload, registry_at(scripted.url)))
    listener = Listener(handle, signature, Window(3, 1.0), InterceptorChain("g", span="s"), Threads("lane"))
    records = [record(good), record(b"{}", 1), record(samples.framed(99, b""), 2), record(good, 3)]
    failures = await listener.call_many(records)
    assert found == [Order(id=1, item="fig")] * 2
    assert {one.offset: type(error).__name__ for one, error in failures.items()} == {
        1: "UndecodablePayload",
        2: "UnknownSchema",
    }


async def test_calls_that_miss_the_same_schema_share_a_request_and_one_that_hangs_ends(scripted):
    number = scripted.register("orders-value", samples.NEW)
    value = samples.framed(number, samples.avro(samples.NEW, {"id": 1, "item": "fig"}))
    schemas = registry_at(scripted.url, timeout=0.3)
    scripted.failure = "hang"
    decode = decoder_for(Annotated[Order, Avro()], schemas)
    await asyncio.gather(*(decode.fetch(decode.missing([record(value)])) for _ in range(20)))
    assert len(scripted.requests) == 1
    with pytest.raises(RegistryUnavailable, match=r"did not answer"):
        decode(record(value))


@pytest.mark.parametrize(
    ("annotation", "said"),
    [
        (Annotated[bytes, Avro()], "bytes takes the value as it is"),
        (Annotated[Order, Avro(), JsonSchema()], "2 formats"),
        (Annotated[Order, Avro()], "Order needs a schema registry"),
    ],
)
def test_what_is_refused(annotation, said):
    with pytest.raises(ConfigError, match=said):
        decoder_for(annotation)
