"""What the query of a run in batches reads from: `partitions` are loans, and what is read is what was settled.

Thread: Spark's: planning in the process of the query, reading in workers.

Where the application stands is in its groups, and nowhere else. So Spark's own offsets are the numbers of batches, and
its checkpoint is thrown away with the query.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from multilane.engines.batches.lease_coordinator import CoordinatorPlan, LeaseCoordinator
from multilane.engines.batches.messages import PartitionLease
from multilane.engines.batches.worker import work
from multilane.engines.worker_environment import found

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "multilane-lanes"
SCHEMA: Final = "consumer string, topic string, partition int, next long, settled long"
_WAIT_SECONDS: Final = 0.5  # for work: Spark would ask again at once
_LOG: Final = "%(asctime)s keeper %(process)d %(levelname)s %(message)s"
_NOBODY: Final = 0  # the task of a batch without work
_LEAVE_SECONDS: Final = 10.0


@dataclass
class Ticket(InputPartition):
    """What one task is told: whom to ask."""

    number: int
    address: tuple[str, int]


class LanesReader(DataSourceStreamReader):
    """One for the life of a query, in a process of its own; workers get a copy without a keeper."""

    def __init__(self, plan: CoordinatorPlan) -> None:
        self._plan = plan
        self._kept: LeaseCoordinator | None = None
        self._planned: tuple[int, list[Ticket]] = (0, [])

    def __getstate__(self) -> dict[str, Any]:
        return {"_plan": self._plan, "_kept": None, "_planned": (0, [])}

    @property
    def _coordinator(self) -> LeaseCoordinator:
        if self._kept is None:
            logging.basicConfig(level=self._plan.log_level, format=_LOG)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, _leave)  # by which Spark ends this process
            self._kept = LeaseCoordinator(self._plan, found(self._plan.factory))
        return self._kept

    def initialOffset(self) -> dict[str, int]:
        _ = self._coordinator
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"batch": start["batch"] + 1} if self._coordinator.wait_for_work(_WAIT_SECONDS) else start

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        batch, tickets = self._planned
        if batch != end["batch"]:
            coordinator = self._coordinator
            tickets = [Ticket(number, coordinator.address) for number in coordinator.plan() or [_NOBODY]]
            self._planned = (end["batch"], tickets)
        return tickets

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        units = work(self._plan, partition.address, partition.number, found(self._plan.worker_factory))
        if units:
            yield _rows(units)

    def commit(self, end: dict[str, int]) -> None:
        """The groups know."""

    def stop(self) -> None:
        """The query is over, also when it failed: whoever has the partitions next need not wait for the broker to find
        out."""
        if self._kept is not None:
            self._kept.end(_LEAVE_SECONDS)


def lanes_source(plan: CoordinatorPlan) -> type[DataSource]:
    """A source for this run alone. The plan travels inside of it: options would be shown to whoever may see plans."""

    class LanesSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: object) -> LanesReader:
            del schema
            return LanesReader(plan)

    return LanesSource


def _leave(number: int, frame: object) -> None:
    """Unwinds whatever Spark's runner is at: it calls `stop` then."""
    raise SystemExit(0)


def _rows(units: Sequence[PartitionLease]) -> pa.RecordBatch:
    import pyarrow as pa

    told = [(unit, partition, place) for unit in units for partition, place in unit.places.items()]
    return pa.RecordBatch.from_pydict(
        {
            "consumer": pa.array([unit.consumer for unit, _, _ in told], pa.string()),
            "topic": pa.array([partition.topic for _, partition, _ in told], pa.string()),
            "partition": pa.array([partition.partition for _, partition, _ in told], pa.int32()),
            "next": pa.array([place.offset for _, _, place in told], pa.int64()),
            "settled": pa.array([unit.settled for unit, _, _ in told], pa.int64()),
        }
    )
