"""Publishing until a copy is acknowledged: the loop's side, with a producer whose answers are scripted."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import Future
from dataclasses import replace

import pytest

from multilane.client.produce.delivery import RecordMetadata
from multilane.client.produce.producer import Producer
from multilane.errors import (
    BrokerError,
    ClientClosed,
    ClientFailed,
    ConfigError,
    NetworkError,
    OperationTimeout,
    PublishStopped,
)
from multilane.outcome.next_step import Publish
from multilane.outcome.outbox import Outbox
from multilane.outcome.producer_slot import ProducerSlot
from multilane.outcome.publishing import Pauses, Publisher

COPY = Publish("orders.retry", 3, b"k", None, (("a", b"1"), ("a", None)), "orders-3@17")
SOON = Pauses(first=0.001, longest=0.002)
TOO_LARGE = BrokerError(10, "a record to orders.retry")


class Scripted:
    """A producer whose answers are decided beforehand: an error to raise, an error for the future, or an offset."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sent = []
        self.closed = threading.Event()

    def send(self, topic, value, key, headers, partition):
        self.sent.append((topic, value, key, headers, partition))
        answer = self.answers.pop(0) if self.answers else len(self.sent)
        if isinstance(answer, tuple):
            raise answer[0]
        future = Future()
        if isinstance(answer, Exception):
            future.set_exception(answer)
        elif answer is not None:
            future.set_result(RecordMetadata(topic, partition or 0, answer, 0))
        return future

    def close(self, timeout=None):
        self.closed.set()


def scripted(*answers, **settings):
    producer = Scripted(*answers)
    return producer, Publisher(lambda: producer, pauses=SOON, **settings)


async def test_the_acknowledged_place_is_returned():
    producer, publisher = scripted(42)
    assert await publisher.publish(COPY) == (3, 42)
    assert producer.sent == [("orders.retry", None, b"k", (("a", b"1"), ("a", None)), 3)]
    assert publisher.waiting == 0
    await publisher.close()
    assert producer.closed.is_set()


WITH_STACK = replace(COPY, headers=(("a", b"1"), ("X-ErrorStack", b"Traceback")))


async def test_a_copy_that_its_stack_makes_too_large_goes_without_it():
    producer, publisher = scripted(TOO_LARGE, 42)
    assert await publisher.publish(WITH_STACK) == (3, 42)
    assert [headers for *_, headers, _ in producer.sent] == [WITH_STACK.headers, (("a", b"1"),)]
    assert publisher.problems == {}
    await publisher.close()


async def test_copies_in_order_go_without_a_stack_that_is_too_large():
    producer, publisher = scripted(7, TOO_LARGE, 9, 10)
    assert await publisher.publish_in_order([COPY, WITH_STACK]) == [(3, 7), (3, 9)]
    assert producer.sent[-1][3] == (("a", b"1"),)
    await publisher.close()


@pytest.mark.parametrize(
    "failure",
    [
        NetworkError("gone"),
        OperationTimeout("too late"),
        BrokerError(3),
        BrokerError(29),
        (OperationTimeout("no room"),),
        ClientClosed("purged"),
        TOO_LARGE,
        (TypeError("odd"),),
    ],
    ids=repr,
)
async def test_a_copy_that_is_not_stored_is_sent_again(failure):
    """If the retry or error topic refused a copy, its record was marked done anyway, and was lost."""
    producer, publisher = scripted(failure, failure, 7)
    assert await publisher.publish(COPY) == (3, 7)
    assert producer.sent == [producer.sent[0]] * 3
    await publisher.close()


class Log(Scripted):
    """Stores copies that are not answered with a failure."""

    def __init__(self, *answers):
        super().__init__(*answers)
        self.stored = []

    def send(self, topic, value, key, headers, partition):
        if not self.answers or self.answers[0] is None:
            self.answers[:1] = [len(self.stored)]
            self.stored.append(value)
        return super().send(topic, value, key, headers, partition)


GONE = NetworkError("gone")


@pytest.mark.parametrize(
    ("answers", "stored", "offsets"),
    [
        ([], "01234", [0, 1, 2, 3, 4]),
        ([GONE] * 5, "01234", [0, 1, 2, 3, 4]),
        ([GONE], "1234" + "01234", [4, 5, 6, 7, 8]),
        ([None, None, GONE, None, GONE], "013" + "234", [0, 1, 3, 4, 5]),
        ([None, (GONE,), None, None, None, GONE, GONE, GONE, GONE], "0234" + "1234", [0, 4, 5, 6, 7]),
    ],
    ids=["all", "none at first", "the first fails", "some", "twice"],
)
async def test_copies_in_order_end_in_their_order_whichever_fail(answers, stored, offsets):
    """Each copy was resent by itself: copies behind a failed one were stored before it."""
    log = Log(*answers)
    publisher = Publisher(lambda: log, pauses=SOON)
    copies = [replace(COPY, value=b"%d" % n) for n in range(5)]
    assert await publisher.publish_in_order(copies) == [(3, offset) for offset in offsets]
    assert b"".join(log.stored).decode() == stored
    assert publisher.waiting == 0
    await publisher.close()


async def test_copies_in_order_are_stopped_like_others():
    publisher = Publisher(lambda: Scripted(1, None), pauses=SOON)
    task = asyncio.create_task(publisher.publish_in_order([COPY, COPY]))
    await asyncio.wait([task], timeout=0.01)
    publisher.stop()
    with pytest.raises(PublishStopped):
        await asyncio.wait_for(task, 5)
    with pytest.raises(PublishStopped):
        await publisher.publish_in_order([COPY])
    assert await publisher.publish_in_order([]) == []
    await publisher.close()


async def test_a_record_counts_as_published_only_when_acknowledged(caplog):
    publisher = Publisher(lambda: Scripted(None), pauses=Pauses(first=1_000, longest=1_000))
    task = asyncio.create_task(publisher.publish(COPY))
    done, _ = await asyncio.wait([task], timeout=0.05)
    assert not done
    assert publisher.waiting == 1
    publisher.stop()
    with pytest.raises(PublishStopped):
        await asyncio.wait_for(task, 5)
    assert caplog.records == [], "a stop is not a problem of the topic"
    await publisher.close()


async def test_a_failure_that_is_heard_of_after_the_stop_makes_nobody_wait():
    publisher = Publisher(lambda: Scripted(None), pauses=Pauses(first=1_000, longest=1_000))
    task = asyncio.create_task(publisher.publish(COPY))
    await asyncio.wait([task], timeout=0.01)
    (waiter,) = publisher._outbox._waiting
    waiter.set_exception(NetworkError("gone"))
    publisher.stop()
    with pytest.raises(PublishStopped):
        await asyncio.wait_for(task, 5)
    await publisher.close()


async def test_stop_ends_pauses_and_later_calls():
    producer = Scripted(*[NetworkError("gone")] * 5)
    publisher = Publisher(lambda: producer, pauses=Pauses(first=1_000, longest=1_000))
    task = asyncio.create_task(publisher.publish(COPY))
    while not publisher._resting:
        await asyncio.wait([task], timeout=0.01)
    assert publisher.waiting == 1
    publisher.stop()
    with pytest.raises(PublishStopped):
        await task
    with pytest.raises(PublishStopped):
        await publisher.publish(COPY)
    assert len(producer.sent) == 1
    await publisher.close()


async def test_problems_are_logged_once_when_they_begin_and_once_when_they_end(caplog):
    reported = []
    gone = NetworkError("gone")
    _, publisher = scripted(*[gone] * 4, BrokerError(29), on_problem=lambda *news: reported.append(news))
    with caplog.at_level(logging.WARNING):
        await publisher.publish(COPY)
        await publisher.publish(COPY)
    assert [(topic, type(error).__name__) for topic, error in reported] == [
        ("orders.retry", "NetworkError"),
        ("orders.retry", "BrokerError"),
        ("orders.retry", "NoneType"),
    ]
    assert len(caplog.records) == 3
    assert publisher.problems == {}
    await publisher.close()


async def test_many_waiting_copies_make_one_piece_of_news(caplog):
    _, publisher = scripted(*[NetworkError("gone")] * 100)
    await asyncio.gather(*(publisher.publish(COPY) for _ in range(100)))
    assert len([r for r in caplog.records if r.levelno == logging.ERROR]) <= 2
    await publisher.close()


async def test_a_copy_that_the_topic_never_takes_is_logged_as_an_error_with_its_origin(caplog):
    _, publisher = scripted(*[TOO_LARGE] * 25)
    await publisher.publish(COPY)
    loud = [r for r in caplog.records if r.levelno == logging.ERROR]
    assert len(loud) == 2, "at first, and again after a while"
    assert "orders-3@17" in loud[0].getMessage()
    await publisher.close()


async def test_a_listener_that_fails_does_not_cost_a_record(caplog):
    def listener(topic, error):
        raise RuntimeError("mine")

    _, publisher = scripted(NetworkError("gone"), 5, on_problem=listener)
    assert await publisher.publish(COPY) == (3, 5)
    await publisher.close()


async def test_a_producer_that_failed_for_good_is_replaced_once():
    first = Scripted(*[ClientFailed("fatal")] * 3)
    made = [first, Scripted()]
    handed = []

    def make():
        handed.append(made.pop(0))
        return handed[-1]

    publisher = Publisher(make, pauses=Pauses(first=0.05, longest=0.05))
    await asyncio.gather(*(publisher.publish(COPY) for _ in range(3)))
    assert first.closed.is_set()
    assert len(handed) == 2
    assert len(handed[1].sent) == 3
    await publisher.close()


async def test_many_acknowledgements_ring_the_loop_once(monkeypatch):
    loop = asyncio.get_running_loop()
    producer = Scripted(*[None] * 1_000)
    pending = []
    send = producer.send
    producer.send = lambda *record: pending.append(send(*record)) or pending[-1]
    outbox = Outbox(ProducerSlot(lambda: producer))
    waiters = [outbox.send(COPY) for _ in range(1_000)]
    while len(pending) < 1_000:
        await asyncio.wait(waiters, timeout=0.01)
    rings = []
    ring = loop.call_soon_threadsafe
    monkeypatch.setattr(loop, "call_soon_threadsafe", lambda *call: rings.append(call) or ring(*call))

    def acknowledge():  # the loop cannot listen before all of them are in
        for n, future in enumerate(pending):
            future.set_result(RecordMetadata("t", 0, n, 0))

    thread = threading.Thread(target=acknowledge)
    thread.start()
    thread.join()
    stored = await asyncio.gather(*waiters)
    assert [s.offset for s in stored] == list(range(1_000))
    assert len(rings) == 1
    outbox.close()


async def test_a_copy_that_was_abandoned_while_it_queued_is_not_sent():
    gate = threading.Event()
    producer = Scripted()
    send = producer.send
    producer.send = lambda *record: gate.wait(5) and send(*record)
    outbox = Outbox(ProducerSlot(lambda: producer))
    first, second = outbox.send(COPY), outbox.send(COPY)
    second.cancel()
    gate.set()
    await first
    third = outbox.send(COPY)
    await third
    assert len(producer.sent) == 2
    assert outbox.waiting == 0
    outbox.close()


async def test_without_a_broker_the_record_stays_unsettled(caplog):
    """The real producer, without a broker."""
    properties = {"bootstrap.servers": "127.0.0.1:1", "delivery.timeout.ms": 50, "linger.ms": 0}
    failed = asyncio.Event()
    publisher = Publisher(lambda: Producer(properties), on_problem=lambda *news: failed.set(), pauses=SOON)
    task = asyncio.create_task(publisher.publish(COPY))
    await asyncio.wait_for(failed.wait(), 20)
    assert not task.done()
    publisher.stop()
    with pytest.raises(PublishStopped):
        await task
    await publisher.close(0)


async def test_a_wrong_property_is_reported_before_records_fail():
    with pytest.raises(ConfigError, match="acks"):
        Publisher(lambda: Producer({"bootstrap.servers": "127.0.0.1:1", "acks": "sometimes"}))


def test_a_closed_slot_makes_nothing():
    slot = ProducerSlot(lambda: pytest.fail("made"))
    slot.close()
    with pytest.raises(ClientClosed):
        slot.get()
