"""Schemas are asked for once; what failed is not asked for by everybody who waits."""

from __future__ import annotations

import pytest

from multilane.clock import ManualClock
from multilane.config.app.registry import SchemaRegistryConfig
from multilane.errors import RegistryUnavailable, UnknownSchema
from multilane.registry import schema_registry
from multilane.registry.answers import AVRO, WriterSchema
from multilane.registry.framing import SchemaId
from multilane.registry.schema_registry import REMEMBERED, REST, SchemaRegistry

CONFIG = SchemaRegistryConfig(url="http://localhost:1")


class Api:
    def __init__(self) -> None:
        self.asked: list[int] = []
        self.failure: Exception | None = None

    def schema(self, wanted: SchemaId) -> WriterSchema:
        self.asked.append(wanted.number)
        if self.failure is not None:
            raise self.failure
        return WriterSchema(f"schema {wanted}", AVRO, "{}")


@pytest.fixture
def world():
    clock, api = ManualClock(), Api()
    return clock, api, SchemaRegistry(CONFIG, clock, api)


def schema_id(number: int) -> SchemaId:
    return SchemaId("id", number)


def test_a_schema_is_asked_for_once(world):
    _, api, registry = world
    assert registry.known(schema_id(7)) is None
    assert registry.schema(schema_id(7)) is registry.schema(schema_id(7)) is registry.known(schema_id(7))
    assert api.asked == [7]


def test_an_unknown_id_is_remembered_for_a_while(world):
    clock, api, registry = world
    api.failure = UnknownSchema("no 7")
    for _ in range(3):
        with pytest.raises(UnknownSchema, match="no 7"):
            registry.schema(schema_id(7))
    with pytest.raises(UnknownSchema):
        registry.known(schema_id(7))
    assert api.asked == [7]
    api.failure = None
    clock.advance(REMEMBERED)
    assert registry.schema(schema_id(7)).name == "schema id 7"


def test_a_registry_that_is_down_rests(world):
    clock, api, registry = world
    api.failure = RegistryUnavailable("down")
    for number in (7, 8, 9):
        with pytest.raises(RegistryUnavailable, match="down"):
            registry.schema(schema_id(number))
    assert api.asked == [7]
    api.failure = None
    clock.advance(REST)
    registry.schema(schema_id(8))
    registry.schema(schema_id(9))
    assert api.asked == [7, 8, 9]


def test_the_oldest_make_room(world, monkeypatch):
    _, _, registry = world
    monkeypatch.setattr(schema_registry, "MOST_SCHEMAS", 3)
    for number in range(5):
        registry.schema(schema_id(number))
    assert [registry.known(schema_id(n)) is not None for n in range(5)] == [False, False, True, True, True]
