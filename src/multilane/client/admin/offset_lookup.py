"""Looks up offsets for the admin client: asks each partition's leader, and retries if the leader changed.

Thread: application. One object serves one lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from multilane.client.admin.admin_requests import AdminRequest, AdminRequests
from multilane.errors import MultilaneError, broker_error
from multilane.types import LeaderEpoch, Offset, OffsetAndTimestamp, TopicPartition
from multilane.wire.compose import (
    LIST_OFFSETS_AT_LEAST,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_AT_LEAST,
    list_offsets_request,
)
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.admin.answers import TopicDescription
    from multilane.types import NodeId

Describe = Callable[[Collection[str]], Mapping[str, "TopicDescription"]]
Leaders = dict["NodeId", dict[TopicPartition, LeaderEpoch]]

_UNKNOWN_PARTITION: Final = 3
_NO_LEADER: Final = 5
_TIMEOUT_MS: Final = 30_000


class OffsetLookup:
    def __init__(self, requests: AdminRequests, describe: Describe, deadline: float) -> None:
        self._requests = requests
        self._describe = describe
        self._deadline = deadline
        self._found: dict[TopicPartition, OffsetAndTimestamp | None] = {}
        self._error: MultilaneError | None = None

    def find(
        self, partitions: Iterable[TopicPartition | tuple[str, int]], timestamp: int, *, read_committed: bool
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        wanted = [TopicPartition(*p) for p in partitions]
        failures = 0
        while True:
            open_ = [p for p in wanted if p not in self._found]
            if not open_:
                return {p: self._found[p] for p in wanted}
            if failures:
                self._requests.pause(failures, self._deadline, self._error or broker_error(_NO_LEADER, "Metadata"))
            failures += 1
            self._round(self._leaders(open_), timestamp, read_committed)

    def _round(self, leaders: Leaders, timestamp: int, read_committed: bool) -> None:
        """Send to all leaders at once, then wait for each."""
        asked = [
            (node, epochs, self._requests.send(_request(epochs, timestamp, read_committed), self._deadline, node))
            for node, epochs in leaders.items()
        ]
        for node, epochs, future in asked:
            find = partial(self._leader_of, next(iter(epochs)))
            response = self._requests.wait_responsible(future, node, find, self._deadline)
            if response is not None:
                self._take(response, epochs)

    def _take(self, response: Any, asked: Collection[TopicPartition]) -> None:
        for topic in response.topics:
            for found in topic.partitions:
                partition = TopicPartition(str(topic.name), int(found.partition_index))
                if partition not in asked:
                    continue
                if int(found.error_code):
                    self._note(broker_error(int(found.error_code), f"ListOffsets of {partition}"))
                else:
                    self._found[partition] = _found_offset(found)

    def _note(self, error: MultilaneError) -> None:
        if not error.retriable:
            raise error
        self._error = error

    def _leaders(self, partitions: Collection[TopicPartition]) -> Leaders:
        leaders: Leaders = {}
        described = self._describe({p.topic for p in partitions})
        for partition in partitions:
            found = next((p for p in described[partition.topic].partitions if p.number == partition.partition), None)
            if found is None:
                missing = broker_error(_UNKNOWN_PARTITION, f"Metadata of {partition}")
                missing.retriable = False
                raise missing
            if found.leader is None:
                self._note(broker_error(_NO_LEADER, f"Metadata of {partition}"))
            else:
                leaders.setdefault(found.leader, {})[partition] = found.leader_epoch
        return leaders

    def _leader_of(self, partition: TopicPartition) -> NodeId | None:
        return next(iter(self._leaders([partition])), None)


def _request(epochs: Mapping[TopicPartition, LeaderEpoch], timestamp: int, read_committed: bool) -> AdminRequest:
    wanted = {p: (timestamp, int(epoch)) for p, epoch in epochs.items()}
    return AdminRequest(
        ApiKey.LIST_OFFSETS,
        lambda version: list_offsets_request(version, wanted, read_committed=read_committed, timeout_ms=_TIMEOUT_MS),
        MAX_TIMESTAMP_AT_LEAST if timestamp == MAX_TIMESTAMP else LIST_OFFSETS_AT_LEAST,
    )


def _found_offset(found: Any) -> OffsetAndTimestamp | None:
    if int(found.offset) < 0:
        return None
    return OffsetAndTimestamp(Offset(int(found.offset)), int(found.timestamp), LeaderEpoch(int(found.leader_epoch)))
