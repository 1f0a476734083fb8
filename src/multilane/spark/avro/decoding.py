"""Decodes the Avro payloads of a column, in Arrow batches inside Spark's Python workers.

Thread: the worker's own.

A payload that cannot be decoded (truncated, bytes left over, an unknown schema id, a number too large for its column)
is null, and its error says why. A schema registry that is down is waited for, and then fails the task: Spark runs it
again.
Parsed schemas are cached for the life of the worker.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from multilane.clock import SystemClock
from multilane.config.app.registry import CONFLUENT
from multilane.errors import ConfigError, RegistryUnavailable, UndecodablePayload
from multilane.registry.answers import AVRO, WriterSchema
from multilane.registry.avro_reader import AvroReader, Read
from multilane.registry.avro_schemas import parsed, plain, text_of
from multilane.registry.formats import REGISTRY, Avro
from multilane.registry.framing import SchemaId, framed
from multilane.registry.schema_registry import SchemaRegistry
from multilane.spark.avro.columns import Struct
from multilane.spark.avro.shapes import shape_of
from multilane.spark.registry_plan import RegistryPlan, registry_of

PATIENCE: Final = 120.0
_LOOK: Final = 1.0
_MOST_READERS: Final = 1_000
_TOO_LARGE: Final = "a number or a time of the value is too large for its column"


@dataclass(frozen=True, slots=True)
class AvroPlan:
    """The plan that workers get; schemas as JSON text."""

    reader: str
    writer: str
    writers: tuple[tuple[int, str], ...] | None
    framing: str | None
    registry: RegistryPlan | None = None
    patience: float = 0.0  # seconds that a task waits for a registry that is down


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


def plan_of(avro: Avro, registry: RegistryPlan | None = None, newest: str | None = None) -> AvroPlan:
    """Reads the files and checks everything in the driver, where the user sees errors. `newest`: the reader's schema,
    if the user gives none."""
    reader = text_of(newest if avro.schema is None else avro.schema, "the Avro schema")
    writer = reader if avro.writer is None else text_of(avro.writer, "the writer's schema")
    writers = None
    if avro.writers is not None:
        sorted_writers = sorted(avro.writers.items())
        writers = tuple((number, text_of(given, f"the writer's schema {number}")) for number, given in sorted_writers)
    plan = AvroPlan(reader, writer, writers, avro.framing, registry, PATIENCE)
    Decoder(plan)
    return plan


def decoding(avro: Avro, registry: RegistryPlan | None = None, newest: str | None = None) -> Callable[..., Column]:
    """A Spark UDF from (value, topic, partition, offset) to (payload, error); Spark sees by its annotations that it
    takes whole arrays."""
    plan = plan_of(avro, registry, newest)
    decoded = StructType([StructField("payload", decoder_of(plan).shape.spark), StructField("error", StringType())])

    def decode(values: pa.Array, topics: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
        return decoder_of(plan).array(
            values, lambda row: Place(*(x[row].as_py() for x in (topics, partitions, offsets)))
        )

    udf: Callable[..., Column] = F.arrow_udf(decode, decoded)  # type: ignore[attr-defined]  # missing in Spark's stubs
    return udf


@lru_cache(64)
def decoder_of(plan: AvroPlan) -> Decoder:
    return Decoder(plan)


def _no_place(row: int) -> Place:
    return Place("row", 0, row)


class Decoder:
    def __init__(self, plan: AvroPlan) -> None:
        self.shape: Final[Struct] = shape_of(parsed(plan.reader, "the Avro schema"))
        self._plan = plan
        self._registry: SchemaRegistry | None = None
        self._avro = AvroReader(Avro(_plain_text(plan.reader)))
        self._by_id: dict[SchemaId, Read] = {}
        for number, text in plan.writers or ():
            self._by_id[SchemaId("id", number)] = self._reader(text, f"the writer's schema {number}")
        self._only = None if plan.framing == REGISTRY else self._reader(plan.writer, "the schema")

    def _reader(self, text: str, name: str) -> Read:
        parsed(text, name)  # raises ConfigError: it is the user's
        return self._avro.reader(WriterSchema(name, AVRO, _plain_text(text)))

    def array(self, payloads: pa.Array, place: Callable[[int], Place] = _no_place) -> pa.Array:
        """The column (payload, error) for a column of bytes."""
        values, errors = [], []
        for row, payload in enumerate(payloads.to_pylist()):
            value, error = self._decoded(payload, place, row)
            values.append(value)
            errors.append(error)
        try:
            found = self.shape.array(values)
        except Exception:  # noqa: BLE001 - a value does not fit, in one of many ways
            for row, value in enumerate(values):
                if not self._fits(value):
                    values[row], errors[row] = None, _TOO_LARGE
            found = self.shape.array(values)
        return pa.StructArray.from_arrays([found, pa.array(errors, pa.string())], ["payload", "error"])

    def _decoded(self, payload: bytes | None, place: Callable[[int], Place], row: int) -> tuple[Any, str | None]:
        if payload is None:
            return None, None
        try:
            read, start = self._read_of(payload, place, row)
            return read(payload, start), None
        except UndecodablePayload as error:
            return None, str(error)

    def _read_of(self, payload: bytes, place: Callable[[int], Place], row: int) -> tuple[Read, int]:
        """How the payload is read, and where it begins."""
        plan = self._plan
        if plan.framing is None and self._only is not None:
            return self._only, 0
        registry = self._asked_registry() if plan.framing == REGISTRY else None
        found = framed(payload, (), CONFLUENT if registry is None else registry.wire_format)
        read = self._by_id.get(found.schema)
        if read is None and registry is not None:
            if len(self._by_id) >= _MOST_READERS:
                self._by_id.clear()
            read = self._by_id[found.schema] = self._registered(registry, found.schema, place, row)
        if read is None and plan.writers is None:
            read = self._only
        if read is None:
            raise UndecodablePayload(f"its value has schema {found.schema}, which `writers` does not have")
        return read, found.start

    def _asked_registry(self) -> SchemaRegistry:
        if self._registry is None:
            if self._plan.registry is None:
                raise ConfigError("Avro needs a schema registry: add schemaRegistry to the consumer's cluster")
            self._registry = registry_of(self._plan.registry)
        return self._registry

    def _registered(self, registry: SchemaRegistry, wanted: SchemaId, place: Callable[[int], Place], row: int) -> Read:
        clock, look = SystemClock(), threading.Event()
        deadline = clock.monotonic() + self._plan.patience
        while True:
            try:
                schema = registry.schema(wanted)
                break
            except RegistryUnavailable as error:
                if clock.monotonic() >= deadline:
                    where = f"{place(row)} cannot be decoded, and {self._plan.patience:g} s of waiting did not help"
                    raise RegistryUnavailable(f"{where}: {error}") from None
                look.wait(_LOOK)
        if schema.kind != AVRO:
            raise UndecodablePayload(f"its value was written with {schema.name}, which is {schema.kind}, not {AVRO}")
        references = tuple((name, _plain_text(text)) for name, text in schema.references)
        return self._avro.reader(WriterSchema(schema.name, AVRO, _plain_text(schema.text), references))

    def _fits(self, value: Any) -> bool:
        try:
            self.shape.array([value])
        except Exception:  # noqa: BLE001 - as in array()
            return False
        return True


def _plain_text(text: str) -> str:
    try:
        return json.dumps(plain(json.loads(text)))
    except ValueError:
        return text  # the reader refuses it
