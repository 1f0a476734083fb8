"""Compares stored offsets of settled records with the logs, for blocking callers.

Thread: application (blocking).

Does for replay marks and backfill states what `lanes/log_check.py` does for lanes. Raises the errors of brokers: no
record counts as settled only because a file or a commit says so.
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
    """The claims that do not fit, with the reasons."""
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
    except UnsupportedVersion as error:  # then no claim fits
        log.warning("cannot look up leader epochs: %s", error)
        return {}
