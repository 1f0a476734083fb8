"""What a function is called with and returns, by its annotations, and its way to the workers."""

from __future__ import annotations

import subprocess
import sys
import threading
from functools import partial
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row
from pyspark.sql.types import DoubleType, LongType

from multilane.engines.dataframe.rows.function import pack, read_function
from multilane.errors import ConfigError
from multilane.listeners.signature import ListenerKind


def plain(row) -> int: ...
async def with_default(row: Row, limit: int = 3) -> float: ...
def as_dict(row: dict[str, Any]) -> int: ...
def several(rows: list[Row]) -> list[int]: ...
def several_or_errors(rows: list) -> list[int | Exception]: ...
def columns(rows: pa.RecordBatch) -> list[float]: ...


@pytest.mark.parametrize(
    ("function", "kind", "is_async", "argument", "returns"),
    [
        (plain, ListenerKind.SINGLE, False, Row, LongType()),
        (with_default, ListenerKind.SINGLE, True, Row, DoubleType()),
        (as_dict, ListenerKind.SINGLE, False, dict, LongType()),
        (several, ListenerKind.BATCH, False, Row, LongType()),
        (several_or_errors, ListenerKind.BATCH, False, Row, LongType()),
        (columns, ListenerKind.COLUMNS, False, dict, DoubleType()),
        (partial(with_default, limit=1), ListenerKind.SINGLE, True, Row, DoubleType()),
    ],
)
def test_annotations_decide(function, kind, is_async, argument, returns):
    found, kind_of_result = read_function(function)
    assert (found.kind, found.is_async, found.argument) == (kind, is_async, argument)
    assert kind_of_result == returns


def generator(row):
    yield 1


def of_two(row, other) -> int: ...
def unsaid(row): ...
def batch_unsaid(rows: list[Row]) -> pa.Array: ...
def unresolved(row: Nowhere) -> int: ...  # noqa: F821


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (generator, "generator .* is a generator: return instead of yield"),
        (
            of_two,
            "of_two .* one parameter without a default, the row; it has: row, other. Bind others with functools.p",
        ),
        (lambda: 1, "it has: none"),
        (unsaid, r"unsaid .* does not say what it returns: annotate it, or pass returns="),
        (batch_unsaid, r"does not say what it returns for each row, as list\[...\]"),
        (unresolved, "cannot resolve its annotations: name 'Nowhere' is not defined"),
    ],
)
def test_functions_that_are_refused(function, message):
    with pytest.raises(ConfigError, match=message):
        read_function(function)


def test_what_cannot_be_shipped_is_said_in_one_sentence():
    lock = threading.Lock()

    def guarded(row) -> int:
        with lock:
            return 1

    with pytest.raises(
        ConfigError, match=r"guarded .* cannot be shipped .* cannot pickle '_thread.lock' object. It ref"
    ):
        pack(read_function(guarded)[0])


NOTEBOOK = """
from dataclasses import dataclass, field
from multilane.engines.dataframe.rows.function import pack, read_function
@dataclass
class Item:
    name: str
@dataclass
class Order:
    id: int
    items: list[Item] = field(default_factory=list)
def ask(row: Order) -> int:
    return row.id + len(row.items)
import sys
sys.stdout.buffer.write(pack(read_function(ask)[0]))
"""
WORKER = """
import sys
from multilane.engines.dataframe.rows.arguments import Arguments
from multilane.engines.dataframe.rows.function import unpack
function = unpack(sys.stdin.buffer.read())
argument = Arguments(function.argument).of({"id": 3, "items": [{"name": "a"}]})
print(function.function(argument), argument.items[0].name)
"""


def test_dataclasses_of_a_notebook_are_still_dataclasses_in_a_worker():
    packed = subprocess.run([sys.executable, "-c", NOTEBOOK], capture_output=True, check=True).stdout
    ran = subprocess.run([sys.executable, "-c", WORKER], input=packed, capture_output=True, check=False)
    assert ran.stdout.split() == [b"4", b"a"], ran.stderr.decode()
