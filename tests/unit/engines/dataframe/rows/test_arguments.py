"""Rows of Arrow batches as what functions are called with."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from decimal import Decimal

import pyarrow as pa
import pytest
from pydantic import BaseModel, ConfigDict
from pyspark.sql import Row

from multilane.engines.dataframe.rows.arguments import Arguments, needed_columns
from multilane.errors import ConfigError, UndecodablePayload

AT = datetime.datetime(2026, 1, 2, 3, 4, tzinfo=datetime.UTC)
BATCH = pa.RecordBatch.from_pydict(
    {
        "id": pa.array([1, None], pa.int64()),
        "at": pa.array([AT, None], pa.timestamp("us", "Europe/Berlin")),
        "in": pa.array([{"a": 1, "more": [{"b": "x"}]}, None]),
        "by": pa.array([[("k", {"b": "y"})], None], pa.map_(pa.string(), pa.struct([("b", pa.string())]))),
        "no": pa.array([Decimal("1.50"), None]),
    }
)


class Inner(BaseModel):
    a: int
    more: list[dict[str, str]] = []


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: int | None
    at: datetime.datetime | None = None


@dataclass
class Data:
    id: int
    no: Decimal


class Recursive(BaseModel):
    id: int
    before: Recursive | None = None


def given(wanted, batch=BATCH):
    arguments = Arguments(wanted)
    return [arguments.of(value) for value in arguments.values(batch)]


def test_a_row_is_that_of_spark():
    first, second = given(Row)
    assert first["in"] == Row(a=1, more=[Row(b="x")])
    assert first["in"].more[0].b == "x"
    assert first.at == AT.astimezone().replace(tzinfo=None)
    assert first.by == {"k": Row(b="y")}
    assert first.asDict(recursive=True)["in"] == {"a": 1, "more": [{"b": "x"}]}
    assert tuple(second) == (None,) * 5


def test_a_dict_is_plain_python():
    first, second = given(dict)
    assert first == {
        "id": 1,
        "at": AT,
        "in": {"a": 1, "more": [{"b": "x"}]},
        "by": {"k": {"b": "y"}},
        "no": Decimal("1.50"),
    }
    assert set(second.values()) == {None}


def test_a_model_gets_its_columns_and_no_others():
    assert given(Strict) == [Strict(id=1, at=AT), Strict(id=None)]
    assert given(Data, BATCH.slice(0, 1)) == [Data(1, Decimal("1.50"))]
    with pytest.raises(UndecodablePayload, match="the row is not a valid Data: id: Input should be a valid integer"):
        given(Data, BATCH.slice(1))


def test_what_a_model_needs():
    assert set(needed_columns(Strict)) == {"id"}
    assert set(needed_columns(Data)) == {"id", "no"}
    assert needed_columns(Recursive) == ("id",)
    assert given(Recursive, BATCH.slice(0, 1)) == [Recursive(id=1)]
    assert needed_columns(Row) == needed_columns(dict) == ()


@pytest.mark.parametrize("wanted", [int, list[int], object])
def test_what_rows_cannot_be_made_into(wanted):
    with pytest.raises(ConfigError, match=r"a row cannot be made into .*pydantic model"):
        needed_columns(wanted)
