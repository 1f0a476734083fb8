"""Writes rows to Kafka from Spark's workers.

Thread: the task's; a worker runs one task at a time.

All records of a task are acknowledged before the task ends: rows that Spark counts as written are stored. A repeated
task writes its rows again (at least once). Owns the writers of this process, which live as long as it does.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegerType, StringType, StructType

from multilane.client.produce.bulk import BulkWriter
from multilane.errors import ConfigError
from multilane.spark.options import SinkOptions

_TEXT_OR_BYTES: Final = (StringType, BinaryType)
_COLUMN_TYPES: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
}


@dataclass
class Stored(WriterCommitMessage):
    """How many records a task has written."""

    records: int


class _Writes:
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self.options = options
        self.columns = _checked(schema, options.topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Stored:
        with _writer(self.options.properties) as writer:
            if {"headers", "partition"} & set(self.columns):
                records = sum(writer.put(self._whole(batch)) for batch in iterator)
            else:
                records = sum(writer.put_plain(zip(*self._plain(batch), strict=False)) for batch in iterator)
            writer.flush()
        return Stored(records)

    def _plain(self, batch: pa.RecordBatch) -> tuple[Iterable[str], Iterable[bytes | None], Iterable[bytes | None]]:
        """Topics, values and keys; a constant column is an endless iterator. C loops as far as possible: work per row
        is repeated for millions of rows."""
        topics: Iterable[str] = repeat(self.options.topic or "")
        if self.options.topic is None:
            topics = named = batch.column("topic").to_pylist()
            if None in named:
                raise ConfigError("a row has no topic: fill the column, or set the option topic")
        return topics, _contents(batch.column("value")), self._keys(batch)

    def _keys(self, batch: pa.RecordBatch) -> Iterable[bytes | None]:
        return _contents(batch.column("key")) if "key" in self.columns else repeat(None)

    def _whole(self, batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
        has = self.columns
        return zip(
            *self._plain(batch),
            map(_headers, batch.column("headers").to_pylist()) if "headers" in has else repeat(()),
            batch.column("partition").to_pylist() if "partition" in has else repeat(None),
            strict=False,
        )

    def commit(self, messages: list[WriterCommitMessage | None], *batch: int) -> None:
        """Does nothing: tasks have waited for their acknowledgements."""

    def abort(self, messages: list[WriterCommitMessage | None], *batch: int) -> None:
        """Does nothing: stored records stay, and are written once more when Spark repeats the batch."""


class BatchWriter(_Writes, DataSourceArrowWriter): ...


class StreamWriter(_Writes, DataSourceStreamArrowWriter): ...


def _checked(schema: StructType, topic: str | None) -> tuple[str, ...]:
    """The columns to write; raises where one has the wrong type or is missing."""
    found = {column.name: column.dataType for column in schema.fields}
    if "value" not in found:
        raise ConfigError(f"writing to Kafka needs a column `value`; the columns are {', '.join(found) or 'none'}")
    if topic is None and "topic" not in found:
        raise ConfigError("no topic to write to: set the option topic, or add a column `topic`")
    for name, types in _COLUMN_TYPES.items():
        if name in found and not isinstance(found[name], types):
            wanted = " or ".join(type_().simpleString() if type_ is not ArrayType else "array" for type_ in types)
            raise ConfigError(f"column `{name}` is {found[name].simpleString()}, but must be {wanted}")
    headers = found.get("headers")
    if headers is not None and headers.simpleString() != "array<struct<key:string,value:binary>>":
        raise ConfigError(
            f"column `headers` is {headers.simpleString()}, but must be array<struct<key:string,value:binary>>"
        )
    return tuple(name for name in _COLUMN_TYPES if name in found)


def _contents(column: pa.Array) -> list[bytes | None]:
    """Twice as fast as to_pylist(), which makes a scalar for every value first."""
    found: list[bytes | None] = column.cast(pa.binary()).to_numpy(zero_copy_only=False).tolist()
    return found


def _headers(pairs: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((pair["key"], pair["value"]) for pair in pairs or ())


# --- the writers of this process -------------------------------------------------------------------------------------

_writers: dict[tuple[object, ...], BulkWriter] = {}


@contextmanager
def _writer(properties: Mapping[str, str]) -> Iterator[BulkWriter]:
    """A writer for one task at a time. A failed writer is not used again, and its unsent records are discarded."""
    key = (os.getpid(), *sorted(properties.items()))
    writer = _writers.pop(key, None) or BulkWriter(dict(properties))
    try:
        yield writer
    except BaseException:
        writer.discard()
        raise
    _writers[key] = writer
