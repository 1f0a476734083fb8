"""Calls the application's partition functions: `on_assigned` before the first record, `on_revoked` after the last one.

Thread: loop; a `def` function runs on a thread of its own.

A function that fails or takes too long is logged, and the rebalance continues: records do not depend on it. Owns
nothing.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from multilane.listeners.signature import is_async, location_of
from multilane.logs import logger
from multilane.outcome.own_thread import on_own_thread
from multilane.outcome.raised import as_failure, is_cancelled
from multilane.types import TopicPartition

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions that a group has assigned to this process, or revoked from it."""

    consumer: str  # its name in the configuration
    group: str
    member_id: str | None  # None: it is no longer a member
    partitions: frozenset[TopicPartition]
    is_lost: bool = False  # other members may own them already: nothing can be committed


PartitionFunction = Callable[[Partitions], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFunctions:
    assigned: tuple[PartitionFunction, ...] = ()
    revoked: tuple[PartitionFunction, ...] = ()


class Consuming(Protocol):
    """The part of a consumer's configuration that is needed here."""

    @property
    def name(self) -> str: ...
    @property
    def group_id(self) -> str: ...
    @property
    def rebalance_timeout(self) -> float: ...


class PartitionHandler(Protocol):
    async def assigned(self, partitions: frozenset[TopicPartition]) -> None: ...

    async def revoked(self, partitions: frozenset[TopicPartition], *, is_lost: bool = False) -> None: ...


class PartitionEvents:
    def __init__(
        self, config: Consuming, functions: PartitionFunctions, member_id: Callable[[], str | None] = lambda: None
    ) -> None:
        self._config = config
        self._functions = functions
        self._member_id = member_id
        self._patience = config.rebalance_timeout / 4  # in addition to the drain, which takes half of it

    async def assigned(self, partitions: frozenset[TopicPartition]) -> None:
        await self._call_all(self._functions.assigned, partitions)

    async def revoked(self, partitions: frozenset[TopicPartition], *, is_lost: bool = False) -> None:
        """Calls the functions in reverse order."""
        await self._call_all(self._functions.revoked[::-1], partitions, is_lost=is_lost)

    async def _call_all(
        self, functions: Sequence[PartitionFunction], partitions: frozenset[TopicPartition], *, is_lost: bool = False
    ) -> None:
        if not partitions:
            return
        for function in functions:
            event = Partitions(self._config.name, self._config.group_id, self._member_id(), partitions, is_lost)
            await self._call(function, event)

    async def _call(self, function: PartitionFunction, event: Partitions) -> None:
        calling = asyncio.ensure_future(_called(function, event))
        try:
            done, _ = await asyncio.wait([calling], timeout=self._patience)
        except asyncio.CancelledError:
            calling.cancel()
            raise
        names = ", ".join(map(str, sorted(event.partitions)))
        if not done:
            calling.cancel()
            log.error("%s took longer than %g s for %s: continuing", location_of(function), self._patience, names)
        elif calling.cancelled() or (failure := calling.exception()) is not None:
            error = None if calling.cancelled() else failure
            log.error("%s failed for %s: continuing", location_of(function), names, exc_info=error)


async def _called(function: PartitionFunction, event: Partitions) -> None:
    try:
        answer = function(event) if is_async(function) else await on_own_thread(function, event)
        if inspect.isawaitable(answer):
            await answer
    except BaseException as error:
        if is_cancelled(error):
            raise
        raise as_failure(error) from error


@dataclass(frozen=True, slots=True)
class _NoMember:
    name: str = ""
    group_id: str = ""
    rebalance_timeout: float = 0.0


NO_EVENTS: Final = PartitionEvents(_NoMember(), PartitionFunctions())
