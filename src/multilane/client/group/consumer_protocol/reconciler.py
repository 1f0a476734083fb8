"""Reconciles a member's owned partitions with its assignment, one step of the application at a time.

Thread: none (pure); belongs to the membership that made it, on the network thread.

Owns the owned and the assigned partitions, the open step, the ids being looked up, and whether a report to the
coordinator is due. An assignment that arrives while a step is open waits for it, and only the newest counts. The owned
partitions are reported to the coordinator after each step that changes them, and once per assignment even without a
change: the coordinator may wait for the report that a partition whose name is unknown here is not owned.

No partition is started while a report without it is in flight. The coordinator may want the partition for another
member by then: it sees that this member does not own it and assigns it at once. Starting it here, from an older
assignment, would make two owners. If a report is lost it is unknown whether it arrived; the next answer resolves that.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from multilane.client.group.consumer_protocol.names import TopicIds, WantedIds
from multilane.client.group.consumer_protocol.reconciliation import Numbered, Reconciliation, TargetAssignment
from multilane.client.group.consumer_protocol.steps import Steps
from multilane.client.group.membership import Change

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.group.membership import MemberListeners
    from multilane.types import TopicPartition


class ReconcileOutcome(enum.Enum):
    IN_STEP = "the application has an open step"
    WAITING = "waits for topic names or for an answer"
    COMPLETE = "the owned partitions are the assigned ones"


class Reconciler:
    def __init__(self, listeners: MemberListeners, topic_ids: TopicIds, timeout: float) -> None:
        self.must_acknowledge = False  # a report of the owned partitions is due
        self._listeners = listeners
        self._timeout = timeout
        self._steps = Steps(listeners.step)
        self._reconciliation = Reconciliation()
        self._ids = WantedIds(topic_ids)
        self._seen_cluster: Cluster | None = None  # the cluster metadata of the last outcome
        self._outcome = ReconcileOutcome.COMPLETE
        self._may_refresh = False  # once per heartbeat, however often the metadata changes
        self._target_since = 0.0  # when the newest assignment arrived
        self._is_announced = False  # an ASSIGNED step was sent since the last REVOKED one, or since joining
        self._is_reported = False  # the owned partitions were reported after the newest assignment
        self._report_in_flight = False  # the coordinator has not answered the report yet

    @property
    def owned(self) -> frozenset[TopicPartition]:
        return self._reconciliation.owned

    @property
    def in_step(self) -> bool:
        return self._steps.is_open

    def report_owned(self) -> Mapping[UUID, Collection[int]]:
        """The owned partitions, which the caller sends to the coordinator."""
        self.must_acknowledge = False
        self._is_reported = self._report_in_flight = True
        return self._reconciliation.owned_by_id()

    def set_target(self, target: TargetAssignment | None, now: float) -> bool:
        """A heartbeat was answered. Returns whether it brought another assignment."""
        self._may_refresh = True
        self._report_in_flight = False
        self._seen_cluster = None
        if target is None or target == self._reconciliation.target:
            return False
        self._reconciliation.target, self._target_since = target, now
        self._is_reported = False
        return True

    def advance(self) -> ReconcileOutcome:
        """Takes the next step that is possible without waiting."""
        if self._steps.is_open:
            return ReconcileOutcome.IN_STEP
        cluster = self._listeners.cluster()
        if cluster is not self._seen_cluster:
            self._seen_cluster = cluster
            self._outcome = self._take_step(cluster)
        return self._outcome

    def _take_step(self, cluster: Cluster) -> ReconcileOutcome:
        plan = self._reconciliation.plan(cluster)
        if self._ids.want(plan.unknown, cluster) and self._may_refresh:
            self._may_refresh = False
            self._listeners.refresh()
        if plan.revoked:
            self._is_announced = False
            self._begin(Change.REVOKED, self._reconciliation.names_of(plan.revoked), plan.revoked)
            return ReconcileOutcome.IN_STEP
        if plan.added and self._report_in_flight:
            return ReconcileOutcome.WAITING
        if plan.added or not (self._is_announced or plan.unknown):
            self._is_announced = True
            self._reconciliation.add(plan.added)
            self._begin(Change.ASSIGNED, frozenset(plan.added.values()), frozenset(plan.added))
            return ReconcileOutcome.IN_STEP
        self._ids.keep(plan.unknown)
        if not self._is_reported:
            self.must_acknowledge = True
        return ReconcileOutcome.WAITING if plan.unknown else ReconcileOutcome.COMPLETE

    def _begin(self, change: Change, names: frozenset[TopicPartition], partitions: frozenset[Numbered]) -> None:
        self._steps.begin(change, names, self._target_since + self._timeout, partitions)

    def done(self, ticket: int) -> bool:
        """The application has completed a step. False if it is not the open one."""
        closed = self._steps.close(ticket)
        if closed is None:
            return False
        self._seen_cluster = None
        match closed.step.change:
            case Change.LOST:
                self._reconciliation.clear()
            case Change.REVOKED:
                self._reconciliation.remove(closed.partitions)
                self.must_acknowledge = True
            case Change.ASSIGNED:
                self.must_acknowledge |= bool(closed.partitions) or not self._is_reported
        return True

    def lose(self, now: float) -> bool:
        """Sends the application a LOST step for all partitions. False if there is nothing to lose."""
        self._ids.keep(frozenset())
        if self.owned:
            self._steps.begin(Change.LOST, self.owned, now + self._timeout)
        return self._steps.is_open

    def clear(self) -> None:
        """Forgets owned and assigned partitions and the open step, as before joining."""
        self._steps.forget()
        self._reconciliation.clear()
        self._ids.keep(frozenset())
        self._seen_cluster = None
        self._is_announced = self.must_acknowledge = self._report_in_flight = False
        self._is_reported = True
