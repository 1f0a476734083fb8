"""Models and JSON Schemas as Spark types."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Optional

import pytest
from pydantic import BaseModel

from multilane.errors import ConfigError
from multilane.spark.typed import struct_of


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Item(BaseModel):
    name: str
    price: float = 0.0


class Order(BaseModel):
    id: int
    paid: bool
    placed: datetime
    due: date | None = None
    items: list[Item]
    first: Optional[Item] = None  # noqa: UP045 - as many write it
    tags: dict[str, int] = {}
    colour: Colour = Colour.RED


class Folder(BaseModel):
    inside: list[Folder] = []


class Odd(BaseModel):
    either: int | str


def test_a_model():
    assert struct_of(Order).simpleString() == (
        "struct<id:bigint,paid:boolean,placed:timestamp,due:date,items:array<struct<name:string,price:double>>,"
        "first:struct<name:string,price:double>,tags:map<string,bigint>,colour:string>"
    )


@dataclass
class Line:
    sku: str
    count: int | None
    note: str = ""


def test_a_dataclass_and_what_is_required():
    assert struct_of(Line).simpleString() == "struct<sku:string,count:bigint,note:string>"
    assert [field.nullable for field in struct_of(Line).fields] == [False, True, True]
    required = [field.name for field in struct_of(Order).fields if not field.nullable]
    assert required == ["id", "paid", "placed", "items"]


def test_a_json_schema():
    schema = {"type": "object", "properties": {"a": {"type": ["string", "null"]}, "b": {"enum": ["x", "y"]}}}
    assert struct_of(schema).simpleString() == "struct<a:string,b:string>"
    made = struct_of(Item)
    assert struct_of(made) is made


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (Odd, r"the payload\.either is of several types"),
        (Folder, r"contains itself \(Folder\)"),
        (int, "is not a payload type"),
        ({"type": "array", "items": {"type": "integer"}}, "of an object"),
        ({"type": "object"}, "the payload is object in a form"),
    ],
)
def test_what_spark_has_no_type_for(model, said):
    with pytest.raises(ConfigError, match=said):
        struct_of(model)
