"""The bare loop: as many lanes with the same work, and no Kafka: `python -m bench.lane.bare '<order as JSON>'`.

Thread: application; lanes of sync handlers have a thread each.

Its rate is the best that this machine's timers and event loop allow at the moment.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

from bench.lane.order import Order
from bench.lane.scenarios import THREAD
from bench.lane.tally import Tally, ThreadTally, tell_regularly
from bench.lane.work import Work, work_of


def run(order: Order) -> None:
    if order.shape == THREAD:
        run_threads(order)
    else:
        fastest_runner()(run_tasks(order))


def fastest_runner() -> Callable[[Coroutine[Any, Any, None]], None]:
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


async def run_tasks(order: Order) -> None:
    tally = Tally()
    work = work_of(order.work, order.latency, order.port)
    tell_regularly(tally, order.tick)
    await asyncio.gather(*(_lane(work, tally, order.batch) for _ in range(order.lanes_in_all)))


async def _lane(work: Work, tally: Tally, batch: int) -> None:
    while True:
        await work()
        tally.end(batch)


def run_threads(order: Order) -> None:
    tally = ThreadTally()
    tell_regularly(tally, order.tick)

    def lane() -> None:
        while True:
            time.sleep(order.latency)
            tally.end(order.batch)

    threads = [threading.Thread(target=lane, daemon=True) for _ in range(order.lanes_in_all)]
    for thread in threads:
        thread.start()
    threads[0].join()


if __name__ == "__main__":
    run(Order(**json.loads(sys.argv[1])))
