"""Publishes the copy of a record until a broker has acknowledged it, however long that takes.

Thread: loop.

A record may be settled when `publish` returns, and not before. A copy that is refused is sent again, after a growing
pause; a copy that cannot succeed (too large for the topic) is logged as an error and retried slowly, because only an
operator can help. Owns its producer; logs a problem once when it begins and once when it is over. Never loses a record:
`stop` ends every wait with `PublishStopped`, and records without an acknowledgement stay unsettled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import nullcontext
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
    from multilane.outcome.next_step import Publish
    from multilane.outcome.shared_producers import ProducerShare

log = logger(__name__)

# MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, INVALID_RECORD: the record itself is refused, and waiting does not help.
_OF_THE_RECORD: Final = frozenset({10, 18, 87})
_TOO_LARGE: Final = frozenset({10, 18})
_REMIND_EVERY: Final = 20
_RESENT: Final = 2  # times that a refused message is sent again: the first time others may still be beside it

OnProblem = Callable[[str, Exception | None], object]


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
    """Create it inside a running event loop, with a function that creates its producer.

    >>> publisher = Publisher(lambda: Producer({"bootstrap.servers": "localhost:9092"}))
    >>> partition, offset = await publisher.publish(copy)
    """

    def __init__(
        self,
        make: Callable[[], Producer | ProducerShare],
        *,
        on_problem: OnProblem | None = None,
        pauses: Pauses | None = None,
    ) -> None:
        self._slot: ProducerSlot[Producer | ProducerShare] = ProducerSlot(make)
        self._slot.get()  # cheap, and reports a wrong property now, not when records fail
        self._outbox = Outbox(self._slot)
        self._loop = asyncio.get_running_loop()
        self._on_problem = on_problem
        self._pauses = pauses or Pauses()
        self._random = Random()  # noqa: S311 - spreads attempts in time
        self._problems: dict[str, str] = {}
        self._resting: set[asyncio.Future[None]] = set()
        self._stopped = False
        self._one_by_one = asyncio.Lock()

    @property
    def waiting(self) -> int:
        """Copies that are not acknowledged: in flight, or between two attempts."""
        return self._outbox.waiting + len(self._resting)

    @property
    def problems(self) -> dict[str, str]:
        """Topics that refuse copies at present, with the last error."""
        return dict(self._problems)

    async def publish(self, copy: Publish, *, raises_refusal: bool = False) -> tuple[int, int]:
        """Partition and offset of the copy, once it is stored. Raises only PublishStopped; with `raises_refusal` also
        the error of a topic that refuses the copy itself."""
        failures = 0
        while not self._stopped:
            try:
                stored: RecordMetadata = await self._outbox.send(copy)
            except PublishStopped:
                raise
            except Exception as error:
                if (smaller := _smaller(copy, error)) is not None:
                    copy = smaller
                    continue
                if raises_refusal and _is_of_the_record(error):
                    raise
                failures += 1
                await self._rest(self._note_failure(copy, error, failures))
            else:
                self._note_success(copy.topic)
                return stored.partition, int(stored.offset)
        raise _stopped()

    async def offer(self, message: Publish) -> tuple[int, int]:
        """The same for a message that need not be stored: raises the error of one that its topic will never take. A
        topic refuses the whole batch of one that is too large, so those that were refused are sent again one by one."""
        refusals = 0
        while True:
            try:
                async with self._one_by_one if refusals else nullcontext():
                    return await self.publish(message, raises_refusal=True)
            except Exception as error:
                refusals += 1
                if isinstance(error, PublishStopped) or refusals > _RESENT:
                    raise

    async def publish_in_order(self, copies: Sequence[Publish]) -> list[tuple[int, int]]:
        """The same for copies that must be stored in this order: they are sent together. If one is not stored, it and
        all after it are sent again. (Copies stored after it are then there twice, in order the last time.)"""
        stored: list[tuple[int, int]] = []
        copies = list(copies)
        failures = 0
        while len(stored) < len(copies):
            rest = copies[len(stored) :]
            if self._stopped:
                raise _stopped()
            answers = await asyncio.gather(*map(self._outbox.send, rest), return_exceptions=True)
            for copy, answer in zip(rest, answers, strict=True):
                if isinstance(answer, PublishStopped) or not isinstance(answer, RecordMetadata | Exception):
                    raise answer
                if isinstance(answer, Exception):
                    if (smaller := _smaller(copy, answer)) is not None:
                        copies[len(stored)] = smaller
                        break
                    failures += 1
                    await self._rest(self._note_failure(copy, answer, failures))
                    break
                failures = 0
                stored.append((answer.partition, int(answer.offset)))
                self._note_success(copy.topic)
        return stored

    def stop(self) -> None:
        """End every wait. Copies in flight may still be stored; their records are redelivered."""
        self._stopped = True
        self._outbox.abandon(_stopped)
        for rest in list(self._resting):
            if not rest.done():
                rest.set_result(None)

    async def close(self, timeout: float | None = None) -> None:
        """Stop, and close the producer; waits up to `timeout` for copies in flight (default: 30s)."""
        self.stop()
        self._outbox.close()
        await on_own_thread(self._slot.close, timeout)

    # --- attempts ----------------------------------------------------------------------------------------------------

    async def _rest(self, seconds: float) -> None:
        if self._stopped:  # the failure arrived just before the stop
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
        """Log the failure if it is new, and return how long to pause."""
        if _is_of_the_record(error):
            if failures % _REMIND_EVERY == 1:
                log.error(
                    "cannot store the copy of %s in %s: %s. The record stays unsettled and blocks its key until the "
                    "topic takes the copy; raise max.message.bytes of the topic (a copy has more headers than its "
                    "record)",
                    *(copy.origin or "a record", copy.topic, error),
                )
                self._notify(copy.topic, error)
            return self._pauses.longest
        problem = type(error).__name__ if not isinstance(error, BrokerError) else error.name
        if self._problems.get(copy.topic) != problem:
            self._problems[copy.topic] = problem
            log.error("cannot store copies in %s: %s. Their records stay unsettled; retrying", copy.topic, error)
            self._notify(copy.topic, error)
        return self._pauses.after(failures, self._random)

    def _note_success(self, topic: str) -> None:
        if self._problems.pop(topic, None) is not None:
            log.warning("copies to %s are stored again", topic)
            self._notify(topic, None)

    def _notify(self, topic: str, error: Exception | None) -> None:
        if self._on_problem is None:
            return
        try:
            self._on_problem(topic, error)
        except Exception:  # the callback must not come between a record and its copy
            log.exception("the on_problem callback for %s failed", topic)


def _stopped() -> PublishStopped:
    return PublishStopped("publishing was stopped before the copy was acknowledged; its record is not settled")


def _smaller(copy: Publish, error: Exception) -> Publish | None:
    """The copy without its stack, if that may make it small enough."""
    headers = without_stack(copy.headers)
    if not isinstance(error, BrokerError) or error.code not in _TOO_LARGE or headers == copy.headers:
        return None
    log.debug("the copy of %s to %s is too large: sending it without the error's stack", copy.origin, copy.topic)
    return replace(copy, headers=headers)


def _is_of_the_record(error: Exception) -> bool:
    if isinstance(error, BrokerError):
        return error.code in _OF_THE_RECORD
    return not isinstance(error, MultilaneError)  # librdkafka's binding refused the message
