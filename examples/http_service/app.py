"""Sends each order to the shipping service: many at once, and those of one customer in order.

    KAFKA_BROKERS=localhost:9092 SHIPPING_URL=http://localhost:8080 python app.py

SIGTERM or Ctrl-C ends it after the calls in flight.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from pathlib import Path

import aiohttp
from pydantic import BaseModel

from multilane import App

CONFIGURATION = Path(__file__).with_name("multilane.yaml")
TIMEOUT = aiohttp.ClientTimeout(total=10)


class Order(BaseModel):
    id: int
    customer: str
    item: str


async def main() -> None:
    app = App(CONFIGURATION)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, app.stop)

    # One pool of connections, open from before the first order until after the last.
    async with aiohttp.ClientSession(os.environ["SHIPPING_URL"], timeout=TIMEOUT, raise_for_status=True) as shipping:

        @app.listener("orders")
        async def ship(order: Order) -> None:
            # After a crash an order may come again: the service knows it by this key.
            headers = {"Idempotency-Key": str(order.id)}
            async with shipping.post("/shipments", json=order.model_dump(), headers=headers):
                pass  # any status from 400 on has raised: the order goes to the retry topic

        await app.serve()


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    asyncio.run(main())
