"""A shipping service on loopback. Now and then it is too busy, and one order it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

SECONDS = 0.05  # that a shipment takes


class ShippingService:
    def __init__(self, refused: int) -> None:
        self.shipments: dict[int, str] = {}  # order and customer, as they were accepted
        self.busy: set[int] = set()  # orders that had to come again
        self._refused = refused
        self._progress = asyncio.Condition()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[str]:
        app = web.Application()
        app.router.add_post("/shipments", self._ship)
        runner = web.AppRunner(app)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            _, port = runner.addresses[0]
            yield f"http://127.0.0.1:{port}"
        finally:
            await runner.cleanup()

    async def accepted(self, count: int) -> None:
        """Returns when that many orders were accepted."""
        async with self._progress:
            await self._progress.wait_for(lambda: len(self.shipments) >= count)

    async def _ship(self, request: web.Request) -> web.Response:
        number = int(request.headers["Idempotency-Key"])
        order = await request.json()
        await asyncio.sleep(SECONDS)
        if number == self._refused:
            raise web.HTTPUnprocessableEntity(text="nobody ships that")
        if number % 9 == 4 and number not in self.busy:
            self.busy.add(number)
            raise web.HTTPServiceUnavailable(text="try again")
        async with self._progress:
            self.shipments.setdefault(number, order["customer"])  # an order that comes again is not shipped again
            self._progress.notify_all()
        return web.Response(status=201)
