"""A listener: arguments, interceptors, tracers, contexts."""

from __future__ import annotations

import threading

import pytest
from pydantic import BaseModel

from lane_world import record_of
from multilane.errors import UndecodablePayload
from multilane.lanes.threads import Threads
from multilane.listeners.context import Context, current_context
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import Listener
from multilane.listeners.signature import read_signature
from multilane.listeners.window import Window
from multilane.wire.records.record import Record


class Order(BaseModel):
    item: str


class Tracing:
    def __init__(self, name: str, entries: list[str]) -> None:
        self.name, self.entries = name, entries

    def start(self, context, name, record):
        self.entries.append(f"{self.name} begins {name} {record.offset}")
        return lambda error: self.entries.append(f"{self.name} ends {type(error).__name__}")


class Filling:
    def __init__(self, entries: list[str]) -> None:
        self.entries = entries

    def on_consume(self, context, record):
        context["user"] = dict(record.headers).get("user")
        if context["user"] == b"nobody":
            raise PermissionError("nobody may not")

    def on_error(self, context, record, error):
        self.entries.append(f"{context['user']} {record.offset} {type(error).__name__}")


def listener(function, *, window=None, **around) -> Listener:
    interceptors = InterceptorChain("g", span="handling", **around)
    return Listener(function, read_signature(function), window or Window(), interceptors, Threads("lane"))


def with_user(user: bytes, offset: int = 0) -> Record:
    return record_of("a", offset, headers=(("user", user),))._replace(value=b'{"item": "apples"}')


async def test_a_function_for_records_alone_is_called_as_it_is():
    async def function(record: Record) -> None: ...

    assert listener(function).call_one is function


async def test_arguments_in_any_order():
    got = []

    async def function(context: Context, order: Order, record: Record) -> None:
        got.append((context["Z-Topic"], context["Z-GroupID"], order.item, record.offset))

    await listener(function).call_one(with_user(b"x", 5))
    assert got == [("t", "g", "apples", 5)]


async def test_the_context_travels_from_interceptor_to_function_and_below():
    entries: list[str] = []
    got = []

    async def function(record: Record) -> None:
        got.append((current_context() or {})["user"])

    await listener(function, interceptors=[Filling(entries)]).call_one(with_user(b"ann"))
    assert got == [b"ann"]
    assert current_context() is None


async def test_a_plain_function_finds_the_context_on_its_thread():
    got = []

    def function(record: Record) -> None:
        got.append(((current_context() or {})["user"], threading.current_thread() is threading.main_thread()))

    await listener(function, interceptors=[Filling([])]).call_one(with_user(b"ann"))
    assert got == [(b"ann", False)]


async def test_error_interceptors_get_the_context_of_the_attempt():
    entries: list[str] = []

    async def function(record: Record) -> None:
        raise ValueError("no")

    filling = Filling(entries)
    called = listener(function, interceptors=[filling], error_interceptors=[filling])
    record = with_user(b"ann", 3)
    with pytest.raises(ValueError, match="no") as caught:
        await called.call_one(record)
    called.interceptors.on_failure(record, caught.value)
    assert entries == ["b'ann' 3 ValueError"]


@pytest.mark.parametrize("has_last_step", [False, True])
async def test_a_last_step_gets_the_context_of_the_attempt(has_last_step):
    async def function(record: Record, context: Context) -> None:
        context["found"] = "by the function"
        raise ValueError("no")

    called = listener(function, has_last_step=has_last_step)
    record = with_user(b"ann", 3)
    with pytest.raises(ValueError, match="no") as caught:
        await called.call_one(record)
    context = called.interceptors.on_failure(record, caught.value)
    assert context.get("found") == ("by the function" if has_last_step else None)
    assert called.interceptors._failed == {}


async def test_an_interceptor_that_raises_fails_the_record():
    async def function(record: Record) -> None:
        raise AssertionError("not called")

    with pytest.raises(PermissionError):
        await listener(function, interceptors=[Filling([])]).call_one(with_user(b"nobody"))


async def test_tracers_hear_of_the_end_whatever_it_is():
    entries: list[str] = []

    async def function(record: Record) -> None:
        if record.offset:
            raise ValueError("no")

    called = listener(function, tracers=[Tracing("one", entries), Tracing("two", entries)])
    await called.call_one(record_of("a", 0))
    with pytest.raises(ValueError, match="no"):
        await called.call_one(record_of("a", 1))
    assert entries == [
        *("one begins handling 0", "two begins handling 0", "two ends NoneType", "one ends NoneType"),
        *("one begins handling 1", "two begins handling 1", "two ends ValueError", "one ends ValueError"),
    ]


class Broken:
    def start(self, context, name, record):
        return self.end

    def end(self, error):
        raise RuntimeError("no collector")

    def on_error(self, context, record, error):
        raise RuntimeError("no collector")


async def test_what_watches_records_and_fails_does_not_flood_the_log(caplog):
    async def function(record: Record) -> None: ...

    called = listener(function, tracers=[Broken()], error_interceptors=[Broken()])
    for offset in range(50):
        await called.call_one(record_of("a", offset))
        called.interceptors.on_failure(record_of("a", offset), ValueError("no"))
    assert [r.getMessage().partition(" Record")[0] for r in caplog.records] == ["a tracer failed at the end of"]


async def test_in_a_batch_what_cannot_be_decoded_or_is_refused_fails_alone():
    got = []

    async def function(orders: list[Order]) -> None:
        got.append([order.item for order in orders])

    records = [with_user(b"a", 0), with_user(b"nobody", 1), with_user(b"b", 2)._replace(value=b"?"), with_user(b"c", 3)]
    failures = await listener(function, window=Window(4, 1.0), interceptors=[Filling([])]).call_many(records)
    assert got == [["apples", "apples"]]
    assert {r.offset: type(e) for r, e in failures.items()} == {1: PermissionError, 2: UndecodablePayload}


async def test_a_batch_of_nothing_but_undecodable_ones_calls_nobody():
    async def function(orders: list[Order]) -> None:
        raise AssertionError("not called")

    failures = await listener(function, window=Window(2, 1.0)).call_many([record_of("a", 0), record_of("b", 1)])
    assert len(failures) == 2
