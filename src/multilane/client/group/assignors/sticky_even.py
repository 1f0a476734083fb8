"""The sticky assignment of a group in which all members subscribe to the same topics.

Thread: none (pure).

Every member ends with `min_quota` partitions, some with one more. First all members keep their partitions up to that
quota; then the rest goes to members below it, in turn: near replicas first if racks matter, then anywhere.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence

from multilane.client.group.assignors.claims import Claims
from multilane.client.group.assignors.racks import RackMap
from multilane.client.group.assignors.values import TopicShape, utf16
from multilane.types import TopicPartition


def assign_evenly(
    claims: Claims, topics: Mapping[str, TopicShape], racks: RackMap
) -> dict[str, Sequence[TopicPartition]]:
    everything = [TopicPartition(topic, n) for topic, shape in sorted(topics.items()) for n in range(shape.partitions)]
    quotas = _Quotas(claims, len(everything), racks)
    kept = {partition for partitions in quotas.assigned.values() for partition in partitions}
    left = [partition for partition in everything if partition not in kept]
    if racks:
        left.sort(key=racks.readers)  # partitions with the fewest near members first
        left = [partition for partition in left if not quotas.give_near(partition)]
    quotas.deal(left)
    return dict(quotas.assigned)


class _Quotas:
    """The members and their quotas. Members `under_min` have fewer than `min_quota` partitions; members `at_min` have
    exactly that many and may get one more while there are `extras`."""

    def __init__(self, claims: Claims, count: int, racks: RackMap) -> None:
        self.assigned: dict[str, list[TopicPartition]] = {}
        self._racks = racks
        self._min_quota, self._extras = divmod(count, len(claims.owned))
        self._under_min: list[str] = []
        self._at_min: list[str] = []
        self._turn = 0
        for member, owned in claims.owned.items():
            keepable = [p for p in owned if p not in claims.disputed and racks.fits(member, p)]
            self._keep(member, sorted(keepable, key=lambda p: (p.partition, p.topic)))
        self._under_min.sort(key=utf16)
        self._at_min.sort(key=utf16)
        self._stop_when_no_extras()

    def _keep(self, member: str, owned: list[TopicPartition]) -> None:
        keep = self._min_quota
        if len(owned) < self._min_quota:
            self._under_min.append(member)
        elif len(owned) > self._min_quota and self._extras:
            self._extras -= 1
            keep += 1
        else:
            self._at_min.append(member)
        self.assigned[member] = owned[:keep]

    def _stop_when_no_extras(self) -> None:
        if not self._extras:
            self._at_min.clear()

    def give_near(self, partition: TopicPartition) -> bool:
        """Assigns to a member in the same rack that has room; members below the minimum take turns."""
        index = self._racks.next_near(partition, self._under_min, self._turn)
        if index is not None:
            self._assign_under_min(index, partition)
            return True
        index = self._racks.next_near(partition, self._at_min, 0)
        if index is None:
            return False
        self.assigned[self._at_min.pop(index)].append(partition)
        self._extras -= 1
        self._stop_when_no_extras()
        return True

    def _assign_under_min(self, index: int, partition: TopicPartition) -> None:
        member = self._under_min[index]
        self.assigned[member].append(partition)
        if len(self.assigned[member]) < self._min_quota:
            index += 1
        else:
            del self._under_min[index]
            if self._extras:
                self._at_min.append(member)
        self._turn = index % len(self._under_min) if self._under_min else 0

    def deal(self, partitions: Sequence[TopicPartition]) -> None:
        """Assigns the rest regardless of racks: there is exactly as much room as there are partitions."""
        under_min, at_min = deque(self._under_min), deque(self._at_min)
        for partition in partitions:
            member = under_min.popleft() if under_min else at_min.popleft()
            self.assigned[member].append(partition)
            if len(self.assigned[member]) <= self._min_quota:
                (under_min if len(self.assigned[member]) < self._min_quota else at_min).append(member)
