"""Reading what a function takes from its signature."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pyarrow as pa
import pytest
from pydantic import BaseModel

from multilane.errors import ConfigError
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.context import Context
from multilane.listeners.signature import ListenerKind, Wants, read_signature
from multilane.wire.records.record import Record


class Order(BaseModel):
    item: str


def plain(record): ...
def single(record: Record) -> None: ...
async def typed(order: Order, record: Record) -> None: ...
def dictionary(order: dict[str, int]) -> None: ...
def batch(records: list[Record]) -> None: ...
def bare_list(records: list) -> None: ...
def sequence(records: Sequence[Record]) -> None: ...
def payloads(orders: list[Order]) -> None: ...
async def columns(batch: pa.RecordBatch) -> None: ...
def surrounded(context: Context, value: bytes, done: Acknowledgement) -> None: ...
def with_default(record: Record, flag: bool = True) -> None: ...


class Callable:
    async def __call__(self, record: Record) -> None: ...

    def method(self, record: Record) -> None: ...


@pytest.mark.parametrize(
    ("function", "kind", "is_async", "wants", "payload"),
    [
        (plain, ListenerKind.SINGLE, False, [Wants.RECORD], None),
        (single, ListenerKind.SINGLE, False, [Wants.RECORD], None),
        (typed, ListenerKind.SINGLE, True, [Wants.PAYLOAD, Wants.RECORD], Order),
        (dictionary, ListenerKind.SINGLE, False, [Wants.PAYLOAD], dict[str, int]),
        (batch, ListenerKind.BATCH, False, [Wants.RECORDS], None),
        (bare_list, ListenerKind.BATCH, False, [Wants.RECORDS], None),
        (sequence, ListenerKind.BATCH, False, [Wants.RECORDS], None),
        (payloads, ListenerKind.BATCH, False, [Wants.PAYLOADS], Order),
        (columns, ListenerKind.COLUMNS, True, [Wants.COLUMNS], None),
        (surrounded, ListenerKind.SINGLE, False, [Wants.CONTEXT, Wants.PAYLOAD, Wants.ACKNOWLEDGEMENT], bytes),
        (with_default, ListenerKind.SINGLE, False, [Wants.RECORD], None),
        (Callable(), ListenerKind.SINGLE, True, [Wants.RECORD], None),
        (Callable().method, ListenerKind.SINGLE, False, [Wants.RECORD], None),
        (functools.partial(with_default, flag=False), ListenerKind.SINGLE, False, [Wants.RECORD], None),
    ],
)
def test_the_signature_decides(function, kind, is_async, wants, payload):
    found = read_signature(function)
    assert (found.kind, found.is_async, [w for _, w in found.parameters]) == (kind, is_async, wants)
    assert found.payload == payload


def nothing() -> None: ...
def both(record: Record, records: list[Record]) -> None: ...
def twice(first: Record, second: Record) -> None: ...
def two_payloads(first: Order, second: bytes) -> None: ...
def unresolved(order: NoSuchThing) -> None: ...  # noqa: F821
def slash(record: Record, /) -> None: ...
def only_context(context: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (nothing, "asks for neither a record nor a batch"),
        (only_context, "asks for neither a record nor a batch"),
        (both, "one by one and in batches"),
        (twice, "'second' asks for the record a second time"),
        (two_payloads, "'second' asks for the payload a second time"),
        (unresolved, "NoSuchThing"),
        (slash, "positional-only"),
    ],
)
def test_an_unknown_signature_is_refused_with_its_source_location(function, said):
    with pytest.raises(ConfigError, match=said) as caught:
        read_signature(function)
    assert "test_signature.py" in str(caught.value)
