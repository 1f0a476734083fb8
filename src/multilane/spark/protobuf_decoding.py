"""Protobuf payloads of a column: the spec that workers get, and the readers that they make from it.

Thread: the worker's own.

Workers get the descriptors of the message, not its class: the module that protoc generated need not be there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from pyspark.sql import Column

from multilane.errors import UndecodablePayload
from multilane.registry.answers import PROTOBUF, WriterSchema
from multilane.registry.formats import Protobuf
from multilane.registry.framing import Read
from multilane.registry.protobuf_reader import message_reader, plain
from multilane.spark.decoding import AskedRegistry, Decoder, payload_udf
from multilane.spark.protobuf_shapes import shape_of_message


@dataclass(frozen=True, slots=True)
class ProtobufSpec:
    """Compiled .proto files, each after those that it imports."""

    files: tuple[bytes, ...]
    message: str
    asked: AskedRegistry


def decoding(payload_format: Protobuf, asked: AskedRegistry) -> Callable[..., Column]:
    """A Spark UDF from (value, topic, partition, offset) to (payload, error)."""
    descriptor = payload_format.message.DESCRIPTOR
    files = dict(_files(descriptor.file))
    return payload_udf(decoder_of, ProtobufSpec(tuple(files.values()), descriptor.full_name, asked))


def _files(file: Any) -> Iterator[tuple[str, bytes]]:
    for needed in file.dependencies:
        yield from _files(needed)
    yield file.name, file.serialized_pb


@lru_cache(64)
def decoder_of(spec: ProtobufSpec) -> Decoder:
    return Decoder(ProtobufReaders(spec), spec.asked)


class ProtobufReaders:
    is_framed = True

    def __init__(self, spec: ProtobufSpec) -> None:
        from google.protobuf import descriptor_pool, message_factory

        pool = descriptor_pool.DescriptorPool()
        for file in spec.files:
            pool.AddSerializedFile(file)
        self._message = message_factory.GetMessageClass(pool.FindMessageTypeByName(spec.message))
        self.shape = shape_of_message(self._message)

    def registered(self, schema: WriterSchema) -> Read:
        if schema.kind != PROTOBUF:
            raise UndecodablePayload(
                f"its value was written with {schema.name}, which is {schema.kind}, not {PROTOBUF}"
            )
        read = message_reader(self._message, schema)
        return lambda value, start: plain(read(value, start))

    def given(self, number: int | None) -> Read:
        raise UndecodablePayload(f"its value has the schema id {number}, and there is no registry")
