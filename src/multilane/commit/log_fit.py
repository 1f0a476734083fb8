"""Whether stored offsets of settled records still belong to the log as it is now.

Thread: none (pure).

A log can be truncated (an unclean election, a broker that lost its page cache) or deleted and recreated, and grow past
the old offsets with other records. Offsets alone do not show that. The leader epoch does: offset and epoch identify a
record forever, so a log that has the claimed epoch up to the claimed end has every record below that end. A claim that
cannot be proved to fit is ignored: its records are redelivered, never skipped.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from multilane.commit.completion_map import LogIdentity
from multilane.types import NO_EPOCH, OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class SettledClaim:
    """The claim that offsets below `end` are settled. Without `log`, only the leader epoch of the record before the
    first of them is known."""

    end: int
    log: LogIdentity | None
    first_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class LogNow:
    """The leader's answers. `epoch_end` is where the claim's epoch ends; None if the leader does not know it."""

    end: OffsetAndEpoch | None
    topic_id: UUID | None
    epoch_end: OffsetAndEpoch | None = None


def misfit(claim: SettledClaim, now: LogNow) -> str | None:
    """Why the claim cannot be used; None if it fits."""
    if now.end is None:
        return "the end of the log is not known"
    if claim.end > now.end.offset:
        return f"it ends at offset {claim.end}, but the log ends at {now.end.offset}"
    if claim.log is None:
        return _misfit_without_epoch(claim, now.end)
    if claim.log.topic_id != now.topic_id:
        return f"it belongs to topic id {claim.log.topic_id}, but the topic has id {now.topic_id}"
    return _misfit_of_epoch(claim.end, claim.log.leader_epoch, now.epoch_end)


def _misfit_without_epoch(claim: SettledClaim, end: OffsetAndEpoch) -> str | None:
    """If the leader epoch of the first record is still current, no election can have truncated the log."""
    since = max(0, claim.first_epoch)  # a log begins in epoch 0
    if end.leader_epoch == since:
        return None
    return f"it has no leader epoch, and the leader epoch has changed from {since} to {end.leader_epoch}"


def _misfit_of_epoch(end: int, epoch: int, found: OffsetAndEpoch | None) -> str | None:
    if found is None or found.leader_epoch != epoch:
        return f"the log has no records of its leader epoch {epoch}"
    if found.offset < end:
        return f"it ends at offset {end}, but its leader epoch {epoch} ends at {found.offset}"
    return None
