"""Lanes that record latencies: `python -m bench.latency.members '<order as JSON>' DIRECTORY [FLOW]`.

Thread: application; handlers run where the app runs them.

The app of `bench.lane.ours` with a handler that records times, in the process engine or in a Spark flow. Every process
with handlers writes into the directory; the started one reports how many pairs there are.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.lane.members import run_flow
from bench.lane.order import Order
from bench.lane.ours import app_with
from bench.lane.tally import tell_regularly
from bench.latency.samples import Notes, Written, stamp_of
from multilane.wire.records.record import Record

if TYPE_CHECKING:
    from multilane.app.app import App

ORDER: Final = "BENCH_ORDER"
NOTED: Final = "BENCH_NOTED"  # a directory


def noting_app() -> App:
    """The app of a process. A driver creates one too, which runs nothing."""
    order = Order(**json.loads(os.environ[ORDER]))
    notes = Notes(Path(os.environ[NOTED]))
    notes.write_regularly()

    async def handle(record: Record) -> None:
        await asyncio.sleep(order.latency)
        notes.add(stamp_of(record.value or b""), time.time_ns())

    return app_with(order, handle)


def run(order: Order, directory: Path, flow: str | None) -> None:
    os.environ[ORDER], os.environ[NOTED] = order.text(), str(directory)
    tell_regularly(Written(directory), order.tick)
    if flow is None:
        noting_app().run()
    else:
        run_flow("bench.latency.members:noting_app", flow)


if __name__ == "__main__":
    run(Order(**json.loads(sys.argv[1])), Path(sys.argv[2]), *(sys.argv[3:] or [None]))
