"""Messages in bytes, names, and producers without a broker."""

from __future__ import annotations

import json
import logging
import threading
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from types import MappingProxyType
from typing import ClassVar
from uuid import UUID

import msgspec
import pydantic
import pytest

from multilane.errors import ClientClosed, ConfigError, MultilaneError, ProduceFailed, UnsendableRequest
from multilane.listeners.context import CURRENT, Context
from multilane.runtime.produced_messages import CustomMessage, Message, body_bytes, copy_of, key_bytes
from multilane.runtime.producing import Producers

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 100, "linger.ms": 0}


class Model(pydantic.BaseModel):
    config_name: ClassVar[str] = "orders"
    key: str
    at: datetime


class Struct(msgspec.Struct):
    n: int


@dataclass
class Plain:
    n: int
    inner: object = None


class Color(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("body", "stored"),
    [
        (None, None),
        (b"raw", b"raw"),
        (b"", b""),
        (bytearray(b"b"), b"b"),
        (memoryview(b"m"), b"m"),
        ("t\u00e4xt", "t\u00e4xt".encode()),
        ({"a": [1, None, "\u00e4"]}, b'{"a":[1,null,"\xc3\xa4"]}'),
        ([1, 2], b"[1,2]"),
        (7, b"7"),
        (Plain(1, Plain(2)), b'{"n":1,"inner":{"n":2,"inner":null}}'),
        (Struct(3), b'{"n":3}'),
        ({"s": Struct(3), "c": Color.RED, "d": Decimal("1.10")}, b'{"s":{"n":3},"c":"red","d":"1.10"}'),
        ({"u": UUID(int=1)}, b'{"u":"00000000-0000-0000-0000-000000000001"}'),
        ({"m": MappingProxyType({"x": 1}), "s": {1}}, b'{"m":{"x":1},"s":[1]}'),
        (datetime(2026, 1, 2, tzinfo=UTC), b'"2026-01-02T00:00:00+00:00"'),
    ],
    ids=repr,
)
def test_bodies(body, stored):
    assert body_bytes(body) == stored


def test_models_are_written_by_pydantic():
    model = Model(key="k", at=datetime(2026, 1, 2, tzinfo=UTC))
    assert body_bytes(model) == b'{"key":"k","at":"2026-01-02T00:00:00Z"}'
    assert json.loads(body_bytes({"list": [model]}))["list"][0]["at"] == "2026-01-02T00:00:00Z"


def test_what_has_no_json_form_is_refused():
    with pytest.raises(UnsendableRequest, match="object has no JSON form"):
        body_bytes({"x": object()})


@pytest.mark.parametrize(
    ("key", "stored"), [(None, None), ("", None), (b"", None), ("k", b"k"), (b"k", b"k"), (0, b"0"), (17, b"17")]
)
def test_an_empty_key_is_no_key(key, stored):
    assert key_bytes(key) == stored


def test_an_object_without_a_body_is_its_own_body():
    model = Model(key="k7", at=datetime(2026, 1, 2, tzinfo=UTC))
    assert copy_of(model) == Message("orders", "k7", model)


class Letter:
    """Methods instead of attributes."""

    headers = MappingProxyType({"h": "1"})
    body = b"x"

    def config_name(self):
        return "letters"

    def key(self):
        return "k"


def test_names_may_be_methods_and_headers_a_mapping():
    assert copy_of(Letter()) == Message("letters", "k", b"x", [("h", "1")])


def test_a_draft_is_not_the_message_itself():
    message = Message("orders", "k", b"x", [("a", b"1")])
    draft = copy_of(message)
    draft.headers.append(("b", b"2"))
    assert message.headers == [("a", b"1")]
    assert copy_of(CustomMessage("t", "c", "k", b"x")) == CustomMessage("t", "c", "k", b"x")


@pytest.mark.parametrize("message", [{"key": "k"}, object(), CustomMessage(None, "c"), "text"])
def test_what_is_no_message_is_refused(message):
    with pytest.raises(UnsendableRequest, match="config_name"):
        copy_of(message)


# --- producers -------------------------------------------------------------------------------------------------------


@pytest.fixture
def producers():
    with Producers({"Orders": ("shop.orders", "Main")}, {"main": NOWHERE}) as made:
        yield made


def test_names_are_the_same_in_any_case(producers):
    assert producers.topic("ORDERS") == ("shop.orders", "Main")
    assert producers.producer("MAIN") is producers.producer("main")


def test_an_unknown_name_says_what_was_meant(producers):
    with pytest.raises(ConfigError, match=r"no producer topic 'order' .*; did you mean orders\?"):
        producers.produce(Message("order"))
    with pytest.raises(ConfigError, match=r"no cluster 'zzz' .*; configured: main"):
        producers.produce(CustomMessage("t", "zzz"))


def test_nothing_is_made_before_it_is_used():
    broken = Producers({}, {"main": {"bootstrap.servers": "127.0.0.1:1", "acks": "sometimes"}})
    with pytest.raises(ConfigError, match="acks"):
        broken.produce(CustomMessage("t", "main"))
    broken.close()


def test_a_bulk_with_a_message_that_cannot_be_sent_is_not_begun(producers):
    with pytest.raises(ConfigError):
        producers.produce_bulk([Message("orders", body=b"1"), Message("nowhere")])
    assert producers.producer("main").handle is None


def test_a_bulk_that_fails_names_every_message(producers):
    with pytest.raises(ProduceFailed) as caught:
        producers.produce_bulk((Message("orders", body=b"%d" % n) for n in range(5)), size=2)
    places = [place for place, _ in caught.value.failures]
    assert places == [0, 1, 2, 3, 4]
    assert "5 of 5 messages were not stored" in str(caught.value)
    assert "not sent" in str(caught.value.failures[-1][1])


@pytest.mark.parametrize("size", [0, 2])
def test_nothing_is_sent_of_a_bulk_that_holds_what_cannot_be(size):
    """What was sent before it was on its way, and its futures were lost."""
    with Producers({"orders": ("t", "main")}, {"main": NOWHERE}) as producers:
        messages = [*(Message("orders", body=b"x") for _ in range(4)), Message("nobody", body=b"x")]
        with pytest.raises(ConfigError):
            producers.produce_async_bulk(messages, size)
        assert producers._slots["main"].get().handle is None, "no producer was started"


@pytest.mark.parametrize("size", [0, -1, 1, 100])
def test_an_empty_bulk_is_stored_at_once(producers, size):
    assert producers.produce_bulk([], size) == []
    assert producers.produce_async_bulk([], size) == []


def test_a_failure_nobody_asked_about_is_logged(producers, caplog, eventually):
    with caplog.at_level(logging.ERROR):
        future = producers.produce_async(Message("orders", body=b"x"))
        assert isinstance(future.exception(20), MultilaneError)
        eventually(lambda: "a message to shop.orders was not stored" in caplog.text)


def test_a_callback_is_reported(producers, caplog):
    told, done = [], threading.Event()

    def callback(stored, error):
        told.append((stored, error))
        done.set()

    producers.produce_async(Message("orders", body=b"x"), callback=callback)
    assert done.wait(20)
    assert told[0][0] is None
    assert isinstance(told[0][1], MultilaneError)
    assert "was not stored" not in caplog.text


class Stamp:
    def on_produce(self, context, message):
        message.headers.append(("trace", context["trace"]))
        message.key = f"{message.key}!"
        message.body["seen"] = True


def test_interceptors_change_what_is_sent():
    with Producers({"orders": ("t", "main")}, {"main": NOWHERE}, interceptors=[Stamp()]) as producers:
        message = Message("orders", "k", {"n": 1})
        record = producers._ready(message, {"trace": "abc"}).record
    assert record.key == b"k!"
    assert json.loads(record.value) == {"n": 1, "seen": True}
    assert record.headers == (("trace", b"abc"),)
    assert message.headers == []


def test_interceptors_get_the_context_of_the_record_in_work():
    seen = []

    class Look:
        def on_produce(self, context, message):
            seen.append(context)

    with Producers({"orders": ("t", "main")}, {"main": NOWHERE}, interceptors=[Look()]) as producers:
        token = CURRENT.set(Context({"trace": "abc"}))
        try:
            producers._ready(Message("orders", "k", b""), None)
            producers._ready(Message("orders", "k", b""), {"trace": "another"})
        finally:
            CURRENT.reset(token)
        producers._ready(Message("orders", "k", b""), None)
    assert seen == [Context({"trace": "abc"}), {"trace": "another"}, None]


async def test_closed_producers_send_nothing():
    producers = Producers({"orders": ("t", "main")}, {"main": NOWHERE})
    producers.close()
    producers.close()
    with pytest.raises(ClientClosed):
        producers.produce(Message("orders"))
    with pytest.raises(ClientClosed):
        await producers.aproduce(Message("orders"))
