"""What a scaler needs to know of a group member: one figure for the work that is left, and how far it can be divided.

Thread: none (pure).

Triggers that share a member are one unit: a partition is as far behind as its slowest trigger, and goes to one member
with all of its triggers. So replicas are bounded by partitions, not by triggers times partitions. The figures of all
members of a group add up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from multilane.types import TopicPartition


@dataclass(frozen=True, slots=True)
class ScalingUnit:
    """`lag` is None while the end of a log is not known: part of a lag would be mistaken for all of it."""

    lag: int | None
    partitions: int


def scaling_unit(lags: Mapping[str, Mapping[TopicPartition, int | None]], retries: Collection[str] = ()) -> ScalingUnit:
    """`lags` of each trigger, from its own position. Partitions of topics in `retries` have work, but no owner of
    their own: they are divided as the topics are."""
    slowest: dict[TopicPartition, int] = {}
    is_known = True
    for of_trigger in lags.values():
        for partition, lag in of_trigger.items():
            is_known = is_known and lag is not None
            slowest[partition] = max(slowest.get(partition, 0), lag or 0)
    divided = sum(partition.topic not in retries for partition in slowest)
    return ScalingUnit(sum(slowest.values()) if is_known else None, divided)
