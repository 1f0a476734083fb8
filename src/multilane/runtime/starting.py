"""Prepares a consumer to join its group, and retries until the brokers answer.

Thread: loop.

With `retryOrder: key` a topic and its retry topic must have the same number of partitions. Waits for brokers that are
down, topics that do not exist yet and remote audit storage that is out of reach: the start of one group never ends
another. Different numbers of partitions end the app, and so do worker processes that die at several starts in a row,
because their functions probably cannot be imported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, TypeVar

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import Clock
from multilane.errors import BrokerError, ConfigError, MultilaneError
from multilane.lanes.commit_metadata import try_limit
from multilane.lanes.worker import WorkerDied
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.rate_limit import RateLimit
from multilane.runtime.consumer_source import with_share_of_buffer
from multilane.runtime.group_lanes import GroupLanes
from multilane.runtime.shared_lanes import SharedLanes

log = logger(__name__)
T = TypeVar("T")

_REQUEST_TIMEOUT: Final = 5.0
_RETRY_BACKOFF: Final = 1.0
_LONGEST_BACKOFF: Final = 30.0
_WORKER_STARTS: Final = 5  # with the pauses between them a quarter of a minute
_LOG_EVERY: Final = 30.0
_UNKNOWN_TOPIC: Final = 3


async def opened(lanes: GroupLanes, clock: Clock, stopping: asyncio.Event) -> bool:
    """Open the factory: its worker processes import the application, which may take long. False if `stopping` is set
    before."""
    await _until_stopped(asyncio.ensure_future(_open(lanes, clock)), stopping)
    return not stopping.is_set()


async def _open(lanes: GroupLanes, clock: Clock) -> None:
    name, rate_limit, backoff, deaths = lanes.config.name, RateLimit(_LOG_EVERY), _RETRY_BACKOFF, 0
    while True:
        try:
            return await lanes.open()
        except (WorkerDied, OSError) as error:  # OSError: too little memory, or too many processes
            deaths += 1
            if deaths == _WORKER_STARTS:
                text = f"consumer {name}: its worker processes could not start, {deaths} times in a row: {error}"
                raise WorkerDied(text) from error
            log.warning("consumer %s: worker processes could not start, retrying: %s", name, error)
        except MultilaneError as error:
            if not error.retriable:
                raise
            deaths = 0
            if rate_limit.due(clock.monotonic()):
                log.warning("consumer %s cannot start yet, retrying: %s", name, error)
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=backoff)
        backoff = min(2 * backoff, _LONGEST_BACKOFF)


async def member_of(
    lanes: GroupLanes, clock: Clock, observer: Observer, stopping: asyncio.Event, members: int = 1
) -> AsyncConsumer | None:
    """Return a consumer that is ready to join the group; None if `stopping` is set before. `members`: of all groups
    that fetch in this process."""
    properties = with_share_of_buffer(lanes.source.member_properties, members)
    consumer = AsyncConsumer(properties, clock=clock, observer=observer)
    try:
        if await _until_stopped(asyncio.ensure_future(_checked(lanes, consumer, clock)), stopping):
            return consumer
    except BaseException:
        await consumer.close(0)
        raise
    await consumer.close(0)
    return None


async def _checked(lanes: GroupLanes, consumer: AsyncConsumer, clock: Clock) -> bool:
    if lanes.source.keeps_order:
        _check_equal(lanes, await _request_counts(lanes, consumer, clock))
    if isinstance(lanes, SharedLanes):
        while (most := await try_limit(consumer)) is None:  # nor could it join its group
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=_RETRY_BACKOFF)
        lanes.check_room(most)
    return True


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


async def _request_counts(lanes: GroupLanes, consumer: AsyncConsumer, clock: Clock) -> Mapping[str, int]:
    rate_limit = RateLimit(_LOG_EVERY)
    topics = lanes.source.topics.names
    while True:
        try:
            return {topic: len(await consumer.partitions_for(topic, _REQUEST_TIMEOUT)) for topic in topics}
        except MultilaneError as error:
            if not _may_pass(error):
                raise
            if rate_limit.due(clock.monotonic()):
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
    for topics in lanes.source.topics.paired:
        numbers = ", ".join(f"{topic} has {counts[topic]}" for topic in topics)
        if len({counts[topic] for topic in topics}) == 1:
            continue
        raise ConfigError(
            f"consumer {lanes.config.name!r}: with retryOrder: key a topic and its retry topic need the same "
            f"number of partitions, but {numbers}. Add partitions, or set retryOrder: none"
        )
