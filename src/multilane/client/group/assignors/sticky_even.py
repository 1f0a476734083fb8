"""The sticky assignment of a group in which everyone subscribes to the same topics.

Thread: none (pure).

Every member ends with `low` partitions or, some of them, one more. First everyone keeps what it has, up to that; then
what is left goes to whoever lacks something, in turn: near replicas first where racks matter, anywhere after that.
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
    table = _Table(claims, len(everything), racks)
    kept = {partition for partitions in table.assigned.values() for partition in partitions}
    left = [partition for partition in everything if partition not in kept]
    if racks:
        left.sort(key=racks.readers)  # the choosiest first
        left = [partition for partition in left if not table.give_near(partition)]
    table.deal(left)
    return dict(table.assigned)


class _Table:
    """The members at table. `hungry` ones have less than `low`; `sated` ones have just that and may get one more, as
    long as there are `extras`."""

    def __init__(self, claims: Claims, count: int, racks: RackMap) -> None:
        self.assigned: dict[str, list[TopicPartition]] = {}
        self._racks = racks
        self._low, self._extras = divmod(count, len(claims.owned))
        self._hungry: list[str] = []
        self._sated: list[str] = []
        self._turn = 0
        for member, owned in claims.owned.items():
            keepable = [p for p in owned if p not in claims.disputed and racks.fits(member, p)]
            self._keep(member, sorted(keepable, key=lambda p: (p.partition, p.topic)))
        self._hungry.sort(key=utf16)
        self._sated.sort(key=utf16)
        self._stop_when_no_extras()

    def _keep(self, member: str, owned: list[TopicPartition]) -> None:
        keep = self._low
        if len(owned) < self._low:
            self._hungry.append(member)
        elif len(owned) > self._low and self._extras:
            self._extras -= 1
            keep += 1
        else:
            self._sated.append(member)
        self.assigned[member] = owned[:keep]

    def _stop_when_no_extras(self) -> None:
        if not self._extras:
            self._sated.clear()

    def give_near(self, partition: TopicPartition) -> bool:
        """To a member in the same rack, if one has room; hungry ones take turns."""
        index = self._racks.next_near(partition, self._hungry, self._turn)
        if index is not None:
            self._feed(index, partition)
            return True
        index = self._racks.next_near(partition, self._sated, 0)
        if index is None:
            return False
        self.assigned[self._sated.pop(index)].append(partition)
        self._extras -= 1
        self._stop_when_no_extras()
        return True

    def _feed(self, index: int, partition: TopicPartition) -> None:
        member = self._hungry[index]
        self.assigned[member].append(partition)
        if len(self.assigned[member]) < self._low:
            index += 1
        else:
            del self._hungry[index]
            if self._extras:
                self._sated.append(member)
        self._turn = index % len(self._hungry) if self._hungry else 0

    def deal(self, partitions: Sequence[TopicPartition]) -> None:
        """The rest, wherever it is: there is exactly as much room as there are partitions."""
        hungry, sated = deque(self._hungry), deque(self._sated)
        for partition in partitions:
            member = hungry.popleft() if hungry else sated.popleft()
            self.assigned[member].append(partition)
            if len(self.assigned[member]) <= self._low:
                (hungry if len(self.assigned[member]) < self._low else sated).append(member)
