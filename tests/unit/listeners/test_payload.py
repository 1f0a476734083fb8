"""Decoding bytes into the type that a function asks for, never with a value in an error."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict  # typing has it, but pydantic needs what came with 3.12

from lane_world import record_of
from multilane.errors import ConfigError, UndecodablePayload
from multilane.listeners.payload import decoder_for

SECRET = "a very private thing"


class Model(BaseModel):
    item: str
    price: int


@dataclass
class Data:
    item: str
    price: int


class Typed(TypedDict):
    item: str
    price: int


JSON = b'{"item": "apples", "price": 3}'


@pytest.mark.parametrize(
    ("wanted", "value", "found"),
    [
        (bytes, b"\x00\xff", b"\x00\xff"),
        (str, "gr\u00fcn".encode(), "gr\u00fcn"),
        (dict, JSON, {"item": "apples", "price": 3}),
        (dict[str, Any], JSON, {"item": "apples", "price": 3}),
        (Model, JSON, Model(item="apples", price=3)),
        (Data, JSON, Data("apples", 3)),
        (Typed, JSON, {"item": "apples", "price": 3}),
        (int, b"17", 17),
        (Model | None, JSON, Model(item="apples", price=3)),
        (Model | None, None, None),
        (bytes | None, None, None),
    ],
)
def test_payloads(wanted, value, found):
    assert decoder_for(wanted)(record_of("a", 0)._replace(value=value)) == found


@pytest.mark.parametrize(
    ("wanted", "value", "said"),
    [
        (str, b"\xff", "not UTF-8"),
        (Model, b"{", "not a valid Model"),
        (Model, f'{{"item": "{SECRET}", "price": "{SECRET}"}}'.encode(), "price: "),
        (Data, b"[]", "not a valid Data"),
        (Model, None, "null"),
        (dict, SECRET.encode(), "not a valid dict"),
    ],
)
def test_what_cannot_be_decoded_says_where_and_never_what(wanted, value, said):
    with pytest.raises(UndecodablePayload, match=said) as caught:
        decoder_for(wanted)(record_of("a", 0)._replace(value=value))
    assert SECRET not in str(caught.value)


def test_msgspec_structs():
    class Struct(msgspec.Struct):
        item: str
        price: int

    decode = decoder_for(Struct)
    assert decode(record_of("a", 0)._replace(value=JSON)) == Struct("apples", 3)
    with pytest.raises(UndecodablePayload, match="not a valid Struct"):
        decode(record_of("a", 0)._replace(value=b"{}"))


@pytest.mark.parametrize("wanted", [Any, object])
def test_a_payload_needs_a_type(wanted):
    with pytest.raises(ConfigError, match="must have a type"):
        decoder_for(wanted)
