"""What a listener returns is stored before its record is settled; a record whose result is not stored has failed."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pyarrow as pa
import pytest

from lane_world import World, record_of, turns, until
from multilane.errors import BrokerError, PublishStopped, ResultNotStored, broker_error
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.context import Context
from multilane.listeners.window import Window
from multilane.outcome.next_step import Publish
from multilane.runtime.results import Result, ResultsRoute, messages_of
from multilane.wire.records.record import Record

TOO_LARGE = 10


class Topic:
    """Takes results when `gate` is set; refuses those that are longer than ten bytes."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()
        self.stored: list[Publish] = []
        self.is_stopped = False

    async def offer(self, copy):
        await self.gate.wait()
        if self.is_stopped:
            raise PublishStopped("stopped")
        if len(copy.value) > 10:
            raise broker_error(TOO_LARGE, "too large")
        self.stored.append(copy)
        return 0, len(self.stored) - 1

    @property
    def values(self) -> list[bytes | None]:
        return [message.value for message in self.stored]


def world(handler, topic, **options):
    return World(handler, rules=WorkRules(results=ResultsRoute("results", topic)), **options)


async def with_record(record: Record) -> str:
    return record.value.decode() * 2


async def with_context(record: Record, context: Context) -> str:
    return record.value.decode() * 2


def on_a_thread(record: Record) -> str:
    return record.value.decode() * 2


@pytest.mark.parametrize("handler", [with_record, with_context, on_a_thread])
async def test_each_result_is_stored_under_the_key_of_its_record(handler):
    topic = Topic()
    async with world(handler, topic) as w:
        await w.give("a", "b", "a")
        await until(lambda: w.is_done)
    assert {(m.topic, m.key, m.value) for m in topic.stored} == {
        ("results", b"a", b"00"),
        ("results", b"b", b"11"),
        ("results", b"a", b"22"),
    }


async def test_a_record_is_settled_when_its_result_is_stored_and_its_key_waits_until_then():
    topic, begun = Topic(), []
    topic.gate.clear()

    async def handler(record: Record) -> str:
        begun.append(record.offset)
        return "x"

    async with world(handler, topic) as w:
        await w.give("a", "a", "b")
        assert (begun, w.frontier) == ([0, 2], 0)
        topic.gate.set()
        await turns()
        assert (begun, w.frontier) == ([0, 2, 1], 3)


async def test_none_is_no_result_and_a_list_has_several():
    topic = Topic()
    answers = {0: None, 1: ["x", None, "y"], 2: ()}

    async def handler(record: Record):
        return answers[record.offset]

    async with world(handler, topic) as w:
        await w.give("a", "b", "c")
        assert w.frontier == 3
    assert topic.values == [b"x", b"y"]


@pytest.mark.parametrize("value", ["x" * 11, object()], ids=["too large", "no form"])
async def test_a_result_that_cannot_be_stored_fails_its_record_alone(value):
    topic = Topic()

    async def handler(record: Record):
        return value if record.offset == 1 else "x"

    async with world(handler, topic) as w:
        await w.give("a", "b", "c")
        assert (w.failures.failed, w.frontier) == ([(1, "ResultNotStored")], 3)
    assert topic.values == [b"x", b"x"]


async def test_nothing_is_settled_when_publishing_stops():
    topic = Topic()
    topic.gate.clear()
    async with world(with_record, topic) as w:
        await w.give("a")
        topic.is_stopped = True
        topic.gate.set()
        await turns()
        assert (w.failures.failed, w.frontier) == ([], 0)


async def test_a_call_that_failed_has_no_result():
    topic = Topic()

    async def handler(record: Record) -> str:
        raise ValueError

    async with world(handler, topic) as w:
        await w.give("a")
        assert w.failures.failed == [(0, "ValueError")]
    assert topic.values == []


# --- batches ---------------------------------------------------------------------------------------------------------

THREE = Window(3, 1.0)


async def in_a_list(records: list[Record]):
    return [r.value.decode() for r in records]


async def in_columns(batch: pa.RecordBatch):
    return pa.array([value.decode() for value in batch.column("value").to_pylist()])


@pytest.mark.parametrize("handler", [in_a_list, in_columns])
async def test_a_batch_returns_one_result_for_each_record_and_they_are_sent_in_its_order(handler):
    topic = Topic()
    async with world(handler, topic, window=THREE) as w:
        await w.give("a", "a", "b")
        assert (w.frontier, w.failures.failed) == (3, [])
    assert [(m.key, m.value) for m in topic.stored] == [(b"a", b"0"), (b"a", b"1"), (b"b", b"2")]


async def test_exceptions_among_the_results_are_failures_of_their_records():
    topic = Topic()

    async def handler(records: list[Record]):
        return ["x", ValueError("no"), "y" * 11]

    async with world(handler, topic, window=THREE) as w:
        await w.give("a", "b", "c")
        assert (sorted(w.failures.failed), w.frontier) == ([(1, "ValueError"), (2, "ResultNotStored")], 3)
    assert topic.values == [b"x"]


async def test_a_batch_that_returns_another_number_of_results_fails_and_publishes_none():
    topic = Topic()

    async def handler(records: list[Record]):
        return ["x"]

    async with world(handler, topic, window=THREE) as w:
        await w.give("a", "b", "c")
        assert sorted(w.failures.failed) == [(n, "WrongResult") for n in range(3)]
    assert topic.values == []


async def test_a_dict_still_means_failures():
    topic = Topic()

    async def handler(records: list[Record]):
        return {records[1]: ValueError("no")}

    async with world(handler, topic, window=THREE) as w:
        await w.give("a", "b", "c")
        assert (w.failures.failed, w.frontier) == ([(1, "ValueError")], 3)
    assert topic.values == []


# --- messages --------------------------------------------------------------------------------------------------------


@dataclass
class Total:
    amount: int


@pytest.mark.parametrize(
    ("returned", "value"),
    [(b"\x00", b"\x00"), ("ä", "ä".encode()), (Total(3), b'{"amount":3}'), ({"a": [1]}, b'{"a":[1]}'), (0, b"0")],
)
def test_bytes_and_text_are_sent_as_they_are_and_everything_else_as_json(returned, value):
    assert [message.value for message in messages_of("results", record_of("a", 7), returned)] == [value]


def test_a_result_may_have_its_own_key_and_headers():
    record = record_of("a", 7)
    [message] = messages_of("results", record, Result("x", key="other", headers={"h": "v", "none": None}))
    assert (message.key, message.headers) == (b"other", (("h", b"v"), ("none", None)))
    [message] = messages_of("results", record, Result("x", key=None))
    assert message.key is None
    [message] = messages_of("results", record, Result(None))
    assert (message.key, message.value) == (b"a", None)


def test_the_error_says_which_record_and_what_it_returned():
    with pytest.raises(ResultNotStored, match=r"^the result of t-3@7 is a object, which has no JSON form: "):
        messages_of("results", record_of("a", 7), object())


async def test_the_error_of_a_topic_that_refuses_names_the_setting():
    record = record_of("a", 7)
    [error] = (await ResultsRoute("results", Topic()).store([record], ["x" * 11])).values()
    assert str(error).startswith("topic results does not take the result of t-3@7: ")
    assert "max.message.bytes" in str(error)
    assert isinstance(error.__cause__, BrokerError)
