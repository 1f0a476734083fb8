"""How a consumer becomes ready to join its group: what has to be known before is asked until somebody answers.

Thread: loop.

With `retryOrder: key` a topic and its retry topic must have equally many partitions. Brokers that are down and topics
that do not exist yet are waited for, as everywhere else: one group's start ends nobody else's. Only an answer that
cannot work ends the app.
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
from multilane.runtime.lane_factory import LaneFactory
from multilane.seldom import Seldom

log = logger(__name__)
T = TypeVar("T")

_ASK: Final = 5.0  # seconds for an answer
_REST: Final = 1.0  # seconds from one question to the next
_TELL_EVERY: Final = 30.0
_UNKNOWN_TOPIC: Final = 3


async def opened(lane_factory: LaneFactory, stopping: asyncio.Event) -> bool:
    """Worker processes have imported the application, which may take long; False when it is told to stop before."""
    await _until_stopped(asyncio.ensure_future(lane_factory.open()), stopping)
    return not stopping.is_set()


async def member_of(
    lane_factory: LaneFactory, clock: Clock, observer: Observer, stopping: asyncio.Event
) -> AsyncConsumer | None:
    """A consumer that is about to be a member of the group; None when it is told to stop before."""
    consumer = AsyncConsumer(lane_factory.joining, clock=clock, observer=observer)
    if not lane_factory.keeps_order:
        return consumer
    try:
        counts = await _until_stopped(_partition_counts(lane_factory, consumer, clock), stopping)
        if counts is not None:
            _check_equal(lane_factory, counts)
            return consumer
    except BaseException:
        await consumer.close(0)
        raise
    await consumer.close(0)
    return None


async def _until_stopped(asking: asyncio.Future[T], stopping: asyncio.Event) -> T | None:
    stopped = asyncio.ensure_future(stopping.wait())
    both: list[asyncio.Future[Any]] = [asking, stopped]
    try:
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        stopped.cancel()
        asking.cancel()
        with suppress(asyncio.CancelledError, MultilaneError):
            await asking  # the consumer is used by one at a time, and is closed next


def _partition_counts(
    lane_factory: LaneFactory, consumer: AsyncConsumer, clock: Clock
) -> asyncio.Future[Mapping[str, int]]:
    return asyncio.ensure_future(_asked(lane_factory, consumer, clock))


async def _asked(lane_factory: LaneFactory, consumer: AsyncConsumer, clock: Clock) -> Mapping[str, int]:
    seldom = Seldom(_TELL_EVERY)
    while True:
        try:
            return {topic: len(await consumer.partitions_for(topic, _ASK)) for topic in lane_factory.topics.names}
        except MultilaneError as error:
            if not _may_pass(error):
                raise
            if seldom.tell(clock.monotonic()):
                told = (
                    "consumer %s cannot start yet, and keeps trying: %s. With retryOrder: key it starts once it has "
                    "checked that %s have the same number of partitions. Create a topic that is missing"
                )
                log.warning(told, lane_factory.config.name, error, " and ".join(lane_factory.topics.names))
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=_REST)


def _may_pass(error: MultilaneError) -> bool:
    """A topic that is not there may be created."""
    return error.retriable or (isinstance(error, BrokerError) and error.code == _UNKNOWN_TOPIC)


def _check_equal(lane_factory: LaneFactory, counts: Mapping[str, int]) -> None:
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{topic} has {many}" for topic, many in counts.items())
        raise ConfigError(
            f"consumer {lane_factory.config.name!r}: with retryOrder: key a topic and its retry topic need the same "
            f"number of partitions, but {told}. Add partitions, or set retryOrder: none"
        )
