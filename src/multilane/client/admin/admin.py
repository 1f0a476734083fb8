"""The admin client: reads over multilane's own protocol code, writes through librdkafka.

Thread: application; any number of threads may use one client.

Reads are calls on the shared network thread. Writes (`topic_writes`) load confluent-kafka with the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self
from uuid import UUID

from multilane.client.admin import answers
from multilane.client.admin.admin_requests import AdminRequest, AdminRequests
from multilane.client.admin.answers import (
    ClusterDescription,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    TopicDescription,
)
from multilane.client.admin.member_removal import leave_request
from multilane.client.admin.offset_lookup import OffsetLookup
from multilane.client.admin.offsets_partition import OFFSETS_TOPIC, offsets_partition
from multilane.client.admin.topic_writes import TopicWrites
from multilane.client.arguments import name_list
from multilane.config.connection import parse_connection
from multilane.config.values import merged
from multilane.errors import BrokerError, MultilaneError, NetworkError, UnsupportedVersion, broker_error
from multilane.wire.compose import EARLIEST, IDS_AT_LEAST, LATEST, MAX_TIMESTAMP, METADATA_AT_LEAST, metadata_request
from multilane.wire.compose_groups import (
    DESCRIBE_GROUPS_AT_LEAST,
    FIND_COORDINATOR_AT_LEAST,
    LIST_GROUPS_AT_LEAST,
    OFFSET_FETCH_AT_LEAST,
    consumer_group_describe_request,
    describe_groups_request,
    find_coordinator_request,
    list_groups_request,
    offset_fetch_request,
)
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.group.membership import Identity
    from multilane.clock import Clock
    from multilane.metrics.observer import Observer
    from multilane.types import NodeId, OffsetAndTimestamp, TopicPartition

OffsetTime = Literal["earliest", "latest", "max_timestamp"] | int

_LOOKUPS: Final = {"earliest": EARLIEST, "latest": LATEST, "max_timestamp": MAX_TIMESTAMP}
_GROUP_ID_NOT_FOUND: Final = 69
_DEAD: Final = "Dead"


class Admin:
    """Describes and changes topics, and describes groups.

    >>> with Admin({"bootstrap.servers": "localhost:9092"}) as admin:
    ...     admin.create_topics({"orders": 6})
    ...     print(admin.topics(["orders"])["orders"].partitions)

    Every call blocks until it completes or times out (`timeout`, default: `default.api.timeout.ms`).
    """

    def __init__(
        self,
        properties: Mapping[str, object] | None = None,
        /,
        *,
        clock: Clock | None = None,
        observer: Observer | None = None,
        **more: object,
    ) -> None:
        config = parse_connection(merged(properties, more))
        self._writes = TopicWrites(config)
        self._requests = AdminRequests(config, clock, observer)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """A second call does nothing."""
        self._requests.close()
        self._writes.close()

    # --- the cluster and its topics ----------------------------------------------------------------------------------

    def cluster(self, timeout: float | None = None) -> ClusterDescription:
        return self._cluster(self._requests.deadline(timeout))

    def topics(self, names: Collection[str] | None = None, timeout: float | None = None) -> dict[str, TopicDescription]:
        """The named topics, or all of them. Raises if a named topic does not exist."""
        return self._topics(names, self._requests.deadline(timeout))

    def offsets(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]],
        at: OffsetTime = "latest",
        *,
        read_committed: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Each partition's first offset, end, offset of the largest timestamp, or offset at a time (ms since 1970).

        None if there is no such record: none at or after the given time, or none at all for `max_timestamp`.
        """
        deadline = self._requests.deadline(timeout)
        lookup = OffsetLookup(self._requests, lambda names: self._topics(names, deadline), deadline)
        return lookup.find(partitions, _timestamp(at), read_committed=read_committed)

    # --- groups ------------------------------------------------------------------------------------------------------

    def groups(self, timeout: float | None = None) -> tuple[GroupListing, ...]:
        """All groups of all brokers. Starts again if a broker leaves, because its groups move."""
        deadline = self._requests.deadline(timeout)
        failures = 0
        while True:
            try:
                return self._groups(deadline)
            except NetworkError as error:
                failures += 1
                self._requests.pause(failures, deadline, error)

    def describe_groups(self, names: Iterable[str], timeout: float | None = None) -> dict[str, GroupDescription]:
        """Members and their partitions, for groups of both protocols. Raises if a group does not exist."""
        deadline = self._requests.deadline(timeout)
        return {name: self._describe(name, deadline) for name in name_list(names, "groups")}

    def remove_member(self, member: Identity, timeout: float | None = None) -> None:
        """Leave a group on behalf of a dead member, so that its partitions are free before its session timeout. If the
        member is still alive, its group fences it."""
        deadline = self._requests.deadline(timeout)
        request = leave_request(member)
        self._requests.ask_responsible(lambda: self._coordinator(member.group, deadline), request, deadline)

    def offsets_partition(self, group: str, timeout: float | None = None) -> int:
        """The partition of `__consumer_offsets` with a group's commits; its leader coordinates the group."""
        return offsets_partition(group, self.offsets_topic_partitions(timeout))

    def offsets_topic_partitions(self, timeout: float | None = None) -> int:
        """The number of partitions of `__consumer_offsets`. Brokers create it with the first group."""
        return len(self.topics([OFFSETS_TOPIC], timeout)[OFFSETS_TOPIC].partitions)

    def group_offsets(self, group: str, timeout: float | None = None) -> dict[TopicPartition, CommittedOffset]:
        """All offsets that a group has committed; empty for a group that does not exist.

        The result is always the coordinator's response: the request is retried while there is no coordinator, or while
        it loads. Omits the offsets of deleted topics.
        """
        deadline = self._requests.deadline(timeout)
        request = AdminRequest(
            ApiKey.OFFSET_FETCH,
            lambda version: offset_fetch_request(version, group),
            OFFSET_FETCH_AT_LEAST,
            lambda response: _offsets_error(response, group),
        )
        response, _ = self._requests.ask_responsible(lambda: self._coordinator(group, deadline), request, deadline)
        offsets: Any = answers.offsets_group(response, group)
        ids = [topic.topic_id for topic in offsets.topics if not hasattr(topic, "name")]
        return answers.committed_in(offsets, self._names_by_id(ids, deadline) if ids else {})

    # --- writes ------------------------------------------------------------------------------------------------------

    def create_topics(
        self,
        topics: Mapping[str, int],
        replication_factor: int = -1,
        configs: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> None:
        """Create topics (name -> number of partitions) and wait until every partition has a leader.

        -1 selects the cluster's default, for partitions and for the replication factor.
        """
        deadline = self._write_deadline(timeout)
        self._writes.create_topics(topics, replication_factor, configs or {}, self._requests.left(deadline))
        self._wait_topics(tuple(topics), _all_led, deadline)

    def delete_topics(self, names: Collection[str], timeout: float | None = None) -> None:
        deadline = self._write_deadline(timeout)
        self._writes.delete_topics(name_list(names, "topics"), self._requests.left(deadline))

    def create_partitions(self, totals: Mapping[str, int], timeout: float | None = None) -> None:
        """Increase each topic's number of partitions to the given total; wait until the new ones have leaders."""
        deadline = self._write_deadline(timeout)
        self._writes.create_partitions(totals, self._requests.left(deadline))
        self._wait_topics(tuple(totals), lambda t: len(t.partitions) >= totals[t.name] and _all_led(t), deadline)

    def alter_topic_config(self, topic: str, changes: Mapping[str, str | None], timeout: float | None = None) -> None:
        """Set the given configurations and keep the others; None restores the default."""
        deadline = self._write_deadline(timeout)
        self._writes.alter_topic_config(topic, changes, self._requests.left(deadline))

    def delete_records(
        self, before: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset (-1: all records); returns the new first offset of each log."""
        deadline = self._write_deadline(timeout)
        return self._writes.delete_records(before, self._requests.left(deadline))

    # --- requests ----------------------------------------------------------------------------------------------------

    def _write_deadline(self, timeout: float | None) -> float:
        self._requests.check()
        return self._requests.deadline(timeout)

    def _cluster(self, deadline: float) -> ClusterDescription:
        request = AdminRequest(ApiKey.METADATA, partial(metadata_request, topics=(), create=False), METADATA_AT_LEAST)
        return answers.cluster_in(self._requests.ask(request, deadline))

    def _topics(self, names: Collection[str] | None, deadline: float) -> dict[str, TopicDescription]:
        wanted = None if names is None else name_list(names, "topics")
        if wanted == ():
            return {}
        request = AdminRequest(
            ApiKey.METADATA,
            partial(metadata_request, topics=wanted, create=False),
            METADATA_AT_LEAST,
            lambda response: answers.topic_errors(response, named=wanted is not None),
        )
        return answers.topics_in(self._requests.ask(request, deadline))

    def _wait_topics(self, names: tuple[str, ...], ready: Callable[[TopicDescription], bool], deadline: float) -> None:
        """The controller responds before every broker knows of the change."""
        failures = 0
        while True:
            missing = broker_error(3, f"Metadata of {', '.join(names[:5])}")
            try:
                found = self._topics(names, deadline)
            except BrokerError as error:
                if error.code != missing.code:
                    raise
                found = {}
            if len(found) == len(names) and all(map(ready, found.values())):
                return
            failures += 1
            self._requests.pause(failures, deadline, missing)

    def _names_by_id(self, ids: Collection[UUID], deadline: float) -> dict[UUID, str]:
        request = AdminRequest(
            ApiKey.METADATA,
            partial(metadata_request, topics=None, create=False, ids=tuple(ids)),
            IDS_AT_LEAST,
            lambda response: answers.topic_errors(response, named=False),
        )
        found = answers.topics_in(self._requests.ask(request, deadline))
        return {t.id: t.name for t in found.values() if t.id is not None}

    def _groups(self, deadline: float) -> tuple[GroupListing, ...]:
        request = AdminRequest(ApiKey.LIST_GROUPS, list_groups_request, LIST_GROUPS_AT_LEAST, _listing_error)
        found: dict[str, GroupListing] = {}
        for broker in self._cluster(deadline).brokers:
            find = partial(self._check_present, broker.id, deadline)
            response, node = self._requests.ask_responsible(find, request, deadline)
            found |= {group.id: group for group in answers.listings_in(response, node)}
        return tuple(sorted(found.values(), key=lambda g: g.id))

    def _check_present(self, node: NodeId, deadline: float) -> NodeId:
        if all(b.id != node for b in self._cluster(deadline).brokers):
            raise NetworkError(f"broker {node} left the cluster while its groups were being listed")
        return node

    def _coordinator(self, group: str, deadline: float) -> NodeId:
        request = AdminRequest(
            ApiKey.FIND_COORDINATOR,
            lambda version: find_coordinator_request(version, group),
            FIND_COORDINATOR_AT_LEAST,
            lambda response: _coded(answers.coordinator_in(response, group)[0], f"FindCoordinator of group {group}"),
        )
        return answers.coordinator_in(self._requests.ask(request, deadline), group)[1]

    def _describe(self, group: str, deadline: float) -> GroupDescription:
        """Brokers before 3.7 do not support ConsumerGroupDescribe; others answer it only for KIP-848 groups."""
        try:
            described, node = self._ask_group(
                ApiKey.CONSUMER_GROUP_DESCRIBE, consumer_group_describe_request, 0, group, deadline
            )
            return answers.consumer_group(described, node)
        except UnsupportedVersion:
            pass
        except BrokerError as error:
            if error.code != _GROUP_ID_NOT_FOUND:
                raise
        described, node = self._ask_group(
            ApiKey.DESCRIBE_GROUPS, describe_groups_request, DESCRIBE_GROUPS_AT_LEAST, group, deadline
        )
        if str(described.group_state) == _DEAD:
            raise broker_error(_GROUP_ID_NOT_FOUND, f"DescribeGroups of group {group}")
        return answers.classic_group(described, node)

    def _ask_group(
        self, api: ApiKey, build: Callable[[int, tuple[str, ...]], Any], at_least: int, group: str, deadline: float
    ) -> tuple[Any, NodeId]:
        request = AdminRequest(
            api, lambda v: build(v, (group,)), at_least, lambda response: _group_error(response, group)
        )
        response, node = self._requests.ask_responsible(lambda: self._coordinator(group, deadline), request, deadline)
        return next(g for g in response.groups if str(g.group_id) == group), node


def _all_led(topic: TopicDescription) -> bool:
    return bool(topic.partitions) and all(p.leader is not None for p in topic.partitions)


def _timestamp(at: OffsetTime) -> int:
    if isinstance(at, str):
        if at not in _LOOKUPS:
            raise ValueError(f"at={at!r}: write {', '.join(_LOOKUPS)} or milliseconds since 1970")
        return _LOOKUPS[at]
    if at < 0:
        raise ValueError(f"at={at}: write milliseconds since 1970")
    return at


def _coded(code: int, context: str, text: str | None = None) -> BrokerError | None:
    return broker_error(code, context, text) if code else None


def _listing_error(response: Any) -> MultilaneError | None:
    return _coded(int(response.error_code), "ListGroups")


def _group_error(response: Any, group: str) -> MultilaneError | None:
    described = next((g for g in response.groups if str(g.group_id) == group), None)
    context = f"the description of group {group}"
    if described is None:
        return broker_error(-1, context, "the response does not contain the group")
    return _coded(int(described.error_code), context, getattr(described, "error_message", None))


def _offsets_error(response: Any, group: str) -> MultilaneError | None:
    offsets = answers.offsets_group(response, group)
    if offsets is None:
        return broker_error(-1, f"OffsetFetch of group {group}", "the response does not contain the group")
    error = answers.offset_errors(offsets, group)
    return None if error is not None and error.code == _GROUP_ID_NOT_FOUND else error
