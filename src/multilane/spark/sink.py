"""Writes rows to Kafka from Spark's workers.

Thread: the task's; a worker runs one task at a time.

All of a task's records are acknowledged before the task ends: what Spark counts as written is stored. A task that is
run again writes its rows again (at least once). Owns the producers of this process, which live as long as it does.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from multilane.client.produce.producer import Deliveries, Producer
from multilane.errors import ConfigError
from multilane.spark.options import SinkOptions

_TEXT_OR_BYTES: Final = (StringType, BinaryType)
_KINDS: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
}
_MOST_UNDER_WAY: Final = 8  # Arrow batches whose acknowledgements are waited for together


@dataclass
class Stored(WriterCommitMessage):
    """What a task has written."""

    records: int


class _Writes:
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.columns = _checked(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        producer = _producer(self.options.properties)
        waiting: list[Future[Deliveries]] = []
        stored = 0
        for batch in iterator:
            waiting.append(producer.send_many(self._records(batch)))
            if len(waiting) > _MOST_UNDER_WAY:
                stored += waiting.pop(0).result().records
        return Stored(stored + sum(one.result().records for one in waiting))

    def _records(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        rows = batch.num_rows
        columns = {name: batch.column(name).to_pylist() for name in self.columns}
        nothing = [None] * rows
        topics = [self.options.topic] * rows if self.options.topic else columns["topic"]
        if None in topics:
            raise ConfigError(f"row {topics.index(None)} of a batch has no topic: fill the column, or set option topic")
        return zip(
            topics,
            map(_bytes, columns["value"]),
            map(_bytes, columns.get("key", nothing)),
            map(_headers, columns.get("headers", nothing)),
            columns.get("partition", nothing),
            strict=True,
        )

    def commit(self, messages: list[WriterCommitMessage | None], *batch: int) -> None:
        """Nothing is left to do: tasks have waited for their acknowledgements."""

    def abort(self, messages: list[WriterCommitMessage | None], *batch: int) -> None:
        """What is stored is stored; it comes again when the batch is run again."""


class BatchWriter(_Writes, DataSourceArrowWriter): ...


class StreamWriter(_Writes, DataSourceStreamArrowWriter): ...


def _checked(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """The columns that are written, or what is wrong with them."""
    found = {column.name: column.dataType for column in schema.fields}
    if "value" not in found:
        raise ConfigError(f"a column `value` is needed to write to Kafka; there is {', '.join(found) or 'none'}")
    if topic is None and "topic" not in found:
        raise ConfigError("say where to write: option topic, or a column `topic`")
    for name, kinds in _KINDS.items():
        if name in found and not isinstance(found[name], kinds):
            wanted = " or ".join(kind().simpleString() if kind is not ArrayType else "array" for kind in kinds)
            raise ConfigError(f"column `{name}` is {found[name].simpleString()}, and has to be {wanted}")
    headers = found.get("headers")
    if headers is not None and headers.simpleString() != "array<struct<key:string,value:binary>>":
        raise ConfigError(
            f"column `headers` is {headers.simpleString()}, and has to be array<struct<key:string,value:binary>>"
        )
    return tuple(name for name in _KINDS if name in found)


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


def _headers(pairs: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((pair["key"], pair["value"]) for pair in pairs or ())


# --- the producers of this process -----------------------------------------------------------------------------------

_producers: dict[tuple[object, ...], Producer] = {}


def _producer(properties: Mapping[str, str]) -> Producer:
    key = (os.getpid(), *sorted(properties.items()))
    if key not in _producers:
        _producers[key] = Producer(dict(properties))
    return _producers[key]
