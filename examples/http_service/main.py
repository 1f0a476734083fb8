"""Runs app.py between a Kafka and a shipping service on this machine, and checks every delivery.

    python examples/http_service/main.py

Stops and deletes what it has started, also after Ctrl-C.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from multilane import Admin, AsyncConsumer, MultilaneError, Producer, Record, TopicPartition
from multilane.dev import KafkaCluster
from shipping import ShippingService

APP = Path(__file__).with_name("app.py")
ERRORS = TopicPartition("orders.error", 0)
TOPICS = {"orders": 4, "orders.retry": 4, ERRORS.topic: 1}
ORDERS, CUSTOMERS = 400, 20
REFUSED = 123
PATIENCE_SECONDS = 240.0


def orders() -> Iterator[tuple[str, bytes, bytes]]:
    for number in range(ORDERS):
        customer = f"customer-{number % CUSTOMERS:02}"
        order = {"id": number, "customer": customer, "item": "unicorn" if number == REFUSED else "pear"}
        yield "orders", json.dumps(order).encode(), customer.encode()


def fill(brokers: str) -> None:
    with Admin({"bootstrap.servers": brokers}) as admin:
        admin.create_topics(TOPICS)
    with Producer({"bootstrap.servers": brokers}) as producer:
        producer.send_many(orders()).result()


@asynccontextmanager
async def application(log: Path, environ: dict[str, str]) -> AsyncIterator[Process]:
    with log.open("wb") as out:
        # A process group of its own: Ctrl-C is for this script, which then stops the app.
        process = await asyncio.create_subprocess_exec(
            sys.executable, APP, env=os.environ | environ, stdout=out, stderr=out, process_group=0
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def first_error(brokers: str) -> Record:
    async with AsyncConsumer({"bootstrap.servers": brokers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([ERRORS])
        return await anext(aiter(consumer))


async def deliver(brokers: str, service: ShippingService, log: Path) -> Record:
    """Runs the app until all orders but one were delivered, and returns that one's copy in the error topic."""

    async def completed() -> Record:
        await service.accepted(ORDERS - 1)
        return await first_error(brokers)

    async with service.listening() as url, application(log, {"KAFKA_BROKERS": brokers, "SHIPPING_URL": url}) as app:
        error, ended = asyncio.create_task(completed()), asyncio.create_task(app.wait())
        await asyncio.wait((error, ended), timeout=PATIENCE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not error.done():
            sys.exit(f"failed: {len(service.shipments)} of {ORDERS} orders were delivered\n{log.read_text()}")
        return error.result()


def by_customer(numbers: Iterable[int]) -> list[int]:
    """The orders of one customer after those of another; within a customer the sequence stays."""
    return sorted(numbers, key=lambda number: number % CUSTOMERS)


def problems(service: ShippingService, error: Record) -> Iterator[str]:
    if sorted(service.shipments) != [number for number in range(ORDERS) if number != REFUSED]:
        yield "the delivered orders are not those that were sent"
    if by_customer(service.shipments) != by_customer(sorted(service.shipments)):
        yield "a customer's orders were delivered out of order"
    if json.loads(error.value or b"{}").get("id") != REFUSED:
        yield f"the first record of {error.topic} is not order {REFUSED}"


def main() -> int:
    with TemporaryDirectory(prefix="multilane-http-") as folder, KafkaCluster() as kafka:
        fill(kafka.bootstrap())
        print(f"Kafka runs on {kafka.bootstrap()} and has {ORDERS} orders of {CUSTOMERS} customers")
        service = ShippingService(refused=REFUSED)
        error = asyncio.run(deliver(kafka.bootstrap(), service, Path(folder, "app.log")))
    reason = dict(error.headers)["X-ErrorMessage"] or b""
    print(f"{len(service.shipments)} orders were delivered, {len(service.busy)} of them after a 503")
    print(f"order {REFUSED} is in {error.topic}: {reason.decode()}")
    found = list(problems(service, error))
    for problem in found:
        print(f"failed: {problem}", file=sys.stderr)
    if not found:
        print("ok: each order was delivered once, and each customer's orders in order")
    return len(found) > 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: stop what was started
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("stopped")
    except MultilaneError as error:
        sys.exit(f"failed: {error}")
