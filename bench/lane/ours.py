"""Lanes in the process engine, as an app would use them: `python -m bench.lane.ours '<order as JSON>'`.

Thread: application; handlers run where the app runs them.

Owns the configuration of such an app and its handlers. Counts in the handlers, as the other systems do: handled records
count, fetched ones do not. Ends on SIGTERM, as any app does.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from bench.lane.order import Order
from bench.lane.scenarios import COLUMNS, NOTHING, RECORDS, SINGLE, THREAD
from bench.lane.tally import Counts, Tally, ThreadTally, tell_regularly
from bench.lane.work import work_of
from multilane.wire.records.record import Record

if TYPE_CHECKING:
    from multilane.app.app import App

LISTENER: Final = "bench"
CLUSTER: Final = "bench"

Handler = Callable[..., Any]


def settings_of(order: Order) -> dict[str, Any]:
    """The app's file. Everything else has its default; settings that must not change with a default are set."""
    consumer: dict[str, Any] = {
        "cluster": CLUSTER,
        "groupId": order.group,
        "name": order.topic,
        "virtualPartitionCount": order.lanes,
        "offsetInitial": "oldest",
        "maxProcessingTime": "1s",
        "onFailure": "drop",  # windows wait as rows: nothing has to be put back
        "errorBreaker": {"action": "off"},
    }
    if order.batch > 1:
        consumer |= {"batchSize": order.batch, "uniqueListener": order.unique}
    if order.hung_key:
        consumer["maxProcessingTime"] = "1h"  # else it would be abandoned after a second
    clusters = {CLUSTER: {"clientId": "bench-lanes", "brokers": order.bootstrap}}
    return {"clusters": clusters, "consumers": {LISTENER: consumer}}


# --- handlers --------------------------------------------------------------------------------------------------------


def handler_of(order: Order) -> tuple[Handler, Counts]:
    if order.shape == THREAD:
        return _on_threads(order)
    tally = Tally(order.drain)
    if order.shape == SINGLE and order.work == NOTHING:
        handler = _hanging(order, tally) if order.hung_key else _no_op(tally)
    elif order.shape == SINGLE:
        handler = _draining(order, tally) if order.drain else _single(order, tally)
    else:
        handler = {RECORDS: _records, COLUMNS: _columns}[order.shape](order, tally)
    return handler, tally


def _no_op(tally: Tally) -> Handler:
    async def handle(record: Record) -> None:
        tally.handled += 1

    return handle


def _hanging(order: Order, tally: Tally) -> Handler:
    hung = order.hung_key.encode()

    async def handle(record: Record) -> None:
        if record.key == hung:
            await asyncio.get_running_loop().create_future()  # unknown to other groups
        tally.handled += 1

    return handle


def _single(order: Order, tally: Tally) -> Handler:
    work = work_of(order.work, order.latency, order.port)

    async def handle(record: Record) -> None:
        await work()
        tally.handled += 1

    return handle


def _draining(order: Order, tally: Tally) -> Handler:
    work = work_of(order.work, order.latency, order.port)

    async def handle(record: Record) -> None:
        tally.begin()
        await work()
        tally.end(1)

    return handle


def _records(order: Order, tally: Tally) -> Handler:
    work = work_of(order.work, order.latency, order.port)

    async def handle(records: list[Record]) -> None:
        await work()
        tally.handled += len(records)

    return handle


def _columns(order: Order, tally: Tally) -> Handler:
    if order.work == NOTHING:
        return _no_op_columns(tally)
    work = work_of(order.work, order.latency, order.port)

    async def handle(batch: pa.RecordBatch) -> None:
        await work()
        tally.handled += batch.num_rows

    return handle


def _no_op_columns(tally: Tally) -> Handler:
    async def handle(batch: pa.RecordBatch) -> None:
        tally.handled += batch.num_rows

    return handle


def _on_threads(order: Order) -> tuple[Handler, Counts]:
    tally = ThreadTally()

    def handle(record: Record) -> None:
        time.sleep(order.latency)
        tally.end(1)

    return handle, tally


def made_app(order: Order) -> tuple[App, Counts]:
    """The app, and the counts of its handlers."""
    handler, counts = handler_of(order)
    return app_with(order, handler), counts


def app_with(order: Order, handler: Handler) -> App:
    import multilane

    with tempfile.TemporaryDirectory(prefix="multilane-bench-") as directory:
        path = Path(directory, "multilane.yaml")
        path.write_text(json.dumps(settings_of(order)))  # YAML takes JSON as it is
        app = multilane.App(path)
    app.listener(LISTENER)(handler)
    return app


def run(order: Order) -> None:
    app, counts = made_app(order)
    tell_regularly(counts, order.tick)
    app.run()


if __name__ == "__main__":
    run(Order(**json.loads(sys.argv[1])))
