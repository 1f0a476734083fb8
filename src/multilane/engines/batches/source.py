"""The source of the query of a run in batches: `partitions` are task leases, and rows report what was settled.

Thread: Spark's: planning in the process of the query, reading in workers.

The groups hold the application's positions, and nothing else does. So Spark's own offsets are batch numbers, and its
checkpoint is deleted with the query.
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

from multilane.engines.batches.lease_coordinator import CoordinatorSpec, LeaseCoordinator
from multilane.engines.batches.messages import PartitionLease
from multilane.engines.batches.worker import work
from multilane.engines.worker_environment import load

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT: Final = "multilane-lanes"
SCHEMA: Final = "consumer string, topic string, partition int, next long, settled long"
_WAIT_SECONDS: Final = 0.5  # for work: without a wait Spark would ask in a busy loop
_LOG: Final = "%(asctime)s coordinator %(process)d %(levelname)s %(message)s"
_NO_TASK: Final = 0  # the number of the task of a batch without work
_LEAVE_SECONDS: Final = 10.0


@dataclass
class Ticket(InputPartition):
    """What a task needs to get its leases."""

    number: int
    address: tuple[str, int]


class LanesReader(DataSourceStreamReader):
    """One for the life of a query, in a process of its own; workers get a copy without a coordinator."""

    def __init__(self, spec: CoordinatorSpec) -> None:
        self._spec = spec
        self._made: LeaseCoordinator | None = None
        self._planned: tuple[int, list[Ticket]] = (0, [])

    def __getstate__(self) -> dict[str, Any]:
        return {"_spec": self._spec, "_made": None, "_planned": (0, [])}

    @property
    def _coordinator(self) -> LeaseCoordinator:
        if self._made is None:
            logging.basicConfig(level=self._spec.log_level, format=_LOG)
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, _leave)  # Spark ends this process with it
            self._made = LeaseCoordinator(self._spec, load(self._spec.factory))
        return self._made

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
            tickets = [Ticket(number, coordinator.address) for number in coordinator.plan() or [_NO_TASK]]
            self._planned = (end["batch"], tickets)
        return tickets

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        leases = work(self._spec, partition.address, partition.number, load(self._spec.worker_factory))
        if leases:
            yield _rows(leases)

    def commit(self, end: dict[str, int]) -> None:
        """Nothing to do: the groups have the offsets."""

    def stop(self) -> None:
        """The query is over, also when it failed. Leave the groups now: the next owners of the partitions should not
        have to wait until the session expires."""
        if self._made is not None:
            self._made.end(_LEAVE_SECONDS)


def lanes_source(spec: CoordinatorSpec) -> type[DataSource]:
    """A source for this run alone. It carries the spec inside: options would be shown to everybody who may see query
    plans."""

    class LanesSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return FORMAT

        def schema(self) -> str:
            return SCHEMA

        def streamReader(self, schema: object) -> LanesReader:
            del schema
            return LanesReader(spec)

    return LanesSource


def _leave(number: int, frame: object) -> None:
    """Unwinds Spark's runner, which then calls `stop`."""
    raise SystemExit(0)


def _rows(leases: Sequence[PartitionLease]) -> pa.RecordBatch:
    import pyarrow as pa

    rows = [(lease, partition, point) for lease in leases for partition, point in lease.points.items()]
    return pa.RecordBatch.from_pydict(
        {
            "consumer": pa.array([lease.consumer for lease, _, _ in rows], pa.string()),
            "topic": pa.array([partition.topic for _, partition, _ in rows], pa.string()),
            "partition": pa.array([partition.partition for _, partition, _ in rows], pa.int32()),
            "next": pa.array([point.offset for _, _, point in rows], pa.int64()),
            "settled": pa.array([lease.settled for lease, _, _ in rows], pa.int64()),
        }
    )
