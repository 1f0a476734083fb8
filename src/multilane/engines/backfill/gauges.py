"""The gauges of a backfill, as its driver knows them: tasks, positions, what remains, and what failed.

Thread: none (pure).

A new gauge is defined in `metrics/definitions` and read here. The lanes' gauges come from the tasks.
"""

from __future__ import annotations

from multilane.engines.backfill.progress import BackfillProgress
from multilane.metrics.observer import Gauge


def backfill_gauges(progress: BackfillProgress, tasks: int) -> list[Gauge]:
    plan = progress.plan
    consumer = {"consumer": plan.consumer}
    found = [Gauge("backfill.tasks", consumer, tasks), Gauge("backfill.failed", consumer, len(progress.failed))]
    for partition, (offset, _) in sorted(progress.positions.items()):
        labels = {**consumer, "topic": plan.topic, "partition": str(partition)}
        found += [
            Gauge("backfill.position", labels, offset),
            Gauge("backfill.remaining", labels, progress.remaining_of(partition)),
        ]
    return found
