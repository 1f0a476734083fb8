"""Decodes the payloads of a column in Arrow batches inside Spark's Python workers, whatever their format.

Thread: the worker's own.

A payload that cannot be decoded (truncated, bytes left over, an unknown schema id, a number too large for its column)
is null, and its error says why. A schema registry that is down is waited for, and then fails the task: Spark runs it
again. Owns the readers, one for each schema id, for the life of the worker.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from multilane.clock import SystemClock
from multilane.config.app.registry import CONFLUENT
from multilane.errors import RegistryUnavailable, UndecodablePayload
from multilane.registry.answers import WriterSchema
from multilane.registry.framing import Read, SchemaId, framed
from multilane.registry.schema_registry import SchemaRegistry
from multilane.spark.avro.columns import Struct
from multilane.spark.registry_plan import RegistryPlan, registry_of

PATIENCE: Final = 120.0
_LOOK: Final = 1.0
_MOST_READERS: Final = 1_000
_TOO_LARGE: Final = "a number or a time of the value is too large for its column"


class Place(NamedTuple):
    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class AskedRegistry(NamedTuple):
    """The registry that a worker asks, and for how many seconds it waits for one that is down."""

    registry: RegistryPlan
    patience: float


class PayloadReader(Protocol):
    """What a format knows."""

    @property
    def shape(self) -> Struct: ...
    @property
    def is_framed(self) -> bool:
        """Whether a schema id precedes each payload."""
        ...

    def registered(self, schema: WriterSchema) -> Read:
        """For payloads with a schema of the registry. Raises UndecodablePayload."""
        ...

    def given(self, number: int | None) -> Read:
        """For payloads without a registry. Raises UndecodablePayload."""
        ...


def _no_place(row: int) -> Place:
    return Place("row", 0, row)


class Decoder:
    def __init__(self, reader: PayloadReader, asked: AskedRegistry | None = None) -> None:
        self.shape: Final[Struct] = reader.shape
        self._reader = reader
        self._waiting = asked
        self._readers: dict[SchemaId, Read] = {}

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
            if self._waiting is not None:
                registry = registry_of(self._waiting.registry)
                found = framed(payload, (), registry.wire_format)
                read = self._readers.get(found.schema) or self._new_reader(registry, found.schema, place, row)
                return read(payload, found.start), None
            if not self._reader.is_framed:
                return self._reader.given(None)(payload, 0), None
            found = framed(payload, (), CONFLUENT)
            return self._reader.given(found.schema.number)(payload, found.start), None
        except UndecodablePayload as error:
            return None, str(error)

    def _new_reader(self, registry: SchemaRegistry, wanted: SchemaId, place: Callable[[int], Place], row: int) -> Read:
        if len(self._readers) >= _MOST_READERS:
            self._readers.clear()
        read = self._readers[wanted] = self._reader.registered(self._schema(registry, wanted, place, row))
        return read

    def _schema(
        self, registry: SchemaRegistry, wanted: SchemaId, place: Callable[[int], Place], row: int
    ) -> WriterSchema:
        clock, look = SystemClock(), threading.Event()
        patience = self._waiting.patience if self._waiting is not None else 0.0
        deadline = clock.monotonic() + patience
        while True:
            try:
                return registry.schema(wanted)
            except RegistryUnavailable as error:
                if clock.monotonic() >= deadline:
                    where = f"{place(row)} cannot be decoded, and {patience:g} s of waiting did not help"
                    raise RegistryUnavailable(f"{where}: {error}") from None
                look.wait(_LOOK)

    def _fits(self, value: Any) -> bool:
        try:
            self.shape.array([value])
        except Exception:  # noqa: BLE001 - as in array()
            return False
        return True


def payload_udf(decoder_of: Callable[[Any], Decoder], spec: Any) -> Callable[..., Column]:
    """A Spark UDF from (value, topic, partition, offset) to (payload, error); Spark sees by its annotations that it
    takes whole arrays. `decoder_of` keeps one decoder for each spec and process."""
    shape = decoder_of(spec).shape.spark
    decoded = StructType([StructField("payload", shape), StructField("error", StringType())])

    def decode(values: pa.Array, topics: pa.Array, partitions: pa.Array, offsets: pa.Array) -> pa.Array:
        def place(row: int) -> Place:
            return Place(*(column[row].as_py() for column in (topics, partitions, offsets)))

        return decoder_of(spec).array(values, place)

    udf: Callable[..., Column] = F.arrow_udf(decode, decoded)  # type: ignore[attr-defined]  # missing in Spark's stubs
    return udf
