"""Whether the logs still have what a backfill was planned over, and what its state says is settled.

Thread: application (blocking).

A state directory outlives runs, brokers and versions. Before it is gone on with, its range and its places are held
against the logs: what is gone is an error, what is not what it was is handled again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from multilane.client.admin.admin import Admin
from multilane.client.admin.answers import TopicDescription
from multilane.client.consumer import Consumer
from multilane.commit.completion_map import LogMark
from multilane.commit.log_fit import SettledClaim
from multilane.engines.backfill.bounds import Bound
from multilane.engines.backfill.progress import BackfillProgress
from multilane.errors import DataLoss
from multilane.lanes.log_claims import misfits
from multilane.logs import logger
from multilane.types import TopicPartition

log = logger(__name__)


class Logs:
    """Where the partitions of a topic begin and end, and where they were at a time."""

    def __init__(self, admin: Admin, topic: TopicDescription, *, read_committed: bool) -> None:
        self._admin = admin
        self._topic = topic.name
        self._read_committed = read_committed  # beyond an open transaction nothing can be read
        self.partitions = frozenset(one.number for one in topic.partitions)

    def at(self, bound: Bound, partitions: Collection[int]) -> dict[int, int]:
        if isinstance(bound, Mapping):
            return {partition: bound[partition] for partition in partitions}
        places = self._admin.offsets(
            [TopicPartition(self._topic, partition) for partition in partitions],
            bound,
            read_committed=self._read_committed,
        )
        found = {p.partition: int(place.offset) for p, place in places.items() if place is not None}
        later = [partition for partition in partitions if partition not in found]
        return found | (self.at("latest", later) if later else {})  # nothing is as late as that


def check_ends(progress: BackfillProgress, logs: Logs) -> None:
    """The range was fixed when the log had all of it."""
    ends = logs.at("latest", [p for p in progress.open_partitions if p in logs.partitions])
    for partition, end in ends.items():
        wanted = progress.plan.stretches[partition][1]
        if end < wanted:
            raise DataLoss(
                f"{progress.plan.topic}-{partition} now ends at {end}, but this backfill goes to {wanted}: the log was "
                "truncated (an unclean leader election). Start a new backfill with another --state"
            )


def check_settled(progress: BackfillProgress, consumer: Consumer) -> None:
    """A log that was cut has other records now where some were settled: then its partition begins again."""
    claims = {}
    for partition in progress.open_partitions:
        until = progress.settled_until(partition)
        if until is not None:
            claims[TopicPartition(progress.plan.topic, partition)] = SettledClaim(until, _log_mark(progress, partition))
    wrong = misfits(consumer, claims)
    for place, why in wrong.items():
        told = "%s: the saved progress does not fit the log: %s. Its records are handled again from offset %d"
        log.warning(told, place, why, progress.plan.stretches[place.partition][0])
        progress.begin_again(place.partition)
    unknown = [p for p in claims if p not in wrong and p.partition not in progress.epochs]
    progress.epochs |= {p.partition: end.leader_epoch for p, end in consumer.log_ends(unknown).items()}


def _log_mark(progress: BackfillProgress, partition: int) -> LogMark | None:
    """None for places of a version that did not write epochs: they count while no leader has ever changed."""
    epoch = progress.epochs.get(partition)
    return (
        None
        if epoch is None
        else LogMark(epoch, None if progress.plan.topic_id is None else UUID(progress.plan.topic_id))
    )


def check_there(progress: BackfillProgress, logs: Logs, *, skips_deleted: bool) -> None:
    """What is still to be read may be gone by now."""
    firsts = logs.at("earliest", [p for p in progress.open_partitions if p in logs.partitions])
    for partition, first in firsts.items():
        offset, _ = progress.places[partition]
        if offset >= min(first, progress.plan.stretches[partition][1]):
            continue
        where = f"{progress.plan.topic}-{partition}"
        if not skips_deleted:
            raise DataLoss(
                f"{where} now begins at {first}, but offset {offset} is next: the records in between are deleted. With "
                "--skip-deleted the backfill continues where the log begins"
            )
        log.warning("%s: skipping %d deleted offsets", where, progress.skip_to(partition, first))
