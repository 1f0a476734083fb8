"""The types of results, and results as columns."""

from __future__ import annotations

import datetime
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict
from uuid import UUID

import numpy as np
import pytest
from pydantic import BaseModel
from pyspark.sql import Row
from pyspark.sql.types import LongType, StructType

from multilane.engines.dataframe.rows.result_columns import ResultColumn
from multilane.engines.dataframe.rows.result_types import spark_type
from multilane.errors import ConfigError


class Level(Enum):
    LOW = "low"
    HIGH = "high"


@dataclass
class Item:
    name: str
    price: Decimal


class Answer(BaseModel):
    score: float
    items: list[Item] = []
    level: Level | None = None
    by_name: dict[str, int] = {}


class Named(NamedTuple):
    a: int
    b: str | None


class Typed(TypedDict):
    a: int


class Recursive(BaseModel):
    inner: Recursive | None = None


Number = NewType("Number", int)


@pytest.mark.parametrize(
    ("returns", "text"),
    [
        (int, "bigint"),
        (bool, "boolean"),
        (Optional[str], "string"),  # noqa: UP045
        (bytes | None, "binary"),
        (Annotated[float, "euro"], "double"),
        (Number, "bigint"),
        (datetime.datetime, "timestamp"),
        (datetime.date, "date"),
        (Level, "string"),
        (Literal[1, 2], "bigint"),
        (UUID, "string"),
        (list[int], "array<bigint>"),
        (tuple[str, ...], "array<string>"),
        (dict[str, list[float]], "map<string,array<double>>"),
        (Item, "struct<name:string,price:decimal(38,18)>"),
        (Named, "struct<a:bigint,b:string>"),
        (Typed, "struct<a:bigint>"),
        (LongType(), "bigint"),
        (None, "string"),
        (
            Answer,
            "struct<score:double,items:array<struct<name:string,price:decimal(38,18)>>,level:string,"
            "by_name:map<string,bigint>>",
        ),
    ],
)
def test_the_types_of_annotations(returns, text):
    assert spark_type(returns).simpleString() == text


@pytest.mark.parametrize(
    ("returns", "message"),
    [
        (Any, "result is .*Any, which has no Spark type"),
        (dict, "result is dict, which has no Spark type"),
        (int | str, "has no Spark type"),
        (dict[str, list[object]], "an item of a value of result is object"),
        (Recursive, r"result.inner contains itself \(Recursive\)"),
    ],
)
def test_types_that_spark_does_not_have(returns, message):
    with pytest.raises(ConfigError, match=message):
        spark_type(returns)


def columns(returns, *values):
    column, faults = ResultColumn(spark_type(returns)).column(list(values))
    return column.to_pylist(), faults


def test_values_become_columns():
    one = Answer(score=1, items=[Item("a", Decimal("1.5"))], level=Level.LOW, by_name={"x": 1})
    expected = {"score": 1.0, "items": [{"name": "a", "price": Decimal("1.5")}], "level": "low", "by_name": [("x", 1)]}
    found, faults = columns(Answer, one, None, one.model_copy(update={"items": []}))
    assert found == [expected, None, expected | {"items": []}]
    assert faults == {}
    assert columns(Answer, one, one)[0] == [expected] * 2, "by column, where all are of one class"


@pytest.mark.parametrize(
    "value", [Named(1, "x"), Row(a=1, b="x"), {"a": 1, "b": "x"}, (1, "x"), namedtuple("N", "b a")("x", 1)]
)
def test_what_a_struct_may_be(value):
    assert columns(Named, value) == ([{"a": 1, "b": "x"}], {})
    assert columns(Named, value, None) == ([{"a": 1, "b": "x"}, None], {})


def test_plain_values():
    instant = datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
    [found], _ = columns(datetime.datetime, instant)
    assert found == instant
    naive = datetime.datetime(2026, 1, 2, 3)
    [found], _ = columns(datetime.datetime, naive)
    assert found == naive.astimezone(), "as in Spark: of this process's zone"
    assert columns(int, 1, None, np.int64(3)) == ([1, None, 3], {})
    assert columns(float, 1, 2.5) == ([1.0, 2.5], {})
    assert columns(list[int], (1, 2), None) == ([[1, 2], None], {})
    assert columns(UUID, UUID(int=1))[0] == [str(UUID(int=1))]


@pytest.mark.parametrize(
    ("returns", "value", "fault"),
    [
        (int, "1", "result is str, and has to be bigint"),
        (int, 1.5, "result is float, and has to be bigint"),
        (int, True, "result is bool, and has to be bigint"),
        (int, 1 << 70, "result is int, and has to be bigint"),
        (str, 1, "result is int, and has to be string"),
        (bool, 1, "result is int, and has to be boolean"),
        (datetime.date, 5, "result is int, and has to be date"),
        (datetime.datetime, "2026-01-01", "result is str, and has to be timestamp"),
        (list[int], "ab", "result is str, and has to be array<bigint>"),
        (list[int], [1, "b"], "an item of result is str, and has to be bigint"),
        (Named, {"a": 1, "c": 2}, "result has a field 'c', and its type is struct<a:bigint,b:string>"),
        (Named, {"a": "one"}, "result.a is str, and has to be bigint"),
        (Named, Named("one", None), "result.a is str, and has to be bigint"),
        (Named, 5, "result is int, and has to be struct<a:bigint,b:string>"),
        (Named, (1, 2, 3), "result is tuple, and has to be struct<a:bigint,b:string>"),
        (Named, Item("a", Decimal(1)), "result is Item, which has no field 'a'"),
        (
            Answer,
            Answer.model_construct(score=1.0, items=[Item("a", "b")]),
            "price is str, and has to be decimal(38,18)",
        ),
    ],
)
def test_a_value_that_does_not_fit_is_null_and_the_others_are_there(returns, value, fault):
    found, faults = columns(returns, None, value, None)
    assert found == [None] * 3
    [(at, text)] = faults.items()
    assert at == 1
    assert text.endswith(fault)


def test_fields_that_a_dict_leaves_out_are_null():
    assert columns(Named, {"a": 1}) == ([{"a": 1, "b": None}], {})


def test_an_empty_struct_type_is_no_obstacle():
    assert ResultColumn(StructType([])).column([None])[1] == {}
