"""Lanes in the read of a Spark source: an app in the batches flow reads a whole topic with a no-op handler.

Thread: application; the run has a thread of its own.

The Spark session is the caller's, so that all systems are measured in the same one. The time runs from the first
handled records to the last, without the start of the run.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import uuid
from pathlib import Path
from typing import Any, Final

from bench.lane.members import MEMBERS, TARGET, give
from bench.lane.order import Order
from bench.lane.scenarios import COLUMNS, NOTHING
from bench.topics import PARTITIONS, Filling
from multilane.engines.batches.driver import QuerySupervisor
from multilane.engines.batches.lease_coordinator import CoordinatorSpec
from multilane.engines.batches.lease_table import LeaseTerms
from multilane.engines.spark_run import COORDINATOR, WORKER

LANES: Final = 10
WINDOW: Final = 1_000
_LOOK_SECONDS: Final = 0.01
_PATIENCE: Final = 120.0
_DRAIN_SECONDS: Final = 60.0


def rate_in_lanes(spark: Any, bootstrap: str, filling: Filling, place: Path) -> float:
    """Records per second."""
    group = f"bench-{uuid.uuid4().hex[:12]}"
    order = Order(
        bootstrap, filling.topic, group, PARTITIONS, lanes=LANES, batch=WINDOW, shape=COLUMNS, work=NOTHING,
        unique=False, port=0,
    )  # fmt: skip
    members = give(order, place)
    spec = CoordinatorSpec(
        run=group,
        factory=COORDINATOR,
        worker_factory=WORKER,
        target=TARGET,
        home=os.getcwd(),
        worker_home=os.getcwd(),
        tasks=MEMBERS,
        terms=LeaseTerms(),
        bind="127.0.0.1",
        host="127.0.0.1",
        log_level="WARNING",
        token=secrets.token_hex(32),
    )
    query_supervisor = QuerySupervisor()
    running = threading.Thread(target=query_supervisor.run, args=(spark, spec, _DRAIN_SECONDS), daemon=True)
    running.start()
    try:
        return _watched(members, filling.records)
    finally:
        query_supervisor.stop()
        running.join()


def _watched(members: Any, records: int) -> float:
    deadline = time.perf_counter() + _PATIENCE
    while not (first := members.handled):
        if time.perf_counter() > deadline:
            raise RuntimeError(f"nothing was handled within {_PATIENCE:g} s")
        time.sleep(_LOOK_SECONDS)
    began = time.perf_counter()
    while members.handled < records:
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{members.handled} of {records} records were handled within {_PATIENCE:g} s")
        time.sleep(_LOOK_SECONDS)
    return (records - first) / (time.perf_counter() - began)
