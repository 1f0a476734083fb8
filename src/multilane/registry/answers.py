"""What a registry is asked for, and what its answers mean: a schema, no such schema, or no answer.

Thread: any (values).

A registry that is down, slow, broken or that refuses the login says nothing about a record: RegistryUnavailable. Only
its own statement that it has no such schema is UnknownSchema. Never shows a login.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from multilane.errors import RegistryUnavailable, UnknownSchema, printable
from multilane.registry.framing import SchemaId

AVRO: Final = "AVRO"
PROTOBUF: Final = "PROTOBUF"
JSON: Final = "JSON"
MOST_REFERENCES: Final = 200  # of one schema, with theirs
_UNAUTHORISED: Final = (401, 403)
_NOT_FOUND: Final = 404
_TEXT: Final = 200


@dataclass(frozen=True, slots=True)
class WriterSchema:
    """A schema of the registry. `references` are the schemas that it names, each after those that it needs itself."""

    name: str  # for messages: "schema id 7"
    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()  # (name, text)


class RegistryApi(Protocol):
    """Asks once, and waits for the answer. Raises RegistryUnavailable or UnknownSchema."""

    def schema(self, wanted: SchemaId) -> WriterSchema: ...
    def latest(self, subject: str) -> WriterSchema: ...


def refused(url: str, what: object, status: int, text: str | None) -> RegistryUnavailable:
    """For an answer that is not a schema."""
    todo = "check its health"
    if status in _UNAUTHORISED:
        todo = "check the login (username and password, token or certificate) under schemaRegistry"
    elif status == _NOT_FOUND:
        todo = "check the path of schemaRegistry.url: it must be the API of the wire format"
    detail = f" ({shown})" if (shown := printable(text, _TEXT)) else ""
    return RegistryUnavailable(f"the schema registry at {url} answered HTTP {status} to {what}{detail}: {todo}")


def unreachable(url: str, what: object, error: BaseException) -> RegistryUnavailable:
    why = printable(str(error), _TEXT) or type(error).__name__
    return RegistryUnavailable(f"the schema registry at {url} did not answer for {what}: {type(error).__name__}: {why}")


def unreadable(url: str, what: object) -> RegistryUnavailable:
    return RegistryUnavailable(
        f"the schema registry at {url} answered with something else than a schema for {what}: check schemaRegistry.url"
    )


def unknown(url: str, what: object) -> UnknownSchema:
    return UnknownSchema(f"the schema registry at {url} has no {what}: check that it is the one that producers use")


def too_many_references(url: str, what: object) -> UnknownSchema:
    return UnknownSchema(f"{what} of the schema registry at {url} refers to more than {MOST_REFERENCES} schemas")
