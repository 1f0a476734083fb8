"""The fields of heartbeats: only changes since the last acknowledged one.

Thread: none (pure); belongs to the membership that made it, on the network thread.

The first heartbeat of a membership is complete, and so is the one after a failed heartbeat, because it is unknown
whether that arrived. Otherwise unchanged fields are omitted, which also spares the coordinator a complete answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from multilane.client.group.membership import MemberPolicy, Subscription
from multilane.wire.compose_members import JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH, MemberHeartbeat

if TYPE_CHECKING:
    from multilane.config.group import GroupConfig


class HeartbeatFields:
    def __init__(self, policy: MemberPolicy, group: str) -> None:
        self.subscription = Subscription()
        self._config: GroupConfig = policy.group
        self._rack = policy.rack or None
        self._group = group
        self._acknowledged: Subscription | None = None
        self._had_regex = False

    @property
    def is_full(self) -> bool:
        return self._acknowledged is None

    def heartbeat(self, member_id: str, epoch: int, owned: Mapping[UUID, Collection[int]] | None) -> MemberHeartbeat:
        """`owned` None: unchanged; not allowed in a complete heartbeat."""
        subscription, full = self.subscription, self._acknowledged is None
        acknowledged = Subscription() if self._acknowledged is None else self._acknowledged
        self._had_regex |= subscription.regex is not None
        topics, regex = None, None
        if full or subscription.topics != acknowledged.topics:
            topics = tuple(sorted(subscription.topics))
        if (full and self._had_regex) or subscription.regex != acknowledged.regex:
            regex = subscription.regex or ""
        return MemberHeartbeat(
            group=self._group,
            member_id=member_id,
            epoch=epoch,
            instance_id=self._config.group_instance_id,
            rack=self._rack if full else None,
            rebalance_timeout=self._config.max_poll_interval if full else None,
            topics=topics,
            regex=regex,
            assignor=self._config.group_remote_assignor if full else None,
            owned={} if epoch == JOIN_EPOCH else owned,
        )

    def leave_heartbeat(self, member_id: str) -> MemberHeartbeat:
        instance = self._config.group_instance_id
        epoch = LEAVE_EPOCH if instance is None else LEAVE_STATIC_EPOCH
        return MemberHeartbeat(group=self._group, member_id=member_id, epoch=epoch, instance_id=instance)

    def acknowledged(self, subscription: Subscription) -> None:
        self._acknowledged = subscription

    def start_over(self) -> None:
        """A heartbeat failed, or the coordinator has changed: the next one is complete."""
        self._acknowledged = None
