"""Compares completion maps with the logs, before lanes skip the records that they claim to be settled.

Thread: loop; uses the caller's consumer.

Looks up where the leaders' logs end, and where the leader epochs of the claims end in them. A claim that does not fit
is ignored, with a warning: its records are redelivered. A claim is ignored, too, if its partition has no leader for
half a minute, because the member's other partitions wait meanwhile. Other errors of brokers are raised, and the
caller retries: no record is skipped unchecked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Protocol
from uuid import UUID

from multilane.client.fetch.offsets import PartlyFound
from multilane.client.lookups import with_epochs
from multilane.commit.completion_map import LogIdentity
from multilane.commit.log_fit import LogNow, SettledClaim, misfit
from multilane.errors import BrokerError, UnsupportedVersion
from multilane.lanes.assignment import Start, Starts
from multilane.logs import logger
from multilane.types import NO_EPOCH, OffsetAndEpoch, TopicPartition

log = logger(__name__)

_UNKNOWN_TOPIC: Final = 3
_PATIENCE: Final = 30.0  # seconds to look up where logs end


class LogLookups(Protocol):
    """The part of a consumer that is needed here."""

    async def topic_ids(self, topics: Collection[str]) -> dict[str, UUID]: ...

    async def log_ends(
        self, partitions: Collection[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndEpoch]: ...

    async def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndEpoch]: ...


class LogCheck:
    def __init__(self, consumer: LogLookups) -> None:
        self._consumer = consumer

    async def __call__(self, starts: Starts) -> Starts:
        """The starts with the ids of their topics, and without runs that do not fit. A known id is looked up again only
        if there are runs to check: a task that leases partitions begins without the lookup."""
        ids = await self._topic_ids(
            {p.topic for p, start in starts.items() if start.has_claims or start.topic_id is None}
        )
        claims = {p: _claim(start) for p, start in starts.items() if start.has_claims}
        logs = await self._logs(claims, ids)
        checked = {}
        for partition, start in starts.items():
            claim = claims.get(partition)
            why = None if claim is None else misfit(claim, logs[partition])
            if claim is not None and why is not None:
                _warn(partition, start, why)
                start = start.without_claims()  # noqa: PLW2901 - only the offset remains
            elif claim is not None and claim.log is None and (end := logs[partition].end) is not None:
                start = start._replace(end_epoch=end.leader_epoch)  # noqa: PLW2901 - the claim fits this epoch
            was_looked_up = claim is not None or start.topic_id is None
            checked[partition] = start._replace(topic_id=ids.get(partition.topic)) if was_looked_up else start
        return checked

    async def _topic_ids(self, topics: Collection[str]) -> dict[str, UUID]:
        found: dict[str, UUID] = {}
        for topic in sorted(topics):  # one by one: a lookup of several fails if one is missing
            try:
                found |= await self._consumer.topic_ids([topic])
            except BrokerError as error:
                if error.code != _UNKNOWN_TOPIC:
                    raise
        return found

    async def _logs(
        self, claims: Mapping[TopicPartition, SettledClaim], ids: Mapping[str, UUID]
    ) -> dict[TopicPartition, LogNow]:
        if not claims:
            return {}
        ends = await self._ends(list(claims))
        epochs = {p: claim.log.leader_epoch for p, claim in claims.items() if claim.log is not None and p in ends}
        epoch_ends = await self._epoch_ends(epochs) if epochs else {}
        return {p: LogNow(ends.get(p), ids.get(p.topic), epoch_ends.get(p)) for p in claims}

    async def _ends(self, partitions: Collection[TopicPartition]) -> Mapping[TopicPartition, OffsetAndEpoch]:
        """Without partitions that have no leader now."""
        try:
            return await self._consumer.log_ends(partitions, _PATIENCE)
        except PartlyFound as error:
            return with_epochs(error.found)

    async def _epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, OffsetAndEpoch]:
        try:
            return await self._consumer.epoch_ends(epochs)
        except UnsupportedVersion as error:  # brokers before 2.3: then no claim fits
            log.warning("cannot look up leader epochs: %s", error)
            return {}


def _claim(start: Start) -> SettledClaim:
    known = None if start.end_epoch == NO_EPOCH else LogIdentity(start.end_epoch, start.topic_id)
    return SettledClaim(start.claimed_end, known, start.leader_epoch)


def _warn(partition: TopicPartition, start: Start, why: str) -> None:
    many = sum(last - first + 1 for first, last in start.runs) or max(0, start.claimed_end - start.offset)
    log.warning(
        "%s: the completion map committed with offset %d does not match the log: %s. The map is ignored, and up to %d "
        "handled records are redelivered",
        *(partition, start.offset, why, many),
    )
