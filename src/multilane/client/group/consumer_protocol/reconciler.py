"""Takes a member from what it owns to what it is assigned, one step of the application at a time.

Thread: none (pure); belongs to the membership that made it, on the network thread.

Owns what is owned and assigned, the open step, the ids looked for, and what the coordinator has yet to hear of it. An
assignment that comes while a step is open waits for it, and only the newest counts. The coordinator is told what we own
after each step that changes it, and once for each assignment, even if that changes nothing: it may wait to hear that we
do not own a partition we never knew the name of.

Nothing is begun with while a list without it is under way. The coordinator may by then want the partition for another
member; it finds that we do not have it and gives it away at once, and our beginning with it, on the strength of an
older assignment, would make two owners. When such a list is lost, nobody knows whether it arrived: the next answer
tells.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from multilane.client.group.consumer_protocol.names import TopicIds, WantedIds
from multilane.client.group.consumer_protocol.reconciliation import Numbered, Reconciliation, Target
from multilane.client.group.consumer_protocol.steps import Steps
from multilane.client.group.membership import Change

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.group.membership import MemberListeners
    from multilane.types import TopicPartition


class ReconcileOutcome(enum.Enum):
    IN_STEP = "the application is at work"
    WAITING = "for names, or for an answer, and there is nothing else to do"
    COMPLETE = "what is owned is what is assigned"


class Reconciler:
    def __init__(self, listeners: MemberListeners, topic_ids: TopicIds, timeout: float) -> None:
        self.must_acknowledge = False  # the coordinator must hear what we own
        self._listeners = listeners
        self._timeout = timeout
        self._steps = Steps(listeners.step)
        self._holding = Reconciliation()
        self._ids = WantedIds(topic_ids)
        self._looked_at: Cluster | None = None  # the picture that the last outcome was made on
        self._outcome = ReconcileOutcome.COMPLETE
        self._may_refresh = False  # once per heartbeat, however often the picture changes
        self._aimed_at = 0.0  # when the newest assignment came
        self._is_announced = False  # an ASSIGNED step was told since the last REVOKED one, or since we joined
        self._is_answered = False  # the coordinator was told what we own after the newest assignment
        self._is_list_out = False  # it was told, and has not answered since

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._holding.owned

    @property
    def in_step(self) -> bool:
        return self._steps.is_open

    def tell(self) -> Mapping[UUID, Collection[int]]:
        """What we own; the caller says it to the coordinator."""
        self.must_acknowledge = False
        self._is_answered = self._is_list_out = True
        return self._holding.owned_by_id()

    def aim(self, target: Target | None, now: float) -> bool:
        """A heartbeat was answered. True when it brought another assignment."""
        self._may_refresh = True
        self._is_list_out = False
        self._looked_at = None
        if target is None or target == self._holding.target:
            return False
        self._holding.target, self._aimed_at = target, now
        self._is_answered = False
        return True

    def advance(self) -> ReconcileOutcome:
        """Do what can be done without waiting for anybody."""
        if self._steps.is_open:
            return ReconcileOutcome.IN_STEP
        cluster = self._listeners.cluster()
        if cluster is not self._looked_at:
            self._looked_at = cluster
            self._outcome = self._take_step(cluster)
        return self._outcome

    def _take_step(self, cluster: Cluster) -> ReconcileOutcome:
        plan = self._holding.plan(cluster)
        if self._ids.want(plan.unknown, cluster) and self._may_refresh:
            self._may_refresh = False
            self._listeners.refresh()
        if plan.revoked:
            self._is_announced = False
            self._begin(Change.REVOKED, self._holding.names_of(plan.revoked), plan.revoked)
            return ReconcileOutcome.IN_STEP
        if plan.added and self._is_list_out:
            return ReconcileOutcome.WAITING
        if plan.added or not (self._is_announced or plan.unknown):
            self._is_announced = True
            self._holding.take(plan.added)
            self._begin(Change.ASSIGNED, frozenset(plan.added.values()), frozenset(plan.added))
            return ReconcileOutcome.IN_STEP
        self._ids.keep(plan.unknown)
        if not self._is_answered:
            self.must_acknowledge = True
        return ReconcileOutcome.WAITING if plan.unknown else ReconcileOutcome.COMPLETE

    def _begin(self, change: Change, names: frozenset[TopicPartition], partitions: frozenset[Numbered]) -> None:
        self._steps.begin(change, names, self._aimed_at + self._timeout, partitions)

    def done(self, ticket: int) -> bool:
        """The application is through with a step. False when that was another one than the open one."""
        closed = self._steps.close(ticket)
        if closed is None:
            return False
        self._looked_at = None
        match closed.step.change:
            case Change.LOST:
                self._holding.clear()
            case Change.REVOKED:
                self._holding.give_up(closed.partitions)
                self.must_acknowledge = True
            case Change.ASSIGNED:
                self.must_acknowledge |= bool(closed.partitions) or not self._is_answered
        return True

    def lose(self, now: float) -> bool:
        """Tell the application that everything is lost. False when there is nothing to lose."""
        self._ids.keep(frozenset())
        if self.owned:
            self._steps.begin(Change.LOST, self.owned, now + self._timeout)
        return self._steps.is_open

    def clear(self) -> None:
        """Nothing is owned, nothing is assigned and the application is at nothing: as before joining."""
        self._steps.forget()
        self._holding.clear()
        self._ids.keep(frozenset())
        self._looked_at = None
        self._is_announced = self.must_acknowledge = self._is_list_out = False
        self._is_answered = True
