"""Reads the values of keys: one kind per notation, with its JSON Schema.

Thread: none (pure).

A kind takes a node of a file (`Scalar`, `Listing`, `Branch`) or a Python value passed in code. It refuses what it
cannot read with `Unfit`, which states what to write. The caller, which knows the key, decides whether to show the
value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import core_schema

from multilane.config.addresses import parse_addresses
from multilane.config.app.files.tree import Branch, Listing, Scalar
from multilane.config.app.schedule import NotASchedule, Schedule, time_zone_of
from multilane.config.app.units import LARGEST_SIZE, NotAUnit, parse_duration, parse_size
from multilane.config.properties import INT_MAX
from multilane.errors import ConfigError, printable
from multilane.secret import Secret

_KAFKA_PORT: Final = 9092
_VARIABLE: Final = r"\$\{"
_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_DECIMAL: Final = re.compile(r"([0-9]{0,18}(?:\.[0-9]{1,18})?)\s*(%?)", re.ASCII)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_FLAGS: Final = {"true": True, "false": False, "yes": True, "no": False, "on": True, "off": False}
_OFFSETS: Final = {"newest": "newest", "offsetnewest": "newest", "latest": "newest",
                   "oldest": "oldest", "offsetoldest": "oldest", "earliest": "oldest"}  # fmt: skip
_ACKS: Final = {
    "noresponse": "0", "0": "0", "waitforlocal": "1", "1": "1", "waitforall": "all", "-1": "all", "all": "all",
}  # fmt: skip


class Unfit(ValueError):
    """`shown` is False if the value may hold a secret, or if `what` is enough. `plainer` replaces a text that
    repeats a part of the value, for values that must not be repeated."""

    def __init__(self, fix: str, *, what: str = "", shown: bool = True, plainer: str = "") -> None:
        self.fix, self.what, self.shown, self.plainer = fix, what, shown, plainer
        super().__init__(fix)


@dataclass(frozen=True, slots=True, eq=False)
class FieldKind:
    """Metadata for pydantic: how to read a value, and its schema for editors."""

    read: Callable[[object], object]
    schema: Mapping[str, object]
    secret: bool = False
    form: str = ""  # duration | size: how to format the value

    def __get_pydantic_core_schema__(self, _source: Any, _handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(
        self, _core: core_schema.CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return dict(self.schema)


def _or_variable(schema: Mapping[str, object], pattern: str = "") -> dict[str, object]:
    """An environment variable may stand for a number or a word."""
    return {"anyOf": [dict(schema), {"type": "string", "pattern": f"{pattern}|{_VARIABLE}" if pattern else _VARIABLE}]}


def text_of(value: object) -> str:
    """The text of a single value; numbers and flags are texts too, as written."""
    if isinstance(value, Scalar):
        value = value.text
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise Unfit("write a string", what="this is not a single value", shown=False)
    text = str(value) if isinstance(value, str) or abs(value) < 10**30 else ""
    if _SURROGATE.search(text) is not None:
        raise Unfit("write valid UTF-8", what="the text comes from bytes that are not UTF-8", shown=False)
    return text.strip()


def _text(value: object) -> str:
    text = text_of(value)
    if not text or not text.isprintable():
        raise Unfit("write printable characters", what="" if text else "it is empty", shown=bool(text))
    return text


def _topic(value: object) -> str:
    text = text_of(value)
    if _TOPIC.fullmatch(text) is None or text in (".", ".."):
        raise Unfit("write a topic name: 1 to 249 of the characters A-Z a-z 0-9 . _ -")
    return text


def _secret(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    text, source = (value.text, value.written) if isinstance(value, Scalar) else (value, "")
    if not isinstance(text, str) or not text or _SURROGATE.search(text) is not None:
        raise Unfit("write it as ${NAME}, or as a quoted string", what="expected a string", shown=False)
    is_filled = isinstance(value, Scalar) and bool(value.variables)
    return Secret(text, source if is_filled else None)


def _url(value: object) -> str:
    text = _text(value)
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise Unfit("write an address such as https://host:8081", what="this is not an http address", shown=False)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise Unfit("write the login under its own keys", what="it has a login or parameters", shown=False)
    return text.rstrip("/")


def _flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    known = _FLAGS.get(text_of(value).lower())
    if known is None:
        raise Unfit("write true or false")
    return known


def _seconds(value: object, *, zero: bool) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value) if abs(value) < 10**18 else math.inf
        if not math.isfinite(seconds) or seconds < 0:
            raise Unfit("give seconds, zero or more")
    else:
        try:
            seconds = parse_duration(text_of(value))
        except NotAUnit as error:
            raise _unfit_from(str(error)) from None
    if not seconds and not zero:
        raise Unfit("write a duration above zero, for example 1s")
    return seconds


def _unfit_from(text: str) -> Unfit:
    """Splits a sentence of the form `what is wrong; what to write`."""
    what, _, fix = text.partition("; ")
    return Unfit(fix or "correct it", what=what)


def _size(value: object) -> int:
    try:
        size = value if isinstance(value, int) and not isinstance(value, bool) else parse_size(text_of(value))
    except NotAUnit as error:
        raise _unfit_from(str(error)) from None
    return size


def size(low: int, high: int = LARGEST_SIZE) -> FieldKind:
    """A number of bytes within bounds."""

    def read(value: object) -> int:
        found = _size(value)
        if not low <= found <= high:
            raise Unfit(f"write a size between {low} and {high} bytes")
        return found

    pattern = r"^\s*[0-9]+([.,][0-9]+)?\s*([kKmMgG]?[iI]?[bB]?)\s*$"
    return FieldKind(read, _or_variable({"type": "integer", "minimum": low, "maximum": high}, pattern), form="size")


def whole(low: int, high: int = INT_MAX) -> FieldKind:
    """A whole number within bounds."""

    def read(value: object) -> int:
        found = value
        if isinstance(value, bool) or not isinstance(value, int):
            text = text_of(value)
            found = int(text) if _WHOLE.fullmatch(text) is not None else None
        if not isinstance(found, int) or not low <= found <= high:
            raise Unfit(f"write a whole number from {low} to {high}")
        return found

    return FieldKind(read, _or_variable({"type": "integer", "minimum": low, "maximum": high}, "^[0-9]+$"))


def decimal(low: float, high: float, *, share: bool = False) -> FieldKind:
    """A number that may have a fraction; a share may also be a percentage."""

    def read(value: object) -> float:
        found = math.nan
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            found = float(value) if abs(value) < 10**18 else math.inf
        elif (match := _DECIMAL.fullmatch(text_of(value))) is not None and match[1]:
            found = float(match[1]) / (100 if match[2] else 1) if share or not match[2] else math.nan
        if not low <= found <= high:
            raise Unfit(f"write a number from {low:g} to {high:g}" + (", or 1% to 100%" if share else ""))
        return found

    pattern = r"^[0-9]*(\.[0-9]+)?\s*%?$" if share else r"^[0-9]*(\.[0-9]+)?$"
    return FieldKind(read, _or_variable({"type": "number", "minimum": low, "maximum": high}, pattern))


def words(meanings: Mapping[str, str | None], offered: Iterable[str]) -> FieldKind:
    """One of a few words, in any case."""
    offered = tuple(offered)

    def read(value: object) -> str | None:
        if value is None and None in meanings.values():
            return None
        folded = text_of(value).lower()
        if folded not in meanings:
            raise Unfit(f"write {', '.join(offered[:-1])} or {offered[-1]}")
        return meanings[folded]

    return FieldKind(read, _or_variable({"enum": list(offered)}))


def choice(*offered: str) -> FieldKind:
    return words({word: word for word in offered}, offered)


def _several(value: object) -> list[object]:
    if isinstance(value, Listing):
        return list(value.items)
    return list(value) if isinstance(value, (list, tuple)) else [value]


def _topics(value: object) -> tuple[str, ...]:
    found = [_topic(item) for item in _several(value)]
    if not found or len(set(found)) != len(found):
        raise Unfit("name one or more topics, each once", what="the list is empty or names a topic twice", shown=False)
    return tuple(found)


def _paths(value: object) -> tuple[str, ...]:
    return tuple(_text(item) for item in _several(value))


def _brokers(value: object) -> tuple[str, ...]:
    """host:port entries, separated by commas, spaces or line ends; the default port is Kafka's."""
    parts = [part for item in _several(value) for part in re.split(r"[,\s]+", text_of(item)) if part]
    try:
        addresses = parse_addresses("brokers", [_with_port(part) for part in parts])
    except ConfigError as error:
        what, _, fix = str(error).removeprefix("brokers: ").removeprefix("brokers ").partition("; ")
        plainer = "write host:port, or several separated by commas"
        raise Unfit(fix or plainer, what=what, shown=False, plainer=plainer) from None
    return tuple(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses)


def _with_port(part: str) -> str:
    return f"{part}:{_KAFKA_PORT}" if part.endswith("]") or ":" not in part else part


def _cron(value: object) -> str:
    text = text_of(value)
    try:
        Schedule.parse(text)
    except NotASchedule as error:
        raise Unfit(str(error)) from None
    return text


def _zone(value: object) -> str:
    text = text_of(value)
    try:
        time_zone_of(text)
    except NotASchedule as error:
        raise _unfit_from(str(error)) from None
    return text


def _lane_classes(value: object) -> dict[str, int]:
    pairs: dict[str, object]
    if isinstance(value, Branch):
        pairs = {entry.key: entry.node for entry in value.entries.values()}
    elif isinstance(value, Mapping):
        pairs = dict(value)
    else:
        raise Unfit("write class names with numbers of lanes, such as {slow: 5}", what="this is not a mapping")
    read = whole(1, 100_000).read
    found = {}
    for name, lanes in pairs.items():
        if not name.isprintable() or not 0 < len(name) <= 100:
            raise Unfit("write 1 to 100 printable characters", what="the name of a class is not valid", shown=False)
        try:
            found[name] = int(str(read(lanes)))
        except Unfit as error:
            raise Unfit(
                error.fix, what=f"the class {printable(name, 60)} has no number of lanes", shown=False
            ) from None
    return found


_DURATION_SCHEMA: Final = {
    "type": "string",
    "pattern": rf"^\+?([0-9]*\.?[0-9]+(ns|us|ms|s|m|h))+$|^0$|{_VARIABLE}",
    "examples": ["500ms", "10s", "5m", "1h30m"],
}
_TEXT_SCHEMA: Final = {"type": ["string", "number", "boolean"]}
_LIST_SCHEMA: Final = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "string"}]}

Text = Annotated[str, FieldKind(_text, _TEXT_SCHEMA)]
Url = Annotated[str, FieldKind(_url, {"type": "string", "pattern": rf"^https?://|{_VARIABLE}"})]
TopicName = Annotated[str, FieldKind(_topic, {"type": "string", "pattern": rf"^[A-Za-z0-9._-]{{1,249}}$|{_VARIABLE}"})]
TopicList = Annotated[tuple[str, ...], FieldKind(_topics, _LIST_SCHEMA)]
Paths = Annotated[tuple[str, ...], FieldKind(_paths, _LIST_SCHEMA)]
Brokers = Annotated[tuple[str, ...], FieldKind(_brokers, _LIST_SCHEMA)]
Hidden = Annotated[Secret, FieldKind(_secret, {"type": "string", "writeOnly": True}, secret=True)]
Flag = Annotated[bool, FieldKind(_flag, _or_variable({"type": "boolean"}, "^([Yy]es|[Nn]o|[Oo]n|[Oo]ff|true|false)$"))]
Seconds = Annotated[float, FieldKind(lambda v: _seconds(v, zero=False), _DURATION_SCHEMA, form="duration")]
SecondsOrZero = Annotated[float, FieldKind(lambda v: _seconds(v, zero=True), _DURATION_SCHEMA, form="duration")]
Cron = Annotated[str, FieldKind(_cron, {"type": "string", "examples": ["*/5 * * * *", "@every 10m", "@daily"]})]
Zone = Annotated[str, FieldKind(_zone, {"type": "string", "examples": ["Europe/Berlin", "UTC"]})]
StartOffset = Annotated[
    str, words(_OFFSETS, ("newest", "oldest", "OffsetNewest", "OffsetOldest", "latest", "earliest"))
]
Acks = Annotated[str, words(_ACKS, ("NoResponse", "WaitForLocal", "WaitForAll", "0", "1", "all"))]
LaneClasses = Annotated[
    Mapping[str, int],
    FieldKind(
        _lane_classes, {"type": "object", "additionalProperties": _or_variable({"type": "integer", "minimum": 1})}
    ),
]
