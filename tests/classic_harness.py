"""A classic membership in a harness: its time, application and coordinator are played by the test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from multilane.client.cluster import Cluster
from multilane.client.group.assignors import find_assignor
from multilane.client.group.classic import ClassicMembership, ClassicState
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
from multilane.metrics.observer import Counts
from multilane.types import NodeId, TopicPartition
from multilane.wire.messages import ApiKey
from multilane.wire.subscription import MemberSubscription, write_assignment, write_subscription
from response_builder import cluster_of, make, response_parts

VERSIONS = {ApiKey.JOIN_GROUP: 9, ApiKey.SYNC_GROUP: 5, ApiKey.HEARTBEAT: 4, ApiKey.LEAVE_GROUP: 5}
BACKOFF = RequestBackoff(0.1, 1.0, jitter=0.0)
SESSION, HEARTBEAT, MAX_POLL = 45.0, 3.0, 300.0


def partitions(topic: str, *numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition(topic, number) for number in numbers)


def picture(topics: Mapping[str, int]) -> Cluster:
    return cluster_of({TopicPartition(t, n): (1, 1) for t, count in topics.items() for n in range(count)})


def group_config(instance: str | None = None, strategy: Sequence[str] = ("range",), **changes: Any) -> GroupConfig:
    values: dict[str, Any] = {
        "group_id": "g",
        "group_protocol": "classic",
        "group_instance_id": instance,
        "group_remote_assignor": None,
        "partition_assignment_strategy": tuple(strategy),
        "session_timeout": SESSION,
        "heartbeat_interval": HEARTBEAT / HEARTBEAT_FRACTION,
        "max_poll_interval": MAX_POLL,
        "enable_auto_commit": False,
        "auto_commit_interval": 5.0,
    }
    return GroupConfig(**(values | changes))


class KnownCoordinator:
    """Node 1 coordinates, until a test says otherwise."""

    def __init__(self) -> None:
        self.node: NodeId | None = NodeId(1)
        self.forgotten: list[int] = []
        self.is_looking = False

    def of(self, group: str) -> NodeId | None:
        assert group == "g"
        return self.node

    def forget(self, group: str, node: NodeId) -> None:
        assert group == "g"
        self.forgotten.append(node)

    def last_error(self, group: str) -> MultilaneError | None:
        return None if self.is_looking else NetworkError("no broker answers")


class Harness:
    def __init__(
        self,
        *strategy: Any,
        instance: str | None = None,
        topics: Mapping[str, int] | None = None,
        rack: str | None = None,
    ) -> None:
        self.now = 0.0
        self.poll_activity = PollActivity(0.0)
        self.poll_activity.is_polling = True
        self.coordinators = KnownCoordinator()
        self.cluster = picture(topics or {"t": 4})
        self.steps: list[RebalanceStep] = []
        self.errors: list[MultilaneError] = []
        self.hung_up: list[str] = []
        self.refreshes = 0
        self.counts = Counts()
        self.open: list[UnsentRequest] = []
        self.wait = 0.0
        chosen = [find_assignor(a) for a in strategy or ("range",)]
        self.member = ClassicMembership(
            MemberPolicy(group_config(instance, [a.name for a in chosen]), BACKOFF, rack, "c1"),
            self.poll_activity,
            self.coordinators,
            MemberListeners(
                cluster=lambda: self.cluster,
                refresh=self._refresh,
                step=self.steps.append,
                failed=self.errors.append,
                close_connections=self._hang_up,
                observer=self.counts,
            ),
            chosen,
        )

    def _refresh(self) -> None:
        self.refreshes += 1

    def _hang_up(self, owner: str) -> None:
        """As the network does it: who waits on these connections is not told."""
        self.hung_up.append(owner)
        self.open = [request for request in self.open if request.channel.owner != owner]

    # --- time and requests -------------------------------------------------------------------------------------------

    @property
    def state(self) -> ClassicState:
        return self.member.state

    def poll(self, later: float = 0.0) -> list[UnsentRequest]:
        """What it wants to send `later` seconds from now."""
        self.now += later
        polled = self.member.poll(self.now)
        self.open += polled.requests
        self.wait = polled.wait
        return list(polled.requests)

    def sent(self, api: ApiKey, later: float = 0.0) -> tuple[UnsentRequest, Any]:
        """The one request of this kind that is open, after a poll, and what it says."""
        self.poll(later)
        (found,) = [request for request in self.open if request.api is api]
        return found, found.build(VERSIONS[api])

    def none_sent(self, api: ApiKey, later: float = 0.0) -> bool:
        self.poll(later)
        return all(request.api is not api for request in self.open)

    def answer(self, api: ApiKey, **values: Any) -> None:
        request, _ = self.sent(api)
        self.open.remove(request)
        request.on_response(response(api, **values), self.now)

    def fail(self, api: ApiKey, error: MultilaneError) -> None:
        request, _ = self.sent(api)
        self.open.remove(request)
        request.on_failure(error, self.now)

    # --- the usual course --------------------------------------------------------------------------------------------

    def subscribe(self, *topics: str) -> None:
        self.member.subscribe(Subscription(frozenset(topics or ("t",))), self.now)

    def join(self, generation: int = 1, member: str = "m1", leader: str = "other", protocol: str = "range") -> None:
        self.answer(
            ApiKey.JOIN_GROUP, generation_id=generation, member_id=member, leader=leader, protocol_name=protocol
        )

    def sync(self, assigned: Iterable[TopicPartition]) -> None:
        self.answer(ApiKey.SYNC_GROUP, assignment=write_assignment(assigned))

    def step(self, change: Change, wanted: Iterable[TopicPartition]) -> RebalanceStep:
        """The step that is open; it must be this one."""
        step = self.steps[-1]
        assert (step.change, step.partitions) == (change, frozenset(wanted))
        assert self.member._owned_partitions.step == step
        return step

    def done(self, change: Change, wanted: Iterable[TopicPartition]) -> None:
        self.member.step_done(self.step(change, wanted).ticket, self.now)

    def settle(self, assigned: frozenset[TopicPartition], generation: int = 1, protocol: str = "range") -> None:
        """From the subscription to STABLE, with this assignment."""
        self.subscribe()
        self.join(generation, protocol=protocol)
        self.sync(assigned)
        self.done(Change.ASSIGNED, assigned)
        self.poll()
        assert self.state is ClassicState.STABLE


def response(api: ApiKey, version: int | None = None, **values: Any) -> Any:
    """An answer of the coordinator. `error_code` is a number; what is not given is what says nothing."""
    parts = response_parts(api, VERSIONS[api] if version is None else version)
    kind = "".join(word.capitalize() for word in api.name.split("_")) + "Response"
    nothing: dict[str, Any] = {
        "error_code": 0,
        "generation_id": 1,
        "protocol_type": "consumer",
        "protocol_name": "range",
        "leader": "other",
        "skip_assignment": False,
        "member_id": "m1",
        "members": (),
        "assignment": b"",
    }
    if api is ApiKey.SYNC_GROUP:
        nothing["protocol_name"] = None
    given = nothing | values
    if api is ApiKey.JOIN_GROUP:
        given["members"] = tuple(
            make(parts.JoinGroupResponseMember, member_id=m, group_instance_id=next(iter(i), None), metadata=data)
            for m, data, *i in given["members"]
        )
    return make(getattr(parts, kind), **given)


def metadata_of(
    *topics: str, owned: Iterable[TopicPartition] = (), generation: int = -1, user_data: bytes | None = None
) -> bytes:
    return write_subscription(MemberSubscription(topics, user_data, tuple(owned), generation))
