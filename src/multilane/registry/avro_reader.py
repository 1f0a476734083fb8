"""Reads Avro payloads by the schema that each was written with, as the reader's schema.

Thread: any (parsed schemas are not changed).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from io import BytesIO
from typing import Any

from multilane.errors import ConfigError, UndecodablePayload, printable
from multilane.registry.answers import WriterSchema
from multilane.registry.avro_schemas import fastavro, parsed, text_of
from multilane.registry.formats import Avro
from multilane.registry.framing import Read


class AvroReader:
    def __init__(self, avro: Avro) -> None:
        """Reads the files and checks the schemas that the user gives."""
        self._reader = None
        if avro.schema is not None:
            self._reader = parsed(text_of(avro.schema, "the Avro schema"), "the Avro schema").schema
        fastavro()

    def reader(self, writer: WriterSchema) -> Read:
        """For payloads with this schema. Raises UndecodablePayload if there can be none."""
        try:
            schema = parsed(writer.text, writer.name, [text for _, text in writer.references]).schema
        except ConfigError as error:
            raise UndecodablePayload(f"its value cannot be read: {error}") from None
        return self._of(schema, writer.name)

    def given(self, avro: Avro) -> Callable[[int | None], Read]:
        """For payloads whose schemas the user gives: by schema id, or None for payloads without."""
        one = avro.schema if avro.writer is None else avro.writer
        default = self._of(parsed(text_of(one, "the writer's schema"), "the writer's schema").schema, "the schema")
        by_id = {}
        for number, source in (avro.writers or {}).items():
            what = f"the writer's schema {number}"
            by_id[number] = self._of(parsed(text_of(source, what), what).schema, f"schema {number}")

        def of(number: int | None) -> Read:
            if avro.writers is None or number is None:
                return default
            if number not in by_id:
                raise UndecodablePayload(f"its value has the schema id {number}, which `writers` does not have")
            return by_id[number]

        return of

    def _of(self, schema: Any, name: str) -> Read:
        library = fastavro()
        reader = None if self._reader is None or self._reader == schema else self._reader
        return partial(_read, partial(library.schemaless_reader, writer_schema=schema, reader_schema=reader), name)


def _read(read: Callable[[BytesIO], Any], name: str, value: bytes, start: int) -> Any:
    stream = BytesIO(value)
    stream.seek(start)
    try:
        found = read(stream)
    except Exception as error:  # noqa: BLE001 - foreign bytes may fail in any way
        if type(error).__name__ == "SchemaResolutionError":
            why = printable(str(error), 200)
            raise UndecodablePayload(
                f"its value was written with {name}, which is not readable as the reader's: {why}"
            ) from None
        raise UndecodablePayload(f"its value is not valid Avro of {name} ({type(error).__name__})") from None
    if stream.tell() != len(value):
        left = len(value) - stream.tell()
        raise UndecodablePayload(f"its value is not valid Avro of {name}: {left} bytes are left over")
    return found
