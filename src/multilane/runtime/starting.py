"""Prepares a consumer to join its group, and retries until the brokers answer.

Thread: loop.

With `retryOrder: key` a topic and its retry topic must have the same number of partitions. Waits for brokers that are
down and topics that do not exist yet: the start of one group never ends another. Only different numbers of partitions
end the app.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.errors import BrokerError, ConfigError, MultilaneError
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.runtime.group_lanes import GroupLanes
from multilane.seldom import Seldom

log = logger(__name__)
T = TypeVar("T")

_REQUEST_TIMEOUT: Final = 5.0
_RETRY_BACKOFF: Final = 1.0
_LOG_EVERY: Final = 30.0
_UNKNOWN_TOPIC: Final = 3


async def opened(lanes: GroupLanes, stopping: asyncio.Event) -> bool:
    """Open the factory: its worker processes import the application, which may take long. False if `stopping` is set
    before."""
    await _until_stopped(asyncio.ensure_future(lanes.open()), stopping)
    return not stopping.is_set()


async def member_of(
    lanes: GroupLanes, clock: Clock, observer: Observer, stopping: asyncio.Event
) -> AsyncConsumer | None:
    """Return a consumer that is ready to join the group; None if `stopping` is set before."""
    consumer = AsyncConsumer(lanes.source.member_properties, clock=clock, observer=observer)
    if not lanes.source.keeps_order:
        return consumer
    try:
        counts = await _until_stopped(_partition_counts(lanes, consumer, clock), stopping)
        if counts is not None:
            _check_equal(lanes, counts)
            return consumer
    except BaseException:
        await consumer.close(0)
        raise
    await consumer.close(0)
    return None


async def _until_stopped(future: asyncio.Future[T], stopping: asyncio.Event) -> T | None:
    stopped = asyncio.ensure_future(stopping.wait())
    both: list[asyncio.Future[Any]] = [future, stopped]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return future.result() if future.done() else None
    finally:
        stopped.cancel()
        future.cancel()
        with suppress(asyncio.CancelledError, MultilaneError):
            await future  # one user at a time: it is closed next


def _partition_counts(lanes: GroupLanes, consumer: AsyncConsumer, clock: Clock) -> asyncio.Future[Mapping[str, int]]:
    return asyncio.ensure_future(_request_counts(lanes, consumer, clock))


async def _request_counts(lanes: GroupLanes, consumer: AsyncConsumer, clock: Clock) -> Mapping[str, int]:
    seldom = Seldom(_LOG_EVERY)
    topics = lanes.source.topics.names
    while True:
        try:
            return {topic: len(await consumer.partitions_for(topic, _REQUEST_TIMEOUT)) for topic in topics}
        except MultilaneError as error:
            if not _may_pass(error):
                raise
            if seldom.tell(clock.monotonic()):
                log.warning(
                    "consumer %s cannot start yet, retrying: %s. With retryOrder: key it starts once it has checked "
                    "that %s have the same number of partitions. Create missing topics",
                    lanes.config.name,
                    error,
                    " and ".join(topics),
                )
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=_RETRY_BACKOFF)


def _may_pass(error: MultilaneError) -> bool:
    """A missing topic may be created."""
    return error.retriable or (isinstance(error, BrokerError) and error.code == _UNKNOWN_TOPIC)


def _check_equal(lanes: GroupLanes, counts: Mapping[str, int]) -> None:
    for topics in lanes.source.topics.together:
        numbers = ", ".join(f"{topic} has {counts[topic]}" for topic in topics)
        if len({counts[topic] for topic in topics}) == 1:
            continue
        raise ConfigError(
            f"consumer {lanes.config.name!r}: with retryOrder: key a topic and its retry topic need the same "
            f"number of partitions, but {numbers}. Add partitions, or set retryOrder: none"
        )
