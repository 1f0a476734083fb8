"""Spark's own connector with a thread pool: `python -m bench.latency.connector '<order as JSON>' DIRECTORY`.

Thread: application; batches arrive on a Spark thread, handlers run in the pool.

A query whose `foreachBatch` handles the rows of a batch with as many threads as there are lanes, waits for all of them,
and begins the next batch at once: no trigger is set. The rows are collected in the driver, which keeps the pool from
batch to batch: Python workers and new threads would only cost time.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from bench.lane.members import MEMBERS
from bench.lane.order import Order
from bench.lane.tally import tell_regularly
from bench.latency.samples import Notes, Written, stamp_of
from bench.spark import CONNECTOR
from multilane.app.signals import signals_stop
from multilane.java import find_java
from multilane.spark.session import start_session

_LOOK_SECONDS: Final = 1.0


def run(order: Order, directory: Path) -> None:
    notes = Notes(directory)
    notes.write_regularly()
    tell_regularly(Written(directory), order.tick)
    jars = CONNECTOR.installed(find_java())
    settings = {"spark.jars": ",".join(map(str, sorted(jars.iterdir()))), "spark.ui.enabled": "false"}
    spark = start_session(f"local[{MEMBERS}]", "bench", settings)
    options = {"kafka.bootstrap.servers": order.bootstrap, "subscribe": order.topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("kafka").options(**options).load().select("value")
    with ThreadPoolExecutor(order.lanes_in_all) as pool:

        def handle(row: Any) -> None:
            time.sleep(order.latency)
            notes.add(stamp_of(row.value), time.time_ns())

        def handle_batch(batch: Any, number: int) -> None:
            for _ in pool.map(handle, batch.collect()):
                pass  # waits, and raises what a handler raised

        checkpoint = str(directory.with_name("checkpoint"))
        _run(rows.writeStream.foreachBatch(handle_batch).option("checkpointLocation", checkpoint))
    spark.stop()


def _run(writing: Any) -> None:
    """Runs until it is stopped; a query that ends by itself has failed."""
    stop = threading.Event()
    with signals_stop(stop.set):
        query = writing.start()
        while not stop.wait(_LOOK_SECONDS):
            if not query.isActive:
                raise RuntimeError(f"the query ended: {query.exception()}")
        query.stop()


if __name__ == "__main__":
    run(Order(**json.loads(sys.argv[1])), Path(sys.argv[2]))
