"""The range assignor: each topic by itself, cut into ranges, one for each subscriber.

Thread: none (pure).

If racks are known and differ, partitions go first to members in the rack of a replica, as far as the size of the ranges
allows; the rest is then distributed as usual. Topics with the same number of partitions and the same subscribers are
matched together, so that partition 3 of each goes to one member.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from multilane.client.group.assignors.racks import worth_matching
from multilane.client.group.assignors.values import (
    AssignorMember,
    GroupAssignment,
    TopicShape,
    TopicShapes,
    seniority,
    wanted,
)
from multilane.types import TopicPartition

_Fits = Callable[[str, int], bool]


class RangeAssignor:
    name: Final = "range"
    cooperative: Final = False

    def assign(self, members: Sequence[AssignorMember], topics: TopicShapes) -> GroupAssignment:
        existing = wanted(members, topics)
        readers: dict[str, dict[str, str | None]] = {topic: {} for topic in existing}
        for member in sorted(members, key=seniority):
            for topic in existing.keys() & member.topics:
                readers[topic][member.member_id] = member.rack or None
        cuts = [_Cut(topic, shape, readers[topic]) for topic, shape in existing.items()]
        if any(cut.worth_matching for cut in cuts):
            for alike in _alike(cuts):
                _match_racks(alike)
        assigned: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        for cut in cuts:
            cut.deal(lambda _member, _partition: True)
            for reader, numbers in cut.given.items():
                assigned[reader] += [TopicPartition(cut.topic, number) for number in sorted(numbers)]
        return {reader: tuple(partitions) for reader, partitions in assigned.items()}

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        del owned, generation
        return b""


class _Cut:
    """One topic being divided. Every reader gets `share` partitions; `extras` of them get one more."""

    def __init__(self, topic: str, shape: TopicShape, readers: dict[str, str | None]) -> None:
        self.topic = topic
        self.shape = shape
        self.readers = readers
        self.given: dict[str, list[int]] = {member: [] for member in readers}
        self._left = dict.fromkeys(range(shape.partitions))
        self._share, self._extras = divmod(shape.partitions, len(readers))
        known = {rack for rack in readers.values() if rack is not None}
        self.worth_matching = worth_matching(known, (shape.racks_of(number) for number in range(shape.partitions)))

    def room(self, member: str) -> int:
        return max(0, self._share + (self._extras > 0) - len(self.given[member]))

    def give(self, member: str, numbers: list[int]) -> None:
        self.given[member] += numbers
        if len(self.given[member]) > self._share:
            self._extras -= 1
        for number in numbers:
            del self._left[number]

    def deal(self, fits: _Fits) -> None:
        """Gives each reader in turn as many partitions as it has room for."""
        for member in self.readers:
            fitting = (number for number in self._left if fits(member, number))
            if numbers := list(islice(fitting, self.room(member))):
                self.give(member, numbers)

    def near(self, member: str, number: int) -> bool:
        rack = self.readers[member]
        return rack is None or rack in self.shape.racks_of(number)


def _alike(cuts: list[_Cut]) -> list[list[_Cut]]:
    """Groups topics with the same readers and the same number of partitions."""
    found: dict[tuple[tuple[str, ...], int], list[_Cut]] = {}
    for cut in cuts:
        found.setdefault((tuple(cut.readers), cut.shape.partitions), []).append(cut)
    return list(found.values())


def _match_racks(alike: list[_Cut]) -> None:
    first = alike[0]
    if len(alike) == 1:
        if first.worth_matching:
            first.deal(first.near)
        return
    if not any(first.readers.values()):
        return  # no member has a rack
    for number in range(first.shape.partitions):
        for member in first.readers:
            if all(cut.room(member) and cut.near(member, number) for cut in alike):
                for cut in alike:
                    cut.give(member, [number])
                break
