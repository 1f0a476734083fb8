"""The common base of the configuration's models: frozen, strict about keys, and never showing their input.

Thread: none (pure values).

A field's key in YAML is its name in camel case, unless `key` sets another. Owns the mapping between keys and fields;
holds no field itself.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, Union, get_args, get_origin

from pydantic import AliasGenerator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo

from multilane.config.app.kinds import FieldKind


class Frozen(BaseModel):
    """`spellings` maps further names of a key (in lower case) to its field."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        arbitrary_types_allowed=True,
        alias_generator=AliasGenerator(serialization_alias=to_camel),
    )
    spellings: ClassVar[Mapping[str, str]] = {}


REQUIRED: Final[Any] = ...


def setting(
    doc: str,
    default: Any = REQUIRED,
    *,
    key: str | None = None,
    derived: Callable[[dict[str, Any]], Any] | None = None,
    derived_doc: str = "",
) -> Any:
    """A field with its description. `derived` computes the default from earlier fields, `derived_doc` explains it."""
    facts: dict[str, Any] = {"description": doc + (f" Default: {derived_doc}." if derived_doc else "")}
    if key is not None:
        facts["serialization_alias"] = key
    if derived is not None:
        return Field(default_factory=derived, **facts)
    return Field(default, **facts)


def key_of(name: str, info: FieldInfo) -> str:
    return to_camel(name) if info.serialization_alias is None else info.serialization_alias


def keys_of(model: type[Frozen]) -> dict[str, str]:
    """Field by key as written in files; without the entry's own name, which is the key of the whole entry."""
    return {key_of(name, info): name for name, info in model.model_fields.items() if not is_entry_name(model, name)}


def folded_keys_of(model: type[Frozen]) -> dict[str, str]:
    """Field by key in lower case, with all spellings."""
    return {key.casefold(): name for key, name in keys_of(model).items()} | dict(model.spellings)


def is_entry_name(model: type[Frozen], name: str) -> bool:
    return name == "name" and model.model_fields[name].serialization_alias == ENTRY_NAME


ENTRY_NAME: Final = ""


def nested_model(info: FieldInfo) -> type[Frozen] | None:
    """The model that a field holds, or None."""
    for candidate in _alternatives(info.annotation):
        if isinstance(candidate, type) and issubclass(candidate, Frozen):
            return candidate
    return None


def kind_of(info: FieldInfo) -> FieldKind | None:
    """How the field's value is read and written."""
    annotated = [datum for item in _alternatives(info.annotation) for datum in getattr(item, "__metadata__", ())]
    return next((datum for datum in (*info.metadata, *annotated) if isinstance(datum, FieldKind)), None)


def _alternatives(annotation: object) -> tuple[object, ...]:
    union = get_origin(annotation) in (Union, types.UnionType)
    return get_args(annotation) if union else (annotation,)
