"""Decodes the Avro payloads of a column, in Arrow batches inside Spark's Python workers.

Thread: the worker's own.

A payload that cannot be decoded (truncated, bytes left over, an unknown schema id, a number too large for its column)
becomes null, as invalid JSON does. Parsed schemas are cached for the life of the worker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from io import BytesIO
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from multilane.registry.avro_schemas import fastavro, parsed, plain, text_of
from multilane.registry.formats import Avro
from multilane.spark.avro.columns import Struct
from multilane.spark.avro.shapes import shape_of

_MAGIC: Final = 0
_FRAME: Final = 5  # the magic byte and four of the schema id

Read = Callable[[BytesIO], Any]


@dataclass(frozen=True, slots=True)
class AvroPlan:
    """The plan that workers get; schemas as JSON text."""

    reader: str
    writer: str
    writers: tuple[tuple[int, str], ...] | None
    is_framed: bool


def plan_of(avro: Avro) -> AvroPlan:
    """Reads the files and checks everything in the driver, where the user sees errors."""
    reader = text_of(avro.schema, "the Avro schema")
    writer = reader if avro.writer is None else text_of(avro.writer, "the writer's schema")
    writers = None
    if avro.writers is not None:
        sorted_writers = sorted(avro.writers.items())
        writers = tuple((number, text_of(given, f"the writer's schema {number}")) for number, given in sorted_writers)
    plan = AvroPlan(reader, writer, writers, is_framed=avro.framing is not None)
    Decoder(plan)
    return plan


def decoding(avro: Avro) -> Callable[[Column], Column]:
    """A Spark UDF from values to payloads; Spark sees by its annotations that it takes whole arrays."""
    plan = plan_of(avro)

    def decode(values: pa.Array) -> pa.Array:
        return decoder_of(plan).array(values)

    udf: Callable[[Column], Column] = F.arrow_udf(  # type: ignore[attr-defined]  # missing in Spark's stubs
        decode, decoder_of(plan).shape.spark
    )
    return udf


@lru_cache(64)
def decoder_of(plan: AvroPlan) -> Decoder:
    return Decoder(plan)


class Decoder:
    def __init__(self, plan: AvroPlan) -> None:
        wanted = parsed(plan.reader, "the Avro schema")
        self.shape: Final[Struct] = shape_of(wanted)
        self._is_framed = plan.is_framed
        self._reader = parsed(_plain_text(plan.reader), "the Avro schema").schema
        self._by_id: Mapping[int, Read] | None = None
        if plan.writers is not None:
            self._by_id = {n: self._read_as(text, f"the writer's schema {n}", plan) for n, text in plan.writers}
        self._read = self._read_as(plan.writer, "the writer's schema", plan)

    def _read_as(self, text: str, what: str, plan: AvroPlan) -> Read:
        writer = parsed(_plain_text(text), what).schema
        reader = None if text == plan.reader else self._reader
        return partial(fastavro().schemaless_reader, writer_schema=writer, reader_schema=reader)

    def array(self, payloads: pa.Array) -> pa.Array:
        """The column `payload` for a column of bytes."""
        values = [self.value(payload) for payload in payloads.to_pylist()]
        try:
            return self.shape.array(values)
        except Exception:  # noqa: BLE001 - a value does not fit, in one of many ways
            return self.shape.array([value if self._fits(value) else None for value in values])

    def value(self, payload: bytes | None) -> Any:
        """The value as fastavro decodes it, or None."""
        if payload is None:
            return None
        read, start = self._read, 0
        if self._is_framed:
            found = self._reader_of_frame(payload)
            if found is None:
                return None
            read, start = found, _FRAME
        stream = BytesIO(payload)
        stream.seek(start)
        try:
            value = read(stream)
        except Exception:  # noqa: BLE001 - foreign bytes may fail in any way
            return None
        return value if stream.tell() == len(payload) else None

    def _reader_of_frame(self, payload: bytes) -> Read | None:
        if len(payload) < _FRAME or payload[0] != _MAGIC:
            return None
        return self._read if self._by_id is None else self._by_id.get(int.from_bytes(payload[1:_FRAME], "big"))

    def _fits(self, value: Any) -> bool:
        try:
            self.shape.array([value])
        except Exception:  # noqa: BLE001 - as in array()
            return False
        return True


def _plain_text(text: str) -> str:
    return json.dumps(plain(json.loads(text)))
