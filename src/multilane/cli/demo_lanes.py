"""The demo's app: every order is handled on lanes, some fail at first, and no customer's orders change places.

Thread: application; it runs an event loop for the time of the demo.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from multilane.cli.orders import Tally
from multilane.wire.records.record import Record  # at run time too: the signature is read

if TYPE_CHECKING:
    from multilane.runtime.app import App

LANES: Final = 20
_FAILS_EVERY: Final = 1_000
_FAILS_FROM: Final = 0.98  # of all: what failed once takes the later orders of its customer along
_PATIENCE: Final = 300.0


class OutOfStockError(Exception):
    """What the demo's function raises at the first attempt of some orders."""


@dataclass(slots=True)
class Seen:
    """What the function saw."""

    wanted: int
    tally: Tally = field(default_factory=Tally)
    failed: int = 0
    out_of_order: int = 0
    last: dict[bytes | None, int] = field(default_factory=dict)
    tries: Counter[int] = field(default_factory=Counter)

    async def handle(self, record: Record) -> None:
        number = int((record.value or b"").split(b",", 1)[0].rpartition(b":")[2])
        if number % _FAILS_EVERY == 0 and number >= _FAILS_FROM * self.wanted:
            self.tries[number] += 1
            if self.tries[number] == 1:
                self.failed += 1
                raise OutOfStockError(f"order {number} cannot be delivered yet")
        self.out_of_order += number <= self.last.get(record.key, -1)
        self.last[record.key] = number
        self.tally.add([(record.key, record.value)])


def app_for(bootstrap: str, topic: str) -> App:
    """An app from a configuration in code; most have theirs in a file."""
    from multilane.config.app.cluster import ClusterConfig
    from multilane.config.app.consumer import ConsumerGroupConfig
    from multilane.config.app.model import AppConfig
    from multilane.runtime.app import App

    consumer = ConsumerGroupConfig(
        name="orders",
        group_id=f"{topic}.demo",
        topic=topic,
        retry=f"{topic}.retry",
        retry_count=3,
        retry_order="key",
        cluster="demo",
        lanes=LANES,
        offset_initial="oldest",
    )
    cluster = ClusterConfig(name="demo", client_id="multilane-demo", brokers=tuple(bootstrap.split(",")))
    return App(AppConfig(clusters={"demo": cluster}, consumers={"orders": consumer}))


def handle_on_lanes(bootstrap: str, topic: str, records: int) -> Seen:
    counter = Seen(records)
    app = app_for(bootstrap, topic)
    app.listener("orders")(counter.handle)
    asyncio.run(_until_done(app, counter))
    return counter


async def _until_done(app: App, counter: Seen) -> None:
    running = asyncio.create_task(app.serve())
    try:
        async with asyncio.timeout(_PATIENCE):
            while counter.tally.records < counter.wanted and not running.done():
                await asyncio.wait([running], timeout=0.02)
    finally:
        app.stop()
        await running
