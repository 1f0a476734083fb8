"""Checks JSON payloads against the JSON Schema that each was written with.

Thread: any.

No schema is fetched because another one refers to it: only the registry's references are used. Never shows a value,
only the path of the one that is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final

from multilane.errors import ConfigError, UndecodablePayload, printable
from multilane.registry.answers import WriterSchema

_MASK: Final = "..."


def jsonschema_rs() -> Any:
    try:
        import jsonschema_rs
    except ImportError:
        raise ConfigError(
            'JSON Schema payloads need jsonschema-rs: pip install "multilane[registry]", or use '
            "JsonSchema(validate=False)"
        ) from None
    return jsonschema_rs


def json_checker(writer: WriterSchema) -> Callable[[bytes], None]:
    """A function that raises UndecodablePayload for a payload that does not fit the schema."""
    references = dict(writer.references)

    def retrieve(uri: str) -> Any:
        for name, text in references.items():
            if uri == name or uri.endswith(f"/{name}"):
                return json.loads(text)
        raise ValueError(f"{uri} is not among its references")

    try:
        schema = json.loads(writer.text)
        validator = jsonschema_rs().validator_for(schema, mask=_MASK, retriever=retrieve)
    except ConfigError:
        raise
    except Exception as error:  # noqa: BLE001 - of the schema, in one of many ways
        why = printable(str(error).partition("\n")[0], 200)
        raise UndecodablePayload(f"its value cannot be checked: {writer.name} is not a JSON Schema: {why}") from None

    def check(content: bytes) -> None:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError):
            raise UndecodablePayload(f"its value is not valid JSON, although it has {writer.name}") from None
        for fault in validator.iter_errors(value):
            at = "/".join(map(str, fault.instance_path))
            what = printable(fault.message, 200)
            raise UndecodablePayload(f"its value does not fit {writer.name}: {at + ': ' if at else ''}{what}")

    return check
