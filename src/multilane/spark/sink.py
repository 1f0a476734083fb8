"""Writes rows to Kafka from Spark's workers.

Thread: the task's; a worker runs one task at a time.

All of a task's records are acknowledged before the task ends: what Spark counts as written is stored. A task that is
run again writes its rows again (at least once). Owns the writers of this process, which live as long as it does.
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
_KINDS: Final[Mapping[str, tuple[type[DataType], ...]]] = {
    "key": _TEXT_OR_BYTES,
    "value": _TEXT_OR_BYTES,
    "topic": (StringType,),
    "partition": (IntegerType,),
    "headers": (ArrayType,),
}


@dataclass
class Stored(WriterCommitMessage):
    """What a task has written."""

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
        """Topics, values and keys; what is repeated has no end. By C loops as far as it goes: whatever is done here for
        a row is done for millions."""
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


def _contents(column: pa.Array) -> list[bytes | None]:
    """Twice as fast as to_pylist(), which makes a scalar of every value first."""
    found: list[bytes | None] = column.cast(pa.binary()).to_numpy(zero_copy_only=False).tolist()
    return found


def _headers(pairs: list[dict[str, Any]] | None) -> tuple[tuple[str, bytes | None], ...]:
    return tuple((pair["key"], pair["value"]) for pair in pairs or ())


# --- the writers of this process -------------------------------------------------------------------------------------

_writers: dict[tuple[object, ...], BulkWriter] = {}


@contextmanager
def _writer(properties: Mapping[str, str]) -> Iterator[BulkWriter]:
    """One for a task at a time; one that failed is not used again, and what it still had is given up."""
    key = (os.getpid(), *sorted(properties.items()))
    writer = _writers.pop(key, None) or BulkWriter(dict(properties))
    try:
        yield writer
    except BaseException:
        writer.discard()
        raise
    _writers[key] = writer
