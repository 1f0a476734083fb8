"""The sticky assignment of a group whose members subscribe to different topics.

Thread: none (pure).

Members keep their partitions of topics that they still subscribe to. The other partitions go one by one to the
subscriber with the lightest load. Then partitions move from a member to the lightest other subscriber as long as that
one has at least two fewer.

A partition that moves back instead of another (see `movements`) may come from a third member that has no more than the
target: such a detour makes loads less even. There may be as many detours as partitions; from then on each move makes
the loads more even, so the algorithm terminates.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from multilane.client.group.assignors.claims import Claims
from multilane.client.group.assignors.movements import Movements
from multilane.client.group.assignors.racks import RackMap
from multilane.client.group.assignors.values import AssignorMember, TopicShape, utf16
from multilane.types import TopicPartition


def assign_unevenly(
    members: Sequence[AssignorMember], claims: Claims, topics: Mapping[str, TopicShape], racks: RackMap
) -> dict[str, Sequence[TopicPartition]]:
    loads = _Loads(members)
    must_revoke = _keep(loads, claims, racks)
    everything = _least_wanted_first(loads, topics)
    left = [partition for partition in everything if partition not in loads.holder]
    if racks:
        for partition in left:
            loads.give_to_lightest(partition, racks.fits)
    for partition in left:
        if partition not in loads.holder:
            loads.give_to_lightest(partition, lambda _member, _partition: True)
    movements = Movements()
    if not must_revoke:
        # If this is enough, no member loses a partition.
        _balance(loads, movements, left, claims.former)
    _balance(loads, movements, everything, claims.former)
    return {member: tuple(held) for member, held in loads.held.items()}


class _Loads:
    """The present assignment, and the members ordered by load."""

    def __init__(self, members: Sequence[AssignorMember]) -> None:
        self.held: dict[str, dict[TopicPartition, None]] = {member.member_id: {} for member in members}
        self.holder: dict[TopicPartition, str] = {}
        self.topics = {member.member_id: frozenset(member.topics) for member in members}
        self._order = sorted((0, utf16(member), member) for member in self.held)

    def lightest(self, topic: str) -> str:
        """The lightest subscriber of a topic that has at least one."""
        return next(member for _, _, member in self._order if topic in self.topics[member])

    def give_to_lightest(self, partition: TopicPartition, fits: Callable[[str, TopicPartition], bool]) -> None:
        for _, _, member in self._order:
            if partition.topic in self.topics[member] and fits(member, partition):
                self.give(partition, member)
                return

    def give(self, partition: TopicPartition, member: str) -> None:
        previous = self.holder.get(partition)
        if previous is not None:
            self._weigh_out(previous)
            del self.held[previous][partition]
            self._weigh_in(previous)
        self._weigh_out(member)
        self.held[member][partition] = None
        self._weigh_in(member)
        self.holder[partition] = member

    def would_even(self, holder: str, target: str) -> bool:
        """Whether a move from one to the other makes their loads more even."""
        return len(self.held[holder]) > len(self.held[target]) + 1

    def _weigh_out(self, member: str) -> None:
        del self._order[bisect_left(self._order, (len(self.held[member]), utf16(member), member))]

    def _weigh_in(self, member: str) -> None:
        insort(self._order, (len(self.held[member]), utf16(member), member))


def _keep(loads: _Loads, claims: Claims, racks: RackMap) -> bool:
    """Lets members keep what they may keep. Returns whether one must release a partition."""
    must_revoke = False
    for member, owned in claims.owned.items():
        for partition in owned:
            if partition.topic in loads.topics[member] and racks.fits(member, partition):
                loads.give(partition, member)
            else:
                must_revoke = True
    return must_revoke


def _least_wanted_first(loads: _Loads, topics: Mapping[str, TopicShape]) -> list[TopicPartition]:
    readers = Counter(topic for subscribed in loads.topics.values() for topic in subscribed)
    listed = sorted(topics, key=lambda topic: (readers[topic], topic))
    return [TopicPartition(topic, number) for topic in listed for number in range(topics[topic].partitions)]


def _balance(
    loads: _Loads,
    movements: Movements,
    movable: Sequence[TopicPartition],
    former: Mapping[TopicPartition, str],
) -> None:
    """Moves partitions, to a former owner if that helps, until no move makes the loads more even."""
    moved = True
    detours = len(loads.holder)
    while moved:
        moved = False
        for partition in movable:
            holder = loads.holder[partition]
            target = former.get(partition, holder)
            if partition.topic not in loads.topics[target] or not loads.would_even(holder, target):
                target = loads.lightest(partition.topic)
            if loads.would_even(holder, target):
                better = movements.instead_of(partition, holder, target)
                is_detour = not loads.would_even(loads.holder[better], target)
                detours -= is_detour
                chosen = partition if is_detour and detours < 0 else better
                movements.record(chosen, loads.holder[chosen], target)
                loads.give(chosen, target)
                moved = True
