"""Listeners with payloads by schema registry: a real Kafka, a real registry, the producers' own serialisers."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from pydantic import BaseModel

import apicurio
import schema_samples as samples
from broker.app.conftest import Shop, running
from lane_world import until
from multilane import Avro
from multilane.client.produce.producer import Producer
from multilane.errors import ConfigError
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]


class Order(BaseModel):
    id: int
    item: str = "?"


@pytest.fixture
def shop(kafka, topic, tmp_path) -> Shop:
    return Shop(kafka.bootstrap(), topic, tmp_path)


def send(shop: Shop, *values: bytes | None, headers: tuple = ()) -> str:
    shop.main = shop.make_topic(1)
    with Producer({"bootstrap.servers": shop.bootstrap}) as producer:
        for number, value in enumerate(values):
            producer.send(shop.main, value, b"%d" % number, headers=headers)
        producer.flush(30)
    return shop.main


async def handled(shop: Shop, app: Any, records: int) -> None:
    """Runs until so many records are settled."""
    async with running(app) as task:
        await until(lambda: sum(shop.committed().values()) >= records or task.done(), 60)
    await task


async def test_avro_of_several_schemas_and_what_is_not_avro(shop, registry):
    api = f"{registry}/apis/ccompat/v7"
    context = SerializationContext("listener.avro", MessageField.VALUE)
    with SchemaRegistryClient({"url": api}) as client:
        old, new = (
            AvroSerializer(client, json.dumps(schema), conf={"auto.register.schemas": True})
            for schema in (samples.OLD, samples.NEW)
        )
        first = old({"id": 1, "gone": "x"}, context)
        second = new({"id": 2, "item": "fig"}, context)
    other = apicurio.register(registry, "listener.other", samples.ITEM)
    json_id = apicurio.register(registry, "listener.json", samples.JSON_SCHEMA, "JSON")
    bad = [
        samples.framed(other, samples.avro(samples.ITEM, {"name": "x"})),
        samples.framed(json_id, b"{}"),
        samples.framed(9999, b"x"),
        b'{"id": 1}',
        second[:-1],
    ]
    send(shop, first, second, *bad)
    error, retry = shop.make_topic(1), shop.make_topic(1)
    app = shop.app(error=error, retry=retry, retryCount=3, cluster={"schemaRegistry": {"url": api}})
    found: list[Any] = []

    @app.listener("orders")
    async def handle(order: Annotated[Order, Avro(samples.NEW, framing="registry")], record: Record) -> None:
        found.append(order)

    await handled(shop, app, 2 + len(bad))
    assert sorted(found, key=lambda one: one.id) == [Order(id=1, item="none"), Order(id=2, item="fig")]
    said = {r.value: dict(r.headers)["X-ErrorMessage"].decode() for r in shop.read_all(error)}
    assert said.keys() == set(bad)
    for value, words in zip(
        bad,
        ("not readable as the reader's", "JSON, not AVRO", "has no id 9999", "zero byte", "not valid Avro"),
        strict=True,
    ):
        assert words in said[value]
    assert shop.read_all(retry) == []


@pytest.mark.parametrize(("failure", "batch"), [(503, 1), ("drop", 3)])
async def test_while_the_registry_is_down_records_stay_in_place(shop, scripted, failure, batch, caplog):
    """Each used up its attempts at once, and went to the error topic."""
    number = scripted.register("orders-value", samples.NEW)
    send(shop, *(samples.framed(number, samples.avro(samples.NEW, {"id": n, "item": "x"})) for n in range(8)))
    error, retry = shop.make_topic(1), shop.make_topic(1)
    breaker = {"errorBreaker": {"action": "off"}} if batch == 1 else {}
    window = {"batchSize": batch, "consumeBatchListenerLatency": "50ms"} if batch > 1 else {}
    settings = {"url": scripted.url, "timeout": "1s"}
    app = shop.app(error=error, retry=retry, retryCount=1, cluster={"schemaRegistry": settings}, **breaker, **window)
    found: list[int] = []
    scripted.failure = failure

    async def one(order: Annotated[Order, Avro()]) -> None:
        found.append(order.id)

    async def several(orders: list[Annotated[Order, Avro()]]) -> None:
        found.extend(order.id for order in orders)

    app.listener("orders")(one if batch == 1 else several)
    async with running(app) as task:
        await until(lambda: len(scripted.requests) >= 3 or task.done(), 60)
        assert (found, sum(shop.committed().values())) == ([], 0)
        scripted.failure = None
        await until(lambda: sum(shop.committed().values()) >= 8 or task.done(), 60)
    await task
    assert sorted(found) == list(range(8))
    assert shop.read_all(error) + shop.read_all(retry) == []
    assert "RegistryUnavailable: the schema registry at" in caplog.text
    assert f"{shop.main}-0@" in caplog.text


def test_a_function_that_needs_a_registry_is_refused_without_one(shop):
    shop.main = "orders"
    app = shop.app()

    async def handle(order: Annotated[Order, Avro()]) -> None: ...

    with pytest.raises(ConfigError, match=r"handle \(.*: Avro needs a schema registry: add schemaRegistry to the clus"):
        app.listener("orders")(handle)
