"""What a consumer of the configuration reads: its topics, and the Kafka properties to read them or to join its group.

Thread: any (values).

Owns the choice of properties that the lanes need. Never connects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multilane.config.app.clients import admin_properties, consumer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.consumer import parse_consumer
from multilane.lanes.assignment import ReadTopics

_BUFFER: Final = "fetch.buffer.bytes"
_BUFFER_BYTES: Final = 64 * 1024 * 1024  # lanes need less buffer than a reader of columns
_LEAST_BUFFER: Final = 4 * 1024 * 1024
_FETCHING: Final = {
    _BUFFER: _BUFFER_BYTES,
    "fetch.pace.ms": 5,  # and calls that take milliseconds do not need a fetch for each record
}
# `offsetInitial` is for groups without a commit. One with a position must not skip what it has not handled.
_LOST: Final = {"lost.position.reset": "earliest"}
_STRATEGY: Final = "partition.assignment.strategy"


class ConsumerSource:
    def __init__(self, config: ConsumerGroupConfig, cluster: ClusterConfig) -> None:
        self._config = config
        self._cluster = cluster
        self._properties = _FETCHING | _LOST | consumer_properties(config, cluster)

    @property
    def keeps_order(self) -> bool:
        """Whether the order of a key survives a retry."""
        return self._config.retry_order == "key" and self._config.retry is not None

    @property
    def topics(self) -> ReadTopics:
        """The topics, retry topic first: its records come before those of the main topic. The retry topic is read from
        its beginning, because copies may be stored before this group has a position there, and none may be skipped."""
        names = tuple(t for t in (self._config.retry, self._config.topic) if t is not None)
        together = (names,) if self.keeps_order else ()
        return ReadTopics(names, together, from_beginning=frozenset(names) - {self._config.topic})

    @property
    def admin_properties(self) -> dict[str, object]:
        """Properties of an Admin of its cluster."""
        return admin_properties(self._cluster)

    @property
    def reader_properties(self) -> dict[str, object]:
        """Properties of a consumer of these topics that joins no group."""
        return {name: value for name, value in self._properties.items() if not name.startswith("group.")}

    @property
    def member_properties(self) -> dict[str, object]:
        """Properties of a consumer that joins the group."""
        properties = dict(self._properties)
        group = parse_consumer(properties).group
        # Where order needs it, partitions with the same number go to one member. Elsewhere too: the broker's default
        # assignor counts partitions, and may give all of the topic to one member and all of the retries to another.
        if group.group_protocol != "consumer" and self.keeps_order:
            properties[_STRATEGY] = "range"
        if group.group_protocol != "classic" and (
            self.keeps_order or (self._config.retry is not None and group.group_remote_assignor is None)
        ):
            properties["group.remote.assignor"] = "range"
            if group.group_protocol == "auto":  # setting only one of the two would decide the protocol
                properties.setdefault(_STRATEGY, ",".join(group.partition_assignment_strategy))
        return properties


def with_share_of_buffer(properties: Mapping[str, object], members: int) -> Mapping[str, object]:
    """So many members of groups in this process share the default memory for what is fetched ahead: with all of it
    each, 31 of them that read the same log had fetched 2 GB before they had handled 2 % of it."""
    if properties.get(_BUFFER) != _BUFFER_BYTES:
        return properties
    return {**properties, _BUFFER: max(_LEAST_BUFFER, _BUFFER_BYTES // members)}
