"""What begins and ends with a processor: its threads, its watch for crashes, its audit bounds, its share of the gate.

Thread: loop.

Owns the set of processors of one consumer that have not ended, and the count of records that ended ones have settled.
Never builds a processor, and never ends one: whoever builds it calls `end` when it has drained.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from weakref import WeakSet

from multilane.audit.begin_bounds import BeginBounds
from multilane.audit.record_files import AuditRecordFiles
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.lanes.assignment import Start
from multilane.lanes.at_rest import AtRest
from multilane.lanes.gate import OutageGate
from multilane.lanes.intake import Intake
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.threads import Threads
from multilane.lanes.watch import Watch
from multilane.runtime.crash_watch import CrashWatch
from multilane.types import TopicPartition
from multilane.wire.records.record import Record


@dataclass(frozen=True, slots=True)
class ProcessorLifetime:
    threads: Threads
    intakes: Sequence[Intake]
    watch: Watch
    bounds: BeginBounds | None  # None: it does not write to the audit


class _Counts(NamedTuple):
    settled: int
    received: int


class ProcessorLifetimes:
    def __init__(
        self,
        config: ConsumerGroupConfig,
        cluster: ClusterConfig,
        gate: OutageGate | None,
        audit: AuditRecordFiles | None,
        crash_watch: CrashWatch,
    ) -> None:
        self.crash_watch = crash_watch  # others of the process may share it; not replaced after `open`
        self._config = config
        self._cluster = cluster
        self._gate = gate
        self._audit = audit
        self._is_open = False
        self._live: WeakSet[PartitionProcessor] = WeakSet()
        self._settled_before = self._received_before = 0  # by processors that have ended
        self._counted = AtRest(self._intakes, self._counts)
        self._left: dict[TopicPartition, int] = {}  # records that ended processors had not settled

    def open(self) -> None:
        """It may be called again."""
        if not self._is_open:
            self.crash_watch.open()
            self._is_open = True

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self.crash_watch.close()

    @property
    def processors(self) -> tuple[PartitionProcessor, ...]:
        """Those that have not ended."""
        return tuple(self._live)

    @property
    def settled(self) -> int:
        """How many records all of them have settled."""
        return self._settled_before + self._counted.value.settled

    @property
    def received(self) -> int:
        """How many records came to all of them; some again, after a rebalance."""
        return self._received_before + self._counted.value.received

    def _intakes(self) -> list[Intake]:
        return [intake for processor in self._live for intake in processor.queue.intakes.values()]

    def _counts(self) -> _Counts:
        """Of those that have not ended."""
        live = tuple(self._live)
        return _Counts(sum(each.settled for each in live), sum(each.received for each in live))

    @property
    def left(self) -> int:
        """How many records came and were not settled when their processors ended. Whoever reads their partitions next
        handles them."""
        return sum(self._left.values())

    async def begin(
        self,
        starts: Mapping[TopicPartition, Start],
        intakes: Sequence[Intake],
        threads: Threads,
        *,
        is_audited: bool,
        trigger: str,
    ) -> ProcessorLifetime:
        """Before the processor of these intakes is built. `is_audited`: none of its records may begin before an audit
        file lists their partitions. `trigger`: its name, if the consumer shares the group with others."""
        brokers, limit = str(self._cluster.brokers), self._config.crash_limit
        begun = {intake: starts[intake.partition] for intake in intakes}
        watch = await self.crash_watch.watch(brokers, self._config.group_id, limit, begun, trigger)
        bounds = None
        if self._audit is not None and is_audited:
            topic_ids = {p: start.topic_id for p, start in starts.items()}
            bounds = await self._audit.begin({intake.partition: intake for intake in intakes}, topic_ids)
        return ProcessorLifetime(threads, intakes, watch, bounds)

    def started(self, processor: PartitionProcessor, lifetime: ProcessorLifetime) -> None:
        if self._gate is not None:
            self._gate.count_in(processor.queue)
        if lifetime.bounds is not None:
            lifetime.bounds.on_allowed = processor.feed
        self._live.add(processor)
        self._counted.clear()
        for partition in processor.partitions:
            self._left.pop(partition, None)

    def end(self, processor: PartitionProcessor, lifetime: ProcessorLifetime, interrupted: Sequence[Record]) -> None:
        """`interrupted`: the records that were abandoned in flight."""
        if processor in self._live:
            self._live.discard(processor)
            self._counted.clear()
            self._settled_before += processor.settled
            self._received_before += processor.received
            self._left[min(processor.partitions)] = processor.open_records
        lifetime.threads.close()
        self.crash_watch.end(lifetime.watch, lifetime.intakes)
        if self._gate is not None:
            self._gate.count_out(processor.queue)
        if self._audit is not None and lifetime.bounds is not None:
            self._audit.end(lifetime.bounds, interrupted)
