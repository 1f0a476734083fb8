"""Other clients with a consumer and a group for each trigger, as each trigger needs every record.

Thread: confluent-kafka one application thread for each trigger, because its consumers block; aiokafka one loop.

Owns their consumers, which have the clients' defaults. Each record is handed to the same empty function as ours.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final

from aiokafka import AIOKafkaConsumer  # type: ignore[import-untyped]
from confluent_kafka import Consumer

from bench.share.order import CONFLUENT_CONSUME, WINDOW, Order

_POLL_SECONDS: Final = 1.0

Handler = Callable[[Any], None]


def handler_of(counts: list[int], number: int) -> Handler:
    def handle(record: Any) -> None:
        counts[number] += 1

    return handle


class ConfluentThreads:
    def __init__(self, order: Order) -> None:
        self.counts = [0] * order.triggers
        self._order = order
        self._stop = threading.Event()
        read = self._consume if order.system == CONFLUENT_CONSUME else self._poll
        self._threads = [threading.Thread(target=self._run, args=(n, read)) for n in range(order.triggers)]

    def run(self) -> None:
        for thread in self._threads:
            thread.start()
        for thread in self._threads:
            thread.join()

    def stop(self) -> None:
        self._stop.set()

    def _run(self, number: int, read: Callable[[Consumer, Handler], None]) -> None:
        order = self._order
        consumer = Consumer(
            {
                "bootstrap.servers": order.bootstrap,
                "group.id": order.group_of(number),
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([order.topic])
        read(consumer, handler_of(self.counts, number))
        consumer.close()

    def _poll(self, consumer: Consumer, handle: Handler) -> None:
        poll, is_over = consumer.poll, self._stop.is_set
        while not is_over():
            message = poll(_POLL_SECONDS)
            if message is not None and message.error() is None:
                handle(message)

    def _consume(self, consumer: Consumer, handle: Handler) -> None:
        consume, is_over = consumer.consume, self._stop.is_set
        while not is_over():
            for message in consume(WINDOW, _POLL_SECONDS):
                if message.error() is None:
                    handle(message)


class AiokafkaTasks:
    def __init__(self, order: Order) -> None:
        self.counts = [0] * order.triggers
        self._order = order
        self._loop = asyncio.new_event_loop()
        self._is_over = False

    def run(self) -> None:
        self._loop.run_until_complete(self._run_all())
        self._loop.close()

    def stop(self) -> None:
        self._is_over = True

    async def _run_all(self) -> None:
        await asyncio.gather(*(self._run(number) for number in range(self._order.triggers)))

    async def _run(self, number: int) -> None:
        order, handle = self._order, handler_of(self.counts, number)
        consumer = AIOKafkaConsumer(
            order.topic,
            bootstrap_servers=order.bootstrap,
            group_id=order.group_of(number),
            auto_offset_reset="earliest",
        )
        await consumer.start()
        while not self._is_over:
            found = await consumer.getmany(timeout_ms=int(_POLL_SECONDS * 1_000))
            for records in found.values():
                for record in records:
                    handle(record)
        await consumer.stop()
