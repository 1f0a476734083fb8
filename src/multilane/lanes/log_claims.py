"""Holds settled offsets that were written down somewhere against the logs, for those who block.

Thread: application (blocking).

What `lanes/log_check.py` is for lanes this is for error marks and for the state of a backfill. An error of the brokers
is the caller's: nothing counts as settled on the word of a file or a commit alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from multilane.client.consumer import Consumer
from multilane.commit.log_fit import LogNow, SettledClaim, misfit
from multilane.errors import UnsupportedVersion
from multilane.logs import logger
from multilane.types import OffsetAndEpoch, TopicPartition

log = logger(__name__)


def misfits(consumer: Consumer, claims: Mapping[TopicPartition, SettledClaim]) -> dict[TopicPartition, str]:
    """Which of these do not fit, and why."""
    if not claims:
        return {}
    ids = consumer.topic_ids(sorted({p.topic for p in claims}))
    ends = consumer.log_ends(list(claims))
    epochs = {p: claim.log.leader_epoch for p, claim in claims.items() if claim.log is not None}
    epoch_ends = _epoch_ends(consumer, epochs)
    found = {p: misfit(c, LogNow(ends.get(p), ids.get(p.topic), epoch_ends.get(p))) for p, c in claims.items()}
    return {p: why for p, why in found.items() if why is not None}


def _epoch_ends(consumer: Consumer, epochs: Mapping[TopicPartition, int]) -> Mapping[TopicPartition, OffsetAndEpoch]:
    try:
        return consumer.epoch_ends(epochs) if epochs else {}
    except UnsupportedVersion as error:  # then nothing fits
        log.warning("cannot look up leader epochs: %s", error)
        return {}
