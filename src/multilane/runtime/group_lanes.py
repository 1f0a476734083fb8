"""What an engine needs of the lanes of a group member: those of one consumer, or of the triggers that share it.

Thread: any (types only).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from multilane.client.async_consumer import AsyncConsumer
from multilane.lanes.assignment import ReadTopics, Start
from multilane.lanes.partition_events import PartitionHandler
from multilane.lanes.partition_processor import PartitionProcessor
from multilane.lanes.shared_processor import SharedProcessor
from multilane.metrics.observer import Observer
from multilane.runtime.lane_factory import LaneFactory
from multilane.types import TopicPartition


class MemberSettings(Protocol):
    """What a group's engine needs to know of whoever it runs."""

    @property
    def name(self) -> str: ...
    @property
    def group_id(self) -> str: ...
    @property
    def commit_interval(self) -> float: ...
    @property
    def rebalance_timeout(self) -> float: ...


class MemberSource(Protocol):
    @property
    def keeps_order(self) -> bool: ...
    @property
    def topics(self) -> ReadTopics: ...
    @property
    def member_properties(self) -> Mapping[str, object]: ...
    @property
    def reader_properties(self) -> Mapping[str, object]: ...


class GroupLanes(Protocol):
    """Lanes of one group member: those of a consumer, or of several triggers."""

    @property
    def config(self) -> MemberSettings: ...
    @property
    def source(self) -> MemberSource: ...
    @property
    def consumers(self) -> Mapping[str, LaneFactory]: ...

    def bind_to(self, consumer: AsyncConsumer, observer: Observer) -> PartitionHandler: ...

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def build(self, starts: Mapping[TopicPartition, Start]) -> PartitionProcessor | SharedProcessor: ...

    async def try_write_audit(self) -> bool: ...

    def on_resume(self) -> None: ...
