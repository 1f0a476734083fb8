"""Checks the plan and the saved progress of a backfill against the logs.

Thread: application (blocking).

A state directory outlives runs, brokers and versions. Before a backfill continues, its range and its positions are
checked against the logs: deleted records are an error, and records of a log that changed are reprocessed. Never
writes the state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from uuid import UUID

from multilane.client.admin.admin import Admin
from multilane.client.admin.answers import TopicDescription
from multilane.client.consumer import Consumer
from multilane.commit.completion_map import LogIdentity
from multilane.commit.log_fit import SettledClaim
from multilane.engines.backfill.bounds import Bound
from multilane.engines.backfill.progress import BackfillProgress
from multilane.errors import DataLoss
from multilane.lanes.log_claims import misfits
from multilane.logs import logger
from multilane.types import TopicPartition

log = logger(__name__)


class Logs:
    """Looks up the beginnings and ends of a topic's partitions, and their offsets at a time."""

    def __init__(self, admin: Admin, topic: TopicDescription, *, read_committed: bool) -> None:
        self._admin = admin
        self._topic = topic.name
        self._read_committed = read_committed  # an open transaction ends what can be read
        self.partitions = frozenset(one.number for one in topic.partitions)

    def at(self, bound: Bound, partitions: Collection[int]) -> dict[int, int]:
        if isinstance(bound, Mapping):
            return {partition: bound[partition] for partition in partitions}
        offsets = self._admin.offsets(
            [TopicPartition(self._topic, partition) for partition in partitions],
            bound,
            read_committed=self._read_committed,
        )
        found = {p.partition: int(one.offset) for p, one in offsets.items() if one is not None}
        missing = [partition for partition in partitions if partition not in found]  # no record is that late
        return found | (self.at("latest", missing) if missing else {})


def check_ends(progress: BackfillProgress, logs: Logs) -> None:
    """Raise DataLoss if a log ends before its range: it had all of it when the range was fixed."""
    ends = logs.at("latest", [p for p in progress.open_partitions if p in logs.partitions])
    for partition, end in ends.items():
        wanted = progress.plan.offset_ranges[partition][1]
        if end < wanted:
            raise DataLoss(
                f"{progress.plan.topic}-{partition} now ends at {end}, but this backfill goes to {wanted}: the log was "
                "truncated (an unclean leader election). Start a new backfill with another --state"
            )


def check_settled(progress: BackfillProgress, consumer: Consumer) -> None:
    """Restart a partition if its log was truncated: it has other records at the settled offsets."""
    claims = {}
    for partition in progress.open_partitions:
        until = progress.settled_until(partition)
        if until is not None:
            claims[TopicPartition(progress.plan.topic, partition)] = SettledClaim(
                until, _log_identity(progress, partition)
            )
    wrong = misfits(consumer, claims)
    for one, why in wrong.items():
        text = "%s: the saved progress does not match the log: %s. Its records are reprocessed from offset %d"
        log.warning(text, one, why, progress.plan.offset_ranges[one.partition][0])
        progress.begin_again(one.partition)
    unknown = [p for p in claims if p not in wrong and p.partition not in progress.epochs]
    progress.epochs |= {p.partition: end.leader_epoch for p, end in consumer.log_ends(unknown).items()}


def _log_identity(progress: BackfillProgress, partition: int) -> LogIdentity | None:
    """None for the progress of a version that wrote no epochs: it is valid as long as no leader has ever changed."""
    epoch = progress.epochs.get(partition)
    return (
        None
        if epoch is None
        else LogIdentity(epoch, None if progress.plan.topic_id is None else UUID(progress.plan.topic_id))
    )


def check_there(progress: BackfillProgress, logs: Logs, *, skips_deleted: bool) -> None:
    """Skip deleted records, or raise DataLoss."""
    firsts = logs.at("earliest", [p for p in progress.open_partitions if p in logs.partitions])
    for partition, first in firsts.items():
        offset, _ = progress.positions[partition]
        if offset >= min(first, progress.plan.offset_ranges[partition][1]):
            continue
        where = f"{progress.plan.topic}-{partition}"
        if not skips_deleted:
            raise DataLoss(
                f"{where} now begins at {first}, but offset {offset} is next: the records in between are deleted. With "
                "--skip-deleted the backfill continues where the log begins"
            )
        log.warning("%s: skipping %d deleted offsets", where, progress.skip_to(partition, first))
