"""The application's steps of a classic rebalance: which partitions each is about, and how long it may take.

Thread: none (pure); belongs to a membership.

Owns the target assignment and since when the group waits for this member. `OwnedPartitions` knows what the application
owns; the membership decides when a step is due, and never names partitions.
"""

from __future__ import annotations

from multilane.client.group.classic.owned_partitions import OwnedPartitions, PartitionSet
from multilane.client.group.membership import Change


class ClassicSteps:
    def __init__(self, owned: OwnedPartitions, limit: float, *, is_cooperative: bool) -> None:
        self._owned_partitions = owned
        self._limit = limit
        self._is_cooperative = is_cooperative
        self._target: PartitionSet = frozenset()
        self._group_waits_since: float | None = None

    def group_waits(self, now: float) -> None:
        if self._group_waits_since is None:
            self._group_waits_since = now

    def group_waits_no_longer(self) -> None:
        self._group_waits_since = None

    def surplus(self, topics: frozenset[str]) -> PartitionSet:
        """Partitions that the application must release before JoinGroup, for a subscription to these topics."""
        owned = self._owned_partitions.owned
        if not self._is_cooperative:
            return owned
        return frozenset(partition for partition in owned if partition.topic not in topics)

    def revoke_surplus(self, topics: frozenset[str], now: float) -> None:
        since = now if self._group_waits_since is None else self._group_waits_since
        self._owned_partitions.ask(Change.REVOKED, self.surplus(topics), since + self._limit)

    def reconcile(self, target: PartitionSet, now: float) -> bool:
        """The first step towards this assignment. Returns whether it revokes; then `assign` is the second."""
        self._target = target
        removed = self._owned_partitions.owned - target
        if removed:
            self._owned_partitions.ask(Change.REVOKED, removed, now + self._limit)
        else:
            self.assign(now)
        return bool(removed)

    def assign(self, now: float) -> None:
        self._owned_partitions.ask(Change.ASSIGNED, self._target - self._owned_partitions.owned, now + self._limit)

    def lose(self, now: float) -> int:
        """Returns how many partitions are lost; without any there is no step."""
        owned = self._owned_partitions.owned
        if owned:
            self._owned_partitions.ask(Change.LOST, owned, now + self._limit)
        return len(owned)
