"""Avro payloads of a column: the spec that workers get, and the readers that they make from it.

Thread: the worker's own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from pyspark.sql import Column

from multilane.errors import ConfigError, UndecodablePayload
from multilane.registry.answers import AVRO, WriterSchema
from multilane.registry.avro_reader import AvroReader
from multilane.registry.avro_schemas import parsed, plain, text_of
from multilane.registry.formats import Avro
from multilane.registry.framing import Read
from multilane.spark.avro.columns import Struct
from multilane.spark.avro.shapes import shape_of
from multilane.spark.decoding import AskedRegistry, Decoder, payload_udf


@dataclass(frozen=True, slots=True)
class AvroSpec:
    """Schemas as JSON text."""

    reader: str
    writer: str
    writers: tuple[tuple[int, str], ...] | None
    is_framed: bool
    asked: AskedRegistry | None = None


def spec_of(avro: Avro, asked: AskedRegistry | None = None, newest: str | None = None) -> AvroSpec:
    """Reads the files and checks everything in the driver, where the user sees errors. `newest`: the reader's schema,
    if the user gives none."""
    if avro.needs_registry and asked is None:
        raise ConfigError("Avro needs a schema registry: add schemaRegistry to the consumer's cluster")
    reader = text_of(newest if avro.schema is None else avro.schema, "the Avro schema")
    writer = reader if avro.writer is None else text_of(avro.writer, "the writer's schema")
    writers = None
    if avro.writers is not None:
        sorted_writers = sorted(avro.writers.items())
        writers = tuple((number, text_of(given, f"the writer's schema {number}")) for number, given in sorted_writers)
    spec = AvroSpec(reader, writer, writers, avro.framing is not None, asked)
    AvroReaders(spec)
    return spec


def decoding(avro: Avro, asked: AskedRegistry | None = None, newest: str | None = None) -> Callable[..., Column]:
    """A Spark UDF from (value, topic, partition, offset) to (payload, error)."""
    return payload_udf(decoder_of, spec_of(avro, asked, newest))


@lru_cache(64)
def decoder_of(spec: AvroSpec) -> Decoder:
    return Decoder(AvroReaders(spec), spec.asked)


class AvroReaders:
    def __init__(self, spec: AvroSpec) -> None:
        self.shape: Struct = shape_of(parsed(spec.reader, "the Avro schema"))
        self.is_framed = spec.is_framed
        self._avro = AvroReader(Avro(_plain_text(spec.reader)))
        self._one = self._read_as(spec.writer, "the schema")
        self._by_id: dict[int, Read] | None = None
        if spec.writers is not None:
            self._by_id = {
                number: self._read_as(text, f"the writer's schema {number}") for number, text in spec.writers
            }

    def _read_as(self, text: str, name: str) -> Read:
        parsed(text, name)  # raises ConfigError: it is the user's
        return self._avro.reader(WriterSchema(name, AVRO, _plain_text(text)))

    def registered(self, schema: WriterSchema) -> Read:
        if schema.kind != AVRO:
            raise UndecodablePayload(f"its value was written with {schema.name}, which is {schema.kind}, not {AVRO}")
        references = tuple((name, _plain_text(text)) for name, text in schema.references)
        return self._avro.reader(WriterSchema(schema.name, AVRO, _plain_text(schema.text), references))

    def given(self, number: int | None) -> Read:
        if self._by_id is None or number is None:
            return self._one
        if number not in self._by_id:
            raise UndecodablePayload(f"its value has the schema id {number}, which `writers` does not have")
        return self._by_id[number]


def _plain_text(text: str) -> str:
    try:
        return json.dumps(plain(json.loads(text)))
    except ValueError:
        return text  # the reader refuses it
