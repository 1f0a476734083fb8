"""What runs beside a group member: tasks that look at its group now and then.

Thread: loop.

Owns the tasks, from entering to leaving the block. None of them ends the group: what fails there is logged.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from multilane.client.admin.admin import Admin
from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.runtime.gauges import is_member
from multilane.runtime.group_lanes import GroupLanes
from multilane.runtime.shadow_groups import ShadowGroup, ShadowGroups, mark_of
from multilane.runtime.starvation_watch import StarvationWatch, look_with
from multilane.types import OffsetAndMetadata, TopicPartition

log = logger(__name__)

NoteCommits = Callable[[Mapping[TopicPartition, OffsetAndMetadata]], object]


@asynccontextmanager
async def beside_member(
    lanes: GroupLanes,
    consumer: AsyncConsumer,
    on_committed: Callable[[NoteCommits], object],
    clock: Clock,
    observer: Observer,
) -> AsyncIterator[None]:
    """`on_committed` sets what is called with each commit that the group has stored. `clock` and `observer` are those
    of the consumer, so that all share its network thread."""

    def held() -> Collection[TopicPartition] | None:
        return consumer.assignment if is_member(consumer) else None

    admin = partial(Admin, next(iter(lanes.consumers.values())).source.admin_properties, clock=clock, observer=observer)
    look = look_with(admin, lanes.config.group_id)

    def topics() -> dict[str, tuple[str, ...]]:
        return {name: factory.source.topics.names for name, factory in lanes.consumers.items()}

    def shadow_of(name: str) -> ShadowGroup | None:
        factory = lanes.consumers[name]
        group = factory.config.shadow_group
        if group is None:
            return None
        properties = factory.source.reader_properties | {"group.id": group, "enable.auto.commit": False}
        publisher = AsyncConsumer(properties, clock=clock, observer=observer)
        return ShadowGroup(group, mark_of(lanes.config.group_id), publisher, held)

    def triggers() -> dict[str, tuple[str, str | None]]:
        return {name: (factory.config.topic, factory.config.retry) for name, factory in lanes.consumers.items()}

    shadows = ShadowGroups(triggers, shadow_of, clock)
    on_committed(shadows.note)
    jobs = [StarvationWatch(lanes.config.group_id, topics, look, clock).run(held), shadows.run()]
    tasks = [asyncio.create_task(_logged(job), name=f"multilane beside {lanes.config.name}") for job in jobs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _logged(shadows.close())


async def _logged(job: Coroutine[Any, Any, None]) -> None:
    try:
        await job
    except Exception:
        log.exception("a task beside a group member failed; the group goes on without it")
