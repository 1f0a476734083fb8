"""Warns of partitions that a group has given to nobody, and names the consumers that get no records because of it.

Thread: loop; asks the brokers on another.

Members of one group may read different topics, as `sharing: same-topic` makes them. A classic group is divided by one
of its members, which may be another client with an assignor that overlooks topics it does not read itself. Nobody is
asked while every topic has a partition here. Never changes the group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from multilane.client.admin.admin import Admin
from multilane.clock import Clock
from multilane.errors import MultilaneError
from multilane.group.starvation import starved
from multilane.logs import logger
from multilane.types import TopicPartition

log = logger(__name__)

Look = Callable[[Collection[str]], tuple[str, tuple[TopicPartition, ...]]]  # the assignor, and what nobody has

PATIENCE: Final = 30.0  # seconds without a partition of a topic: rebalances are over by then
_AGAIN: Final = 300.0  # a member too many has no partition for good


class StarvationWatch:
    def __init__(self, group: str, topics: Callable[[], Mapping[str, Sequence[str]]], look: Look, clock: Clock) -> None:
        """`topics` returns those of each consumer: consumers may come and go."""
        self._group = group
        self._topics = topics
        self._look = look
        self._clock = clock
        self._missing_since: dict[str, float] = {}
        self._not_before = 0.0
        self._reported: frozenset[TopicPartition] = frozenset()

    async def run(self, held: Callable[[], Collection[TopicPartition] | None]) -> None:
        """Run until cancelled. `held`: the partitions of this member, None while it is in no group."""
        while True:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=PATIENCE / 10)
            partitions = held()
            if self.is_due(partitions, self._clock.monotonic()):
                await self._check()

    def is_due(self, held: Collection[TopicPartition] | None, now: float) -> bool:
        if held is None:
            self._missing_since.clear()
            return False
        having = {partition.topic for partition in held}
        missing = {topic for topics in self._topics().values() for topic in topics} - having
        self._missing_since = {topic: self._missing_since.get(topic, now) for topic in missing}
        return now >= self._not_before and any(now - since >= PATIENCE for since in self._missing_since.values())

    async def _check(self) -> None:
        self._not_before = self._clock.monotonic() + _AGAIN
        topics = list(self._missing_since)
        try:
            assignor, found = await asyncio.to_thread(self._look, topics)
        except MultilaneError as error:
            log.debug("group %s: cannot tell whether partitions have no member: %s", self._group, error)
            return
        if found and frozenset(found) != self._reported:
            names = [n for n, own in self._topics().items() if any(p.topic in own for p in found)]
            log.warning(
                "group %s: no member has %s, so %s get no records of them. The assignor %s has left them out: whoever "
                "leads the group may not know topics that it does not read. Give all members the same topics (sharing: "
                "cross-topic), or other clients their own group",
                *(self._group, ", ".join(map(str, found)), ", ".join(names), assignor or "of the group"),
            )
        self._reported = frozenset(found)


def look_with(connect: Callable[[], Admin], group: str) -> Look:
    """Asks the brokers."""

    def look(topics: Collection[str]) -> tuple[str, tuple[TopicPartition, ...]]:
        with connect() as admin:
            described = admin.describe_groups([group])[group]
            counts = {name: len(topic.partitions) for name, topic in admin.topics(list(topics)).items()}
            return described.assignor, starved(counts, described)

    return look
