"""A coordinator of KIP-848 that says what a test wants, and one member's application, on a clock that tests move."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any
from uuid import UUID

from multilane.client.cluster import Cluster
from multilane.client.group.consumer_protocol.membership import ConsumerMembership
from multilane.client.group.membership import (
    HEARTBEAT_FRACTION,
    Change,
    MemberListeners,
    MemberPolicy,
    PollActivity,
    RebalanceStep,
    Subscription,
)
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import UnsentRequest
from multilane.config.group import GroupConfig
from multilane.errors import MultilaneError, NetworkError
from multilane.types import NodeId, TopicPartition
from multilane.wire.messages import ApiKey, encode_request
from response_builder import cluster_of, make, response_parts

MAX_POLL = 300.0
INTERVAL = 4.5  # until the next heartbeat: a little less than the broker asks for
T, U = UUID(int=1), UUID(int=2)
IDS = {"t": T, "u": U}


def config(**changed: Any) -> GroupConfig:
    given: dict[str, Any] = {
        "group_id": "g",
        "group_protocol": "consumer",
        "group_instance_id": None,
        "group_remote_assignor": None,
        "partition_assignment_strategy": ("range",),
        "session_timeout": 45.0,
        "heartbeat_interval": 3.0,
        "max_poll_interval": MAX_POLL,
        "enable_auto_commit": False,
        "auto_commit_interval": 5.0,
    }
    return GroupConfig(**{**given, **changed})


def partitions(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, n) for n in numbers)


def picture(topics: Mapping[str, int], ids: Mapping[str, UUID] | None = None) -> Cluster:
    """Topic -> how many partitions."""
    leaders = {TopicPartition(t, n): (1, 1) for t, count in topics.items() for n in range(count)}
    return cluster_of(leaders, ids={t: (ids or IDS)[t] for t in topics})


def heartbeat_response(
    epoch: int = 0,
    assigned: Mapping[UUID | None, Any] | None = None,
    *,
    code: int = 0,
    interval: float = INTERVAL / HEARTBEAT_FRACTION,
    member_id: str | None = None,
) -> Any:
    parts = response_parts(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
    assignment = None
    if assigned is not None:
        entries = tuple(parts.TopicPartitions(topic_id=i, partitions=tuple(n)) for i, n in assigned.items())
        assignment = parts.Assignment(topic_partitions=entries)
    return make(
        parts.ConsumerGroupHeartbeatResponse,
        error_code=code,
        error_message="said the broker" if code else None,
        member_id=member_id,
        member_epoch=epoch,
        heartbeat_interval=timedelta(seconds=interval),
        assignment=assignment,
    )


def owned_in(said: Any) -> dict[UUID, set[int]] | None:
    if said.topic_partitions is None:
        return None
    return {t.topic_id: set(t.partitions) for t in said.topic_partitions}


class Harness:
    def __init__(self, *, rack: str | None = None, **changed: Any) -> None:
        self.now = 0.0
        self.node: NodeId | None = NodeId(1)
        self.cluster = picture({"t": 8})
        self.poll_activity = PollActivity(0.0)
        self.poll_activity.is_polling = True
        self.steps: list[RebalanceStep] = []
        self.failures: list[MultilaneError] = []
        self.unsupported: list[MultilaneError] = []
        self.refreshes = 0
        self.forgotten: list[NodeId] = []
        self.is_looking = False  # for a coordinator that is not known
        self.wanted: set[UUID] = set()
        self.requests: list[UnsentRequest] = []
        self.wait = 0.0
        self.left = 0
        self.member = ConsumerMembership(
            MemberPolicy(config(**changed), RequestBackoff(0.1, 1.0, jitter=0.0), rack, "c1"),
            self.poll_activity,
            self,
            MemberListeners(
                cluster=lambda: self.cluster,
                refresh=self._refresh,
                step=self.steps.append,
                failed=self.failures.append,
                close_connections=lambda _: None,
            ),
            self.unsupported.append,
            self,
        )

    # --- what the member has to do with ------------------------------------------------------------------------------

    def of(self, group: str) -> NodeId | None:
        assert group == "g"
        return self.node

    def forget(self, group: str, node: NodeId) -> None:
        self.forgotten.append(node)

    def last_error(self, group: str) -> MultilaneError | None:
        return None if self.is_looking else NetworkError("no broker answers")

    def add_ids(self, ids: Any) -> None:
        assert not self.wanted & set(ids)
        self.wanted |= set(ids)

    def drop_ids(self, ids: Any) -> None:
        assert self.wanted >= set(ids)
        self.wanted -= set(ids)

    def _refresh(self) -> None:
        self.refreshes += 1

    # --- what a test does --------------------------------------------------------------------------------------------

    def poll(self, now: float | None = None) -> list[UnsentRequest]:
        self.now = self.now if now is None else now
        polled = self.member.poll(self.now)
        self.wait = polled.wait
        self.requests += polled.requests
        return list(polled.requests)

    def said(self, now: float | None = None, version: int = 1) -> Any:
        """The one request that goes out; encoded, so that a wrong value does not pass."""
        (request,) = self.poll(now)
        assert request.api is ApiKey.CONSUMER_GROUP_HEARTBEAT
        entity = request.build(version)
        encode_request(entity, 1, "c")
        return entity

    def answer(self, epoch: int = 0, assigned: Any = None, **more: Any) -> None:
        self.requests.pop(0).on_response(heartbeat_response(epoch, assigned, **more), self.now)

    def fail(self, error: MultilaneError) -> None:
        self.requests.pop(0).on_failure(error, self.now)

    def subscribe(self, *topics: str, regex: str | None = None) -> None:
        self.member.subscribe(Subscription(frozenset(topics), regex), self.now)

    def done(self, change: Change, names: frozenset[TopicPartition]) -> None:
        """The newest step is this, and the application takes it."""
        step = self.steps[-1]
        assert (step.change, step.partitions) == (change, names)
        self.member.step_done(step.ticket, self.now)

    def leave(self) -> None:
        self.member.leave(self._has_left, self.now)

    def _has_left(self) -> None:
        self.left += 1

    def settle(self, *numbers: int, epoch: int = 1) -> None:
        """A member of t with these partitions, and nothing under way."""
        self.subscribe("t")
        self.said()
        self.answer(epoch, {T: numbers} if numbers else {})
        self.done(Change.ASSIGNED, partitions("t", *numbers))
        assert owned_in(self.said()) == ({T: set(numbers)} if numbers else {})
        self.answer(epoch)
        assert self.poll() == []
