"""Payloads with a schema, as a function annotates them: `Annotated[Order, Avro()]`.

Thread: loop; the registry is asked on a thread of its own.

Owns the readers of one function, one for each schema id. Schemas are fetched before a call, without blocking the loop;
decoding itself never waits. If the registry cannot be asked, the call fails with RegistryUnavailable, and the record is
retried in place.
"""

from __future__ import annotations

import asyncio
import typing
from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from multilane.errors import ConfigError, RegistryUnavailable, UndecodablePayload
from multilane.listeners.conversion import converter, nullable_parts, type_name
from multilane.outcome.own_thread import on_own_thread
from multilane.registry.answers import AVRO, JSON, PROTOBUF, WriterSchema
from multilane.registry.avro_reader import AvroReader
from multilane.registry.formats import Avro, JsonSchema, PayloadFormat, Protobuf
from multilane.registry.framing import Framed, Read, SchemaId, framed
from multilane.registry.json_reader import json_checker, jsonschema_rs
from multilane.registry.protobuf_reader import message_reader, plain
from multilane.registry.schema_registry import SchemaRegistry
from multilane.wire.records.record import Record

MOST_READERS: Final = 1_000
_FORMATS: Final = (Avro, Protobuf, JsonSchema)
_KINDS: Final = {Avro: AVRO, Protobuf: PROTOBUF, JsonSchema: JSON}


def format_of(annotation: Any) -> tuple[Any, PayloadFormat] | None:
    """The type and the format of an annotation, or None if it names no format."""
    inner, nullable = nullable_parts(annotation)
    if typing.get_origin(inner) is not typing.Annotated:
        return None
    wanted, *rest = typing.get_args(inner)
    found = [one() if isinstance(one, type) and one in (Avro, JsonSchema) else one for one in rest]
    formats = [one for one in found if isinstance(one, _FORMATS)]
    if not formats:
        return None
    if len(formats) > 1:
        raise ConfigError(f"{type_name(wanted)} is annotated with {len(formats)} formats: give one")
    return (wanted | None if nullable else wanted), formats[0]


class RegisteredPayloads:
    def __init__(self, wanted: Any, payload_format: PayloadFormat, registry: SchemaRegistry | None) -> None:
        """Raises ConfigError if the type, the format and the configuration do not fit."""
        self._wanted, self._nullable = nullable_parts(wanted)
        self._format = payload_format
        self._registry = registry
        if self._wanted in (bytes, str):
            raise ConfigError(f"{type_name(self._wanted)} takes the value as it is: remove its format, or give a type")
        if payload_format.needs_registry and registry is None:
            raise ConfigError(
                f"{type_name(self._wanted)} needs a schema registry: add schemaRegistry to the consumer's cluster"
            )
        self._convert = _converter_of(self._wanted, payload_format)
        self._avro = AvroReader(payload_format) if isinstance(payload_format, Avro) else None
        self._given = None
        if isinstance(payload_format, Avro) and self._avro is not None and not payload_format.needs_registry:
            self._given = self._avro.given(payload_format)
        if isinstance(payload_format, JsonSchema) and payload_format.validate:
            jsonschema_rs()
        self._readers: dict[SchemaId, Read] = {}
        self._asking: dict[SchemaId, asyncio.Task[object]] = {}
        self._failed: dict[SchemaId, RegistryUnavailable] = {}

    @property
    def needs_registry(self) -> bool:
        return self._format.needs_registry

    # --- before a call -----------------------------------------------------------------------------------------------

    def missing(self, records: Iterable[Record]) -> Collection[SchemaId]:
        """The schemas of these that are not known yet."""
        registry = self._registry
        if registry is None or self._given is not None:
            return ()
        missing: dict[SchemaId, None] = {}
        for record in records:
            if record.value is not None:
                try:
                    wanted = framed(record.value, record.headers, registry.wire_format).schema
                    if wanted not in self._readers and registry.known(wanted) is None:
                        missing[wanted] = None
                except UndecodablePayload:
                    continue
        return missing

    async def fetch(self, missing: Collection[SchemaId]) -> None:
        """Raises nothing: a schema that is still missing then fails its records."""
        if len(self._failed) >= MOST_READERS:
            self._failed.clear()
        await asyncio.gather(*map(self._fetch, missing))

    async def _fetch(self, wanted: SchemaId) -> None:
        """Calls that miss the same schema share a request. It continues if they are cancelled."""
        assert self._registry is not None  # noqa: S101
        task = self._asking.get(wanted)
        if task is None:
            task = asyncio.ensure_future(on_own_thread(self._registry.schema, wanted))
            self._asking[wanted] = task
            task.add_done_callback(lambda task: self._fetched(wanted, task))
        await asyncio.wait({task}, timeout=self._registry.timeout)
        if not task.done():
            self._failed[wanted] = RegistryUnavailable(
                f"the schema registry did not answer within {self._registry.timeout:g} s for schema {wanted}"
            )

    def _fetched(self, wanted: SchemaId, task: asyncio.Task[object]) -> None:
        del self._asking[wanted]
        self._failed.pop(wanted, None)
        if not task.cancelled() and isinstance(error := task.exception(), RegistryUnavailable):
            self._failed[wanted] = error

    # --- in a call ---------------------------------------------------------------------------------------------------

    def __call__(self, record: Record) -> Any:
        """The payload. Raises UndecodablePayload or RegistryUnavailable."""
        value = record.value
        if value is None:
            if self._nullable:
                return None
            name = type_name(self._wanted)
            raise UndecodablePayload(f"its value is null, but the function takes {name}: annotate {name} | None")
        if self._given is not None:
            return self._convert(self._given_value(value, self._given))
        assert self._registry is not None  # noqa: S101
        found = framed(value, record.headers, self._registry.wire_format)
        read = self._readers.get(found.schema) or self._new_reader(found)
        return self._convert(read(value, found.start))

    def _given_value(self, value: bytes, of: Callable[[int | None], Read]) -> Any:
        if isinstance(self._format, Avro) and self._format.framing is not None:
            found = framed(value, (), self._format.framing)
            return of(found.schema.number)(value, found.start)
        return of(None)(value, 0)

    def _new_reader(self, found: Framed) -> Read:
        assert self._registry is not None  # noqa: S101
        schema = self._registry.known(found.schema)
        if schema is None:
            failed = self._failed.get(found.schema, f"the schema registry was not asked for schema {found.schema} yet")
            raise RegistryUnavailable(str(failed))  # its own: a traceback grows with each raise
        if len(self._readers) >= MOST_READERS:
            self._readers.clear()
        read = self._readers[found.schema] = self._reader_for(schema)
        return read

    def _reader_for(self, schema: WriterSchema) -> Read:
        kind = _KINDS[type(self._format)]
        if schema.kind != kind:
            raise UndecodablePayload(f"its value was written with {schema.name}, which is {schema.kind}, not {kind}")
        if self._avro is not None:
            return self._avro.reader(schema)
        if isinstance(self._format, Protobuf):
            return message_reader(self._format.message, schema)
        check = json_checker(schema) if isinstance(self._format, JsonSchema) and self._format.validate else None

        def read(value: bytes, start: int) -> bytes:
            content = value[start:]
            if check is not None:
                check(content)
            return content

        return read


def _converter_of(wanted: Any, payload_format: PayloadFormat) -> Callable[[Any], Any]:
    if isinstance(payload_format, Protobuf) and wanted is payload_format.message:
        return _itself
    convert = converter(wanted, is_json=isinstance(payload_format, JsonSchema))
    if isinstance(payload_format, Protobuf):
        return lambda message: convert(plain(message))
    return convert


def _itself(value: Any) -> Any:
    return value
