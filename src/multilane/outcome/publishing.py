"""Publishes the copy of a record until a broker has acknowledged it, however long that takes.

Thread: loop.

A record may be settled when `publish` returns and not before. A copy that is not taken is sent again, after a pause
that grows; one that never will be (too large for the topic) is told loudly and tried slowly, because only people can
help. Owns the producer it was told how to make; tells of troubles once when they begin and once when they are over.
Never loses a record: `stop` ends every wait with `PublishStopped`, and what was not acknowledged stays unsettled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING, Final

from multilane.client.produce.delivery import RecordMetadata
from multilane.errors import BrokerError, MultilaneError, PublishStopped
from multilane.logs import logger
from multilane.outcome.headers import without_stack
from multilane.outcome.outbox import Outbox
from multilane.outcome.own_thread import on_own_thread
from multilane.outcome.producer_slot import ProducerSlot

if TYPE_CHECKING:
    from multilane.client.produce.producer import Producer
    from multilane.outcome.flow import Publish

log = logger(__name__)

# MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD: the record's own fault, which waiting does not cure.
_OF_THE_RECORD: Final = frozenset({10, 18, 87})
_TOO_LARGE: Final = frozenset({10, 18})
_REMIND_EVERY: Final = 20

OnTrouble = Callable[[str, Exception | None], object]


@dataclass(frozen=True, slots=True)
class Pauses:
    """Seconds between attempts: the first, the longest, and the share by which each is shortened or lengthened."""

    first: float = 1.0
    longest: float = 30.0
    jitter: float = 0.2

    def after(self, failures: int, random: Random) -> float:
        pause = min(self.longest, self.first * 2.0 ** min(failures - 1, 30))
        return pause * (1.0 + self.jitter * (2.0 * random.random() - 1.0))


class Publisher:
    """Make it inside a running event loop, and tell it how to make its producer.

    >>> publisher = Publisher(lambda: Producer({"bootstrap.servers": "localhost:9092"}))
    >>> partition, offset = await publisher.publish(copy)
    """

    def __init__(
        self, make: Callable[[], Producer], *, on_trouble: OnTrouble | None = None, pauses: Pauses | None = None
    ) -> None:
        self._slot = ProducerSlot(make)
        self._slot.get()  # costs nothing yet, and a wrong property is told now, not when records fail
        self._outbox = Outbox(self._slot)
        self._loop = asyncio.get_running_loop()
        self._on_trouble = on_trouble
        self._pauses = pauses or Pauses()
        self._random = Random()  # noqa: S311 - spreads attempts in time
        self._troubles: dict[str, str] = {}
        self._resting: set[asyncio.Future[None]] = set()
        self._stopped = False

    @property
    def waiting(self) -> int:
        """Copies that are not acknowledged: on their way, or between two attempts."""
        return self._outbox.waiting + len(self._resting)

    @property
    def troubles(self) -> dict[str, str]:
        """Topics that do not take copies at present, and what was last said about it."""
        return dict(self._troubles)

    async def publish(self, copy: Publish) -> tuple[int, int]:
        """Partition and offset of the copy, once it is stored. Raises PublishStopped, and nothing else."""
        failures = 0
        while not self._stopped:
            try:
                stored: RecordMetadata = await self._outbox.send(copy)
            except PublishStopped:
                raise
            except Exception as error:  # noqa: BLE001 - whatever it is, the record must not be lost
                if (smaller := _smaller(copy, error)) is not None:
                    copy = smaller
                    continue
                failures += 1
                await self._rest(self._note_failure(copy, error, failures))
            else:
                self._note_success(copy.topic)
                return stored.partition, int(stored.offset)
        raise _stopped()

    async def publish_in_order(self, copies: Sequence[Publish]) -> list[tuple[int, int]]:
        """The same for copies that must lie in this order: they are sent together, and from the first that is not
        stored on all of them again. (What was stored behind that one then lies there twice, and last in its order.)"""
        places: list[tuple[int, int]] = []
        copies = list(copies)
        failures = 0
        while len(places) < len(copies):
            rest = copies[len(places) :]
            if self._stopped:
                raise _stopped()
            answers = await asyncio.gather(*map(self._outbox.send, rest), return_exceptions=True)
            for copy, answer in zip(rest, answers, strict=True):
                if isinstance(answer, PublishStopped) or not isinstance(answer, RecordMetadata | Exception):
                    raise answer
                if isinstance(answer, Exception):
                    if (smaller := _smaller(copy, answer)) is not None:
                        copies[len(places)] = smaller
                        break
                    failures += 1
                    await self._rest(self._note_failure(copy, answer, failures))
                    break
                failures = 0
                places.append((answer.partition, int(answer.offset)))
                self._note_success(copy.topic)
        return places

    def stop(self) -> None:
        """End every wait. Copies that are on their way may still be stored: their records come again."""
        self._stopped = True
        self._outbox.abandon(_stopped)
        for rest in list(self._resting):
            if not rest.done():
                rest.set_result(None)

    async def close(self, timeout: float | None = None) -> None:
        """Stop, and end the producer; waits for what is on its way at most `timeout` (default 30 s)."""
        self.stop()
        self._outbox.close()
        await on_own_thread(self._slot.close, timeout)

    # --- how ---------------------------------------------------------------------------------------------------------

    async def _rest(self, seconds: float) -> None:
        if self._stopped:  # a failure that was told just before the stop, and is only heard of now
            return
        rest: asyncio.Future[None] = self._loop.create_future()
        self._resting.add(rest)
        timer = self._loop.call_later(seconds, lambda: None if rest.done() else rest.set_result(None))
        try:
            await rest
        finally:
            timer.cancel()
            self._resting.discard(rest)

    def _note_failure(self, copy: Publish, error: Exception, failures: int) -> float:
        """Tells of it, if it is news; the answer is how long to pause."""
        if _is_of_the_record(error):
            if failures % _REMIND_EVERY == 1:
                log.error(
                    "the copy of %s to %s cannot be stored as it is: %s. The record stays unsettled and holds up its "
                    "key until the topic takes it; raise max.message.bytes of the topic (a copy has more headers than "
                    "its record)",
                    *(copy.origin or "a record", copy.topic, error),
                )
                self._tell(copy.topic, error)
            return self._pauses.longest
        said = type(error).__name__ if not isinstance(error, BrokerError) else error.name
        if self._troubles.get(copy.topic) != said:
            self._troubles[copy.topic] = said
            log.error("copies to %s are not stored: %s. Their records stay unsettled; trying again", copy.topic, error)
            self._tell(copy.topic, error)
        return self._pauses.after(failures, self._random)

    def _note_success(self, topic: str) -> None:
        if self._troubles.pop(topic, None) is not None:
            log.warning("copies to %s are stored again", topic)
            self._tell(topic, None)

    def _tell(self, topic: str, error: Exception | None) -> None:
        if self._on_trouble is None:
            return
        try:
            self._on_trouble(topic, error)
        except Exception:  # whoever listens must not come between a record and its copy
            log.exception("the listener for troubles with %s failed", topic)


def _stopped() -> PublishStopped:
    return PublishStopped("publishing was stopped before the copy was acknowledged; its record is not settled")


def _smaller(copy: Publish, error: Exception) -> Publish | None:
    """A copy that is too large only because of its stack goes without it."""
    headers = without_stack(copy.headers)
    if not isinstance(error, BrokerError) or error.code not in _TOO_LARGE or headers == copy.headers:
        return None
    log.debug("the copy of %s to %s is too large: sending it without the error's stack", copy.origin, copy.topic)
    return replace(copy, headers=headers)


def _is_of_the_record(error: Exception) -> bool:
    if isinstance(error, BrokerError):
        return error.code in _OF_THE_RECORD
    return not isinstance(error, MultilaneError)  # librdkafka's binding could not even take it
