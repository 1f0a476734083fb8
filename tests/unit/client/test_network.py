"""The network thread as a whole: a failure reaches every client, and closing ends in time."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from batch_builder import Batch, join, rows
from multilane.client.admin.topics import topic_metadata_call
from multilane.client.consumer import Consumer
from multilane.client.events import BackgroundEvent, EventQueue, FindOffsets
from multilane.client.fetch.backend import Backend
from multilane.client.fetch.buffer import FetchBuffer
from multilane.client.network import NetworkThread
from multilane.client.network_events import Attach, CrashThread, Detach, ForBackend
from multilane.clock import SystemClock
from multilane.config.consumer import ConsumerConfig, parse_consumer
from multilane.errors import ClientClosed, ClientFailed, MultilaneError
from multilane.metrics.observer import Counts
from multilane.types import Node, NodeId, TopicPartition
from multilane.wire.compose import EARLIEST
from multilane.wire.messages import ApiKey
from response_builder import fetch_response, frame_of, framed, list_offsets_response, metadata_response
from scripted_broker import Asked, ScriptedBroker

FAR = 1e9


@pytest.fixture
def silent() -> Iterator[ScriptedBroker]:
    with ScriptedBroker() as broker:
        yield broker


class Client:
    """What a ConsumerState keeps of the network thread."""

    def __init__(self, thread: NetworkThread, config: ConsumerConfig, name: str) -> None:
        self.rung = threading.Event()
        self.background: EventQueue[BackgroundEvent] = EventQueue(self.rung)
        buffer = FetchBuffer(1 << 20, on_ready=lambda: None, on_room=thread.wake)
        self.backend = Backend(config, thread.backend_context(), buffer, self.background, name)
        thread.put(Attach(self.backend))

    def error(self) -> MultilaneError | None:
        event = self.background.pop()
        return None if event is None else event.error


def _thread(port: int) -> tuple[NetworkThread, ConsumerConfig]:
    config = parse_consumer({"bootstrap.servers": f"127.0.0.1:{port}"})
    return NetworkThread(config.connection, SystemClock(), Counts()), config


def _find(client: Client, thread: NetworkThread) -> Future[Any]:
    future: Future[Any] = Future()
    thread.put(ForBackend(client.backend, FindOffsets({TopicPartition("t", 0): EARLIEST}, FAR, future)))
    return future


def _call(thread: NetworkThread) -> Future[Any]:
    call = topic_metadata_call(("t",), FAR)
    thread.put(call)
    return call.future


def test_an_unexpected_exception_is_reported_to_everybody(silent):
    thread, config = _thread(silent.port)
    clients = [Client(thread, config, "fetch-1"), Client(thread, config, "fetch-2")]
    futures = [_find(clients[0], thread), _find(clients[1], thread), _call(thread)]
    thread.start()
    silent.wait_for(ApiKey.METADATA)
    cause = RuntimeError("a bug in a decoder")
    thread.put(CrashThread(cause))
    thread.ended.result(10)
    for error in [c.error() for c in clients] + [f.exception(0) for f in futures]:
        assert isinstance(error, ClientFailed)
        assert error.__cause__ is cause
        assert "a bug in a decoder" in str(error)
    assert thread.failure is not None


def test_what_comes_in_the_same_turn_as_the_crash_is_reported_too(silent):
    thread, config = _thread(silent.port)
    client = Client(thread, config, "fetch-1")
    thread.put(CrashThread(RuntimeError("bug")))
    late = Client(thread, config, "fetch-2")
    futures = [_call(thread), _find(client, thread)]
    leaving: Future[None] = Future()
    thread.put(Detach(client.backend, leaving))
    thread.start()
    thread.ended.result(10)
    assert all(isinstance(f.exception(0), ClientFailed) for f in futures)
    assert leaving.result(0) is None
    assert isinstance(client.error(), ClientFailed)
    assert isinstance(late.error(), ClientFailed)


def test_what_comes_after_the_end_is_refused(silent):
    thread, config = _thread(silent.port)
    client = Client(thread, config, "fetch-1")
    thread.put(CrashThread(RuntimeError("bug")))
    thread.start()
    thread.ended.result(10)
    assert isinstance(_call(thread).exception(0), ClientFailed)
    assert isinstance(_find(client, thread).exception(0), ClientFailed)
    assert isinstance(Client(thread, config, "fetch-3").error(), ClientFailed)


def test_an_exception_in_a_manager_is_reported(silent, monkeypatch):
    thread, config = _thread(silent.port)
    client = Client(thread, config, "fetch-1")

    def broken(_now: float) -> Any:
        raise ZeroDivisionError("a bug in a manager")

    monkeypatch.setattr(client.backend, "poll", broken)
    thread.start()
    thread.ended.result(10)
    assert isinstance(client.error().__cause__, ZeroDivisionError)


def test_stopping_refuses_what_is_pending_and_ends(silent):
    thread, config = _thread(silent.port)
    client = Client(thread, config, "fetch-1")
    futures = [_find(client, thread), _call(thread)]
    thread.start()
    silent.wait_for(ApiKey.METADATA)
    thread.stop()
    thread.ended.result(10)
    assert all(isinstance(f.exception(0), ClientClosed) for f in futures)
    assert thread.failure is None


def test_a_ring_while_the_loop_is_busy_is_not_slept_over(silent, monkeypatch):
    """Decoders and takers ring without an event: the loop must look again, although it had just looked."""
    thread, config = _thread(silent.port)
    Client(thread, config, "fetch-1")
    looked = threading.Semaphore(0)
    rings = [2]
    honest = thread._metadata.poll

    def ring(now: float) -> Any:
        if thread.can_decode and rings[0]:
            rings[0] -= 1
            thread.wake()
            looked.release()
        return honest(now)

    monkeypatch.setattr(thread._metadata, "poll", ring)
    thread.start()
    try:
        for _ in range(2):
            assert looked.acquire(timeout=10)
    finally:
        thread.stop()
        thread.ended.result(10)


def test_only_the_network_thread_may_do_its_work(silent):
    thread, _ = _thread(silent.port)
    with pytest.raises(AssertionError, match="only the network thread may call this"):
        thread.assert_network_thread()
    thread.start()
    thread.stop()
    thread.ended.result(10)


def test_a_consumer_closes_in_time_whatever_the_brokers_do(silent):
    clock = SystemClock()
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{silent.port}", "auto.offset.reset": "earliest"})
    consumer.assign([("t", 0)])
    silent.wait_for(ApiKey.METADATA)
    thread = consumer._state._lease.thread
    began = clock.monotonic()
    consumer.close(timeout=5.0)
    assert clock.monotonic() - began < 5.0
    assert thread.ended.done()
    consumer.close()
    with pytest.raises(ClientClosed):
        consumer.poll()


def test_a_consumer_whose_thread_failed_says_so_at_every_poll(silent):
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{silent.port}", "auto.offset.reset": "earliest"})
    try:
        consumer.assign([("t", 0)])
        thread = consumer._state._lease.thread
        thread.put(CrashThread(RuntimeError("bug")))
        thread.ended.result(10)
        for _ in range(3):
            with pytest.raises(ClientFailed, match="bug"):
                consumer.poll(0.0)
    finally:
        consumer.close()


def test_topics_nobody_may_read_are_raised_by_poll():
    def forbidden(asked: Asked) -> None:
        nodes = [Node(NodeId(1), "127.0.0.1", broker.port)]
        asked.answer(metadata_response(asked.version, nodes, {"t": {}}, codes={"t": 29}))

    with ScriptedBroker() as broker:
        broker.answers[ApiKey.METADATA] = forbidden
        properties = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "auto.offset.reset": "earliest"}
        with Consumer(properties) as consumer:
            consumer.assign([("t", 0)])
            with pytest.raises(MultilaneError, match="TOPIC_AUTHORIZATION_FAILED"):
                consumer.poll(10.0)


LOG = [Batch(rows(3, start=n), n, leader_epoch=1) for n in range(0, 60, 3)]
PARTITION = TopicPartition("t", 0)


class LogBroker(ScriptedBroker):
    """Serves a log of 60 records, and breaks off in the middle of every third Fetch response."""

    def __init__(self) -> None:
        super().__init__()
        self.answers[ApiKey.METADATA] = self._tell_cluster
        self.answers[ApiKey.LIST_OFFSETS] = self._tell_beginning
        self.answers[ApiKey.FETCH] = self._tell_records
        self.served = 0

    def _tell_cluster(self, asked: Asked) -> None:
        asked.answer(metadata_response(asked.version, [Node(NodeId(1), "127.0.0.1", self.port)], {"t": {0: (1, 1)}}))

    def _tell_beginning(self, asked: Asked) -> None:
        asked.answer(list_offsets_response(asked.version, {PARTITION: (0, -1, 0)}))

    def _tell_records(self, asked: Asked) -> None:
        offset = asked.entity.topics[0].partitions[0].fetch_offset
        batches = [b for b in LOG if b.end > offset][:2]
        if not batches:
            return  # a long poll at the end of the log
        partitions = {PARTITION: {"records": join(batches), "high": 60}}
        data = framed(frame_of(fetch_response(asked.version, partitions), asked.correlation_id))
        self.served += 1
        if self.served % 3 == 0:
            asked.send(data[: len(data) // 2])
            asked.hang_up()
        else:
            asked.send(data)


def test_a_log_is_read_whole_over_connections_that_break():
    with LogBroker() as broker:
        properties = {
            "bootstrap.servers": f"127.0.0.1:{broker.port}",
            "auto.offset.reset": "earliest",
            "retry.backoff.ms": 1,
            "reconnect.backoff.ms": 1,
        }
        with Consumer(properties) as consumer:
            consumer.assign([PARTITION])
            offsets: list[int] = []
            while len(offsets) < 60:
                blocks = consumer.poll(10.0)
                assert blocks, "the log does not go on"
                offsets += [o for b in blocks for o in b.offsets.tolist()]
            assert offsets == list(range(60))
            assert consumer.position(PARTITION) == 60
        assert broker.served > 12
