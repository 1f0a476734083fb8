"""An app with many consumers of one topic: in one group that they share, or each in a group of its own.

Thread: application; handlers run on the app's loop.

Everything that is not about sharing has its default, as in an app of a user: one lane for each partition.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

import multilane
from bench.share.order import BATCH, COLUMNS, SHARED, SINGLE, WINDOW, Order
from multilane import Record

CLUSTER: Final = "bench"
Handler = Callable[[Any], Any]


def name_of(number: int) -> str:
    return f"trigger-{number:02}"


def settings_of(order: Order) -> dict[str, Any]:
    """The app's file."""
    names = [name_of(number) for number in range(order.triggers + order.hangs)]
    consumers = {name: consumer_of(order, number) for number, name in enumerate(names)}
    sharing = "same-topic" if order.system == SHARED else "off"
    cluster = {"clientId": "bench-sharing", "brokers": order.bootstrap, "sharing": sharing}
    return {"clusters": {CLUSTER: cluster}, "consumers": consumers}


def consumer_of(order: Order, number: int) -> dict[str, Any]:
    consumer: dict[str, Any] = {
        "cluster": CLUSTER,
        "groupId": order.group_of(number),
        "name": order.topic,
        "offsetInitial": "oldest",
        "onFailure": "drop",
        "errorBreaker": {"action": "off"},
    }
    if order.shape != SINGLE:
        # In the order of the partition, as all other systems here.
        consumer |= {"virtualPartitionCount": 1, "orderBy": "partition", "batchSize": WINDOW}
    if number == order.triggers:
        consumer["maxProcessingTime"] = "1h"  # else its call would be abandoned
    return consumer


def handler_of(shape: str, counts: list[int], number: int) -> Handler:
    async def single(record: Record) -> None:
        counts[number] += 1

    async def batch(records: list[Record]) -> None:
        counts[number] += len(records)

    async def columns(batch: pa.RecordBatch) -> None:
        counts[number] += batch.num_rows

    return {SINGLE: single, BATCH: batch, COLUMNS: columns}[shape]


async def hang(record: Record) -> None:
    await asyncio.get_running_loop().create_future()


async def hang_batch(records: list[Record]) -> None:
    await asyncio.get_running_loop().create_future()


class OurApp:
    def __init__(self, order: Order) -> None:
        self.counts = [0] * order.triggers
        with tempfile.TemporaryDirectory(prefix="multilane-bench-") as directory:
            path = Path(directory, "multilane.yaml")
            path.write_text(json.dumps(settings_of(order)))  # YAML takes JSON as it is
            self._app = multilane.App(path)
        for number in range(order.triggers):
            self._app.listener(name_of(number))(handler_of(order.shape, self.counts, number))
        if order.hangs:
            self._app.listener(name_of(order.triggers))(hang if order.shape == SINGLE else hang_batch)

    def run(self) -> None:
        self._app.run()

    def stop(self) -> None:
        self._app.stop()
