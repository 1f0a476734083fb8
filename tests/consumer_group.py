"""A small coordinator of KIP-848 in memory: member epochs, target assignments, and partitions that change hands only
when their former owner has said that it does not have them, or is thrown out.

It keeps to what Kafka's does: a member moves to the epoch of the target assignment when nothing is to be taken from it,
and until it has acknowledged it keeps its epoch; one answer may be lost, so the epoch before is good too if the list of
what is owned fits. A session that ends and a revocation that takes too long remove the member.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from consumer_harness import heartbeat_response

SESSION = 45.0
UNKNOWN_MEMBER, NOT_COORDINATOR, FENCED_EPOCH = 25, 16, 110
Parts = frozenset[tuple[UUID, int]]


@dataclass
class Member:
    id: str
    epoch: int = 0
    before: int = 0  # the epoch before this one
    assigned: Parts = frozenset()
    unrevoked: Parts = frozenset()
    is_waiting: bool = False  # for partitions that others still have
    topics: tuple[str, ...] = ()
    rebalance_timeout: float = 0.0
    session_ends: float = 0.0
    revoke_by: float | None = None

    @property
    def holds(self) -> Parts:
        return self.assigned | self.unrevoked


@dataclass
class Group:
    topics: Mapping[str, Parts]
    node: int = 1
    epoch: int = 0
    members: dict[str, Member] = field(default_factory=dict)
    target: dict[str, Parts] = field(default_factory=dict)

    def expire(self, now: float) -> None:
        for member in list(self.members.values()):
            too_late = member.revoke_by is not None and now >= member.revoke_by
            if too_late or now >= member.session_ends:
                self.remove(member.id)

    def remove(self, member_id: str) -> None:
        if self.members.pop(member_id, None) is not None:
            self._retarget()

    def _retarget(self) -> None:
        """Another target: each partition goes round those who subscribe to its topic."""
        self.epoch += 1
        self.target = {m: frozenset() for m in self.members}
        for topic, parts in self.topics.items():
            takers = sorted(m.id for m in self.members.values() if topic in m.topics)
            for number, part in enumerate(sorted(parts)):
                if takers:
                    taker = takers[number % len(takers)]
                    self.target[taker] |= {part}

    def heartbeat(self, said: Any, node: int, now: float) -> Any:
        self.expire(now)
        if node != self.node:
            return heartbeat_response(code=NOT_COORDINATOR)
        if said.member_epoch < 0:
            self.remove(said.member_id)
            return heartbeat_response(said.member_epoch)
        owned = _owned(said)
        member = self.members.get(said.member_id)
        if said.member_epoch == 0:
            assert owned == frozenset(), "a join owns nothing, and says so"
            member = self.members.setdefault(said.member_id, Member(said.member_id))
        elif member is None:
            return heartbeat_response(code=UNKNOWN_MEMBER)
        elif not _fits(member, said.member_epoch, owned):
            return heartbeat_response(code=FENCED_EPOCH)
        return self._answer(member, said, owned, now)

    def _answer(self, member: Member, said: Any, owned: Parts | None, now: float) -> Any:
        timeout = said.rebalance_timeout.total_seconds()
        is_full = said.member_epoch == 0 or (
            timeout > 0 and said.subscribed_topic_names is not None and owned is not None
        )
        if timeout > 0:
            member.rebalance_timeout = timeout
        if said.subscribed_topic_names is not None and said.subscribed_topic_names != member.topics:
            member.topics = said.subscribed_topic_names
            self._retarget()
        held = member.assigned
        self._reconcile(member, owned, now)
        member.session_ends = now + SESSION
        assigned = _by_id(member.assigned) if is_full or member.assigned != held else None
        return heartbeat_response(member.epoch, assigned, member_id=member.id)

    def _reconcile(self, member: Member, owned: Parts | None, now: float) -> None:
        if member.unrevoked:
            if owned is None or owned & member.unrevoked:
                return
            self._next(member, member.epoch + 1, owned, now)
        elif member.epoch != self.epoch or member.is_waiting:
            self._next(member, member.epoch, owned, now)

    def _next(self, member: Member, epoch: int, owned: Parts | None, now: float) -> None:
        target = self.target[member.id]
        kept, taken = member.assigned & target, member.assigned - target
        others: Parts = frozenset().union(*(m.holds for m in self.members.values() if m is not member))
        unreleased = (target - kept) & others
        member.before = member.epoch
        member.revoke_by = None
        if taken and (owned is None or owned & taken):
            member.epoch, member.assigned, member.unrevoked = epoch, kept, taken
            member.revoke_by = now + member.rebalance_timeout
            return
        member.epoch = self.epoch
        member.assigned, member.unrevoked = target - unreleased, frozenset()
        member.is_waiting = bool(unreleased)


def _fits(member: Member, epoch: int, owned: Parts | None) -> bool:
    return epoch == member.epoch or (epoch == member.before and owned is not None and owned <= member.assigned)


def _owned(said: Any) -> Parts | None:
    if said.topic_partitions is None:
        return None
    return frozenset((t.topic_id, n) for t in said.topic_partitions for n in t.partitions)


def _by_id(parts: Parts) -> dict[UUID, list[int]]:
    found: dict[UUID, list[int]] = {}
    for topic_id, number in sorted(parts):
        found.setdefault(topic_id, []).append(number)
    return found
