"""The JSON Schema of `multilane.yaml`, for editors.

Thread: none (pure).

Generated from the models: keys, descriptions, defaults. Keys have the case of the documentation; JSON Schema cannot
express that files may use any case. A profile requires no key, because it overlays other sections. Owns nothing.
"""

from __future__ import annotations

import copy
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaMode, JsonSchemaValue, models_json_schema

from multilane.config.app.loading import MODELS
from multilane.config.app.model import AppConfig
from multilane.config.app.shape import ENTRY_NAME, Frozen, key_of, kind_of
from multilane.config.app.units import format_duration, format_size

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_MODE: Final[JsonSchemaMode] = "serialization"  # its aliases are our keys


def schema() -> dict[str, Any]:
    """The whole schema, ready to be written as JSON."""
    inputs = [(model, _MODE) for model in MODELS.values()]
    refs, made = models_json_schema(inputs, by_alias=True, schema_generator=GenerateJsonSchema)
    definitions: dict[str, Any] = made["$defs"]
    for model in (*MODELS.values(), *_nested()):
        _polish(definitions[model.__name__], model)
    for name in list(definitions):
        definitions[f"{name}Part"] = _part(definitions[name])
    sections = {
        section: (
            _entries({"$ref": refs[model, _MODE]["$ref"]}, section),
            _entries(_or_null({"$ref": f"{refs[model, _MODE]['$ref']}Part"}), section),
        )
        for section, model in MODELS.items()
    }
    whole = {section: entries for section, (entries, _) in sections.items()}
    parts = {section: entries for section, (_, entries) in sections.items()}
    return {
        "$schema": _DIALECT,
        "title": "multilane.yaml",
        "description": "The configuration of a multilane app.",
        "type": "object",
        "additionalProperties": False,
        "properties": {**whole, "shovels": whole["errorConsumers"], "profiles": _profiles(parts)},
        "patternProperties": {"^x-": {"description": "For anchors; otherwise ignored."}},
        "$defs": definitions,
    }


def _nested() -> list[type[Frozen]]:
    from multilane.config.app.cluster import Auth, ErrorConfig, ProducerDefaults
    from multilane.config.app.consumer import ErrorBreaker, RetryBackoff
    from multilane.config.app.registry import SchemaRegistryConfig

    return [Auth, ErrorConfig, ProducerDefaults, SchemaRegistryConfig, RetryBackoff, ErrorBreaker]


def _entries(entry: dict[str, Any], section: str) -> dict[str, Any]:
    field = {key_of(name, info): info for name, info in AppConfig.model_fields.items()}[section]
    return {"type": ["object", "null"], "description": field.description, "additionalProperties": entry}


def _profiles(parts: dict[str, Any]) -> dict[str, Any]:
    profile = {
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {**parts, "shovels": parts["errorConsumers"]},
    }
    return {
        "type": ["object", "null"],
        "description": "Sections by profile name; the selected profile overlays the common sections.",
        "additionalProperties": profile,
    }


def _polish(definition: JsonSchemaValue, model: type[Frozen]) -> None:
    """Removes entry names and titles, which only repeat the keys, and adds units to default times and sizes."""
    properties = definition["properties"]
    properties.pop(ENTRY_NAME, None)
    definition["required"] = [key for key in definition.get("required", ()) if key != ENTRY_NAME]
    if model.spellings and "groupProtocol" in properties:
        properties["group.protocol"] = copy.deepcopy(properties["groupProtocol"])
    for name, info in model.model_fields.items():
        property_ = properties.get(key_of(name, info))
        kind = kind_of(info)
        if property_ is None:
            continue
        property_.pop("title", None)
        default = property_.get("default")
        if kind is not None and kind.form == "duration" and default is not None:
            property_["default"] = format_duration(default)
        if kind is not None and kind.form == "size" and default is not None:
            property_["default"] = format_size(default)


def _part(definition: JsonSchemaValue) -> JsonSchemaValue:
    """The same with no required keys at any level, and with null allowed, which removes the common value."""
    part = {key: _redirected(value) for key, value in definition.items() if key != "required"}
    part["properties"] = {key: _or_null(held) for key, held in part["properties"].items()}
    return part


def _or_null(held: JsonSchemaValue) -> JsonSchemaValue:
    facts = {key: value for key, value in held.items() if key in ("description", "default", "examples")}
    return {"anyOf": [{key: value for key, value in held.items() if key not in facts}, {"type": "null"}], **facts}


def _redirected(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: f"{v}Part" if k == "$ref" else _redirected(v) for k, v in value.items()}
    return [_redirected(item) for item in value] if isinstance(value, list) else value
