"""Hands failed records to the retry topic, the error topic, or the application's last step.

Thread: loop.

Returns None once a record may be settled: its copy was acknowledged, or the last step has returned. Returns the record
if it is retried in place. Until then it stays unsettled, however long that takes. A record that no topic and no last
step takes is retried in place, too, unless the configuration says `onFailure: drop`. An open breaker ends the group
instead of filling the error topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from multilane.clock import Clock
from multilane.commit.journal import Notes, RecordOutcome, StoredCopy
from multilane.errors import BreakerOpen, ProcessingTimeout, RegistryUnavailable, UndecodablePayload
from multilane.lanes.failure_log import FailureLog
from multilane.lanes.failure_report import FailureReport
from multilane.lanes.gate import OutageGate
from multilane.lanes.last_steps import LastStepFunction, LastSteps
from multilane.lanes.watch import Watch
from multilane.lanes.worker import WorkerDied
from multilane.listeners.context import Context
from multilane.listeners.interceptors import InterceptorChain
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.outcome.backoff import BackoffSettings
from multilane.outcome.breaker import Breaker
from multilane.outcome.giving_up import GivingUp
from multilane.outcome.in_place import InPlace, Resting, Stay, attempts_in_place, fresh, resting, retried
from multilane.outcome.next_step import (
    LastStep,
    Publish,
    RetryPolicy,
    after_failure,
    exhausted,
    follow,
    poisoned,
    undecodable,
)
from multilane.outcome.parking import Parking
from multilane.outcome.poison import SuspectedPoison
from multilane.outcome.raised import as_failure, is_cancelled
from multilane.rate_limit import RateLimit
from multilane.stacks import message_of
from multilane.wire.records.keyed_rows import TakenRows
from multilane.wire.records.record import Record

log = logger(__name__)

_SHORTEST_REST: Final = 1.0
_LONGEST_REST: Final = 30.0
_SHORTEST_STAY: Final = 0.1  # before a kept record is retried, even with a back-off of zero
_LOG_EVERY: Final = 10.0  # seconds between two log lines about kept, dropped, or failed last steps
_REMIND_EVERY: Final = 60.0


class Publishes(Protocol):
    """Stores a copy, however long it takes. Raises PublishStopped when it is stopped."""

    async def publish(self, copy: Publish) -> tuple[int, int]: ...
    async def publish_in_order(self, copies: Sequence[Publish]) -> list[tuple[int, int]]: ...


@dataclass(frozen=True, slots=True)
class FailureRoutes:
    """Where failed records of a group can go."""

    retry_policy: RetryPolicy
    publisher: Publishes
    last_step: LastStepFunction | None = None
    breaker: Breaker | None = None
    in_place: InPlace | None = None  # if no retry topic may be used
    keeping: BackoffSettings | None = None  # back-off for records that nothing takes; None: they are dropped
    gate: OutageGate | None = None  # while an outage lasts, failed records stay in place
    giving_up: GivingUp | None = None  # with a gate: which records wait for others before they are given up
    report: FailureReport | None = None  # where failures are reported (default: the log)
    watch: Watch = field(default_factory=Watch)  # notes for which record an error interceptor or a last step runs


class Failing:
    def __init__(
        self,
        routes: FailureRoutes,
        interceptors: InterceptorChain,
        clock: Clock,
        observer: Observer = NO_OBSERVER,
        notes: Notes | None = None,
    ) -> None:
        """The `notes` get the outcome of each record, right before it is settled."""
        self._retry_policy = routes.retry_policy
        self._publisher = routes.publisher
        self._last_step = None if routes.last_step is None else LastSteps(routes.last_step, clock)
        self._breaker = routes.breaker
        self._in_place = routes.in_place
        self._keeping = routes.keeping
        self._gate = routes.gate
        self._giving_up = routes.giving_up
        self._watch = routes.watch
        self._kept, self._dropped, self._unended = (RateLimit(_LOG_EVERY) for _ in range(3))
        self._unsure, self._undecoded = RateLimit(_LOG_EVERY), RateLimit(_LOG_EVERY)
        self._report = routes.report or FailureReport(routes.retry_policy.main, FailureLog(clock), observer)
        self._interceptors = interceptors
        self._clock = clock
        self._observer = observer
        self._notes = notes

    @property
    def wants_successes(self) -> bool:
        return self._breaker is not None or (self._notes is not None and self._notes.wants_done)

    def note_done(self, records: Sequence[Record]) -> None:
        if self._breaker is not None:
            self._breaker.note(len(records), 0, self._clock.monotonic())
        if self._notes is not None:
            self._notes.note_done(records)

    def note_skipped(self, records: Sequence[Record]) -> None:
        self._note_uncalled(len(records))
        if self._notes is not None:
            self._notes.note_skipped(records)

    def note_interrupted(self, records: Sequence[Record]) -> None:
        if self._notes is not None and records:
            self._notes.note_interrupted(records)

    def _note_uncalled(self, records: int) -> None:
        """These are settled without a successful call."""
        if self._gate is not None:
            self._gate.note_uncalled(records)

    def note_skipped_rows(self, rows: TakenRows) -> None:
        self._note_uncalled(len(rows.skipped))
        if self._notes is not None:
            self._notes.note_skipped_rows(rows)

    def hanging_steps(self, now: float, limit: float, grace: float) -> Collection[Record]:
        return () if self._last_step is None else self._last_step.hanging(now, limit, grace)

    async def take_over(self, record: Record, error: BaseException, parking: Parking | None) -> Record | None:
        self._report.failed(record, error)
        if isinstance(error, ProcessingTimeout | WorkerDied):
            self.note_interrupted((record,))  # its call may have had its effect, and it is handled again
        again = await self._take_over(record, error, parking)
        if again is not None:
            self._report.repeated()
        return again

    def _note_failed(self) -> None:
        if self._breaker is not None:
            self._breaker.note(0, 1, self._clock.monotonic())
            if self._breaker.is_open:
                raise BreakerOpen(
                    f"{self._retry_policy.main}: {self._breaker.reason}. Check the errors, then restart it"
                )

    async def _take_over(self, record: Record, error: BaseException, parking: Parking | None) -> Record | None:
        self._note_failed()
        with self._watch.marked(record):
            context = self._interceptors.on_failure(record, error)
        staying = None if self._gate is None else self._gate.stays(record, error)
        if staying is None and isinstance(error, RegistryUnavailable):
            staying = self._stays_without_registry(record, error)
        if staying is not None:
            self._observer.count("lanes.records.held", topic=record.topic)
            return staying
        is_hopeless = isinstance(error, UndecodablePayload | SuspectedPoison)
        in_place = self._in_place
        again = None if in_place is None or is_hopeless else in_place.retry(record)
        step = None if again is not None else self._step(record, error)
        if step is not None and (staying := self._waits_for_others(record, error, step)) is not None:
            self._observer.count("lanes.records.held", topic=record.topic)
            return staying
        self._report.counted(record, error)
        if step is None:
            return again
        if isinstance(step, LastStep):
            if self._last_step is None and self._keeping is not None:
                return self._keep(record, error, step, self._keeping)
            if isinstance(error, SuspectedPoison) and self._last_step is None:
                await self._stop_at(record)
            await self._take_last_step(context, record, error, step)
            self._note(record, RecordOutcome.DEAD, None, error)
        elif parking is not None and record.topic == step.topic == self._retry_policy.retry:
            # Retried in place: a copy would come after records that have to come after it.
            return fresh(record, step.headers, round(self._clock.wall() * 1_000))
        else:
            self._note_stored(record, step, await self._publisher.publish(step), parking, error)
        self._note_uncalled(1)
        if in_place is not None:
            in_place.note_exhausted(record, error)
        return None

    def _stays_without_registry(self, record: Record, error: RegistryUnavailable) -> Resting:
        """No record is to blame, and no attempt of it is used up."""
        now = self._clock.monotonic()
        if many := self._undecoded.due(now):
            log.warning(
                "%s stays in place until its schema can be read, and its key waits. Such failures since the last "
                "warning: %d. %s",
                *(record, many, _described(error)),
            )
        return resting(record, attempts_in_place(record), now + _SHORTEST_REST, Stay.OUTAGE)

    def _step(self, record: Record, error: BaseException) -> Publish | LastStep:
        if isinstance(error, SuspectedPoison):
            return poisoned(self._retry_policy, record, error)
        if isinstance(error, UndecodablePayload):
            return undecodable(self._retry_policy, record, error)
        return (after_failure if self._in_place is None else exhausted)(self._retry_policy, record, error)

    def _waits_for_others(self, record: Record, error: BaseException, step: Publish | LastStep) -> Resting | None:
        """A record that would be given up, and the failure may be that of an outage."""
        if self._giving_up is None or self._gate is None:
            return None
        is_last = step.topic != self._retry_policy.retry if isinstance(step, Publish) else not self._keeps_everything
        if not is_last or isinstance(error, UndecodablePayload | SuspectedPoison | WorkerDied):
            return None
        now = self._clock.monotonic()
        staying = self._giving_up.stays(record, error, self._gate.succeeded(now), now)
        if staying is not None and (many := self._unsure.due(now)):
            log.warning(
                "%s has used up its attempts and stays in place, because no other record has succeeded since: this may "
                "be an outage. Next retry in %.1f s; its key waits. Such failures since the last warning: %d. %s",
                *(record, staying.due - now, many, _described(error)),
            )
        return staying

    @property
    def _keeps_everything(self) -> bool:
        """Whether a record that no topic takes stays in place anyway."""
        return self._last_step is None and self._keeping is not None

    async def follow_key(self, records: Sequence[Record], parking: Parking) -> None:
        """Records whose keys have a backlog in the retry topic go there unhandled, in order."""
        copies = [follow(self._retry_policy, record) for record in records]
        stored = await self._publisher.publish_in_order(copies)
        self._note_uncalled(len(records))  # not earlier: until they are settled, as many successes would be missing
        for record, copy, position in zip(records, copies, stored, strict=True):
            self._note_stored(record, copy, position, parking, None)

    def _note_stored(
        self,
        record: Record,
        copy: Publish,
        position: tuple[int, int],
        parking: Parking | None,
        error: BaseException | None,
    ) -> None:
        self._observer.count("lanes.copies", topic=copy.topic)
        is_retried = copy.topic == self._retry_policy.retry
        if parking is not None and is_retried:
            parking.seen(copy.key, position[1])
        outcome = RecordOutcome.RETRIED if is_retried else RecordOutcome.DEAD
        self._note(record, outcome, StoredCopy(copy.topic, *position), error)

    def _note(
        self, record: Record, outcome: RecordOutcome, copy: StoredCopy | None, error: BaseException | None
    ) -> None:
        self._report.settled(outcome, error)
        if self._notes is not None:
            self._notes.note_failed(record, outcome, copy, error)

    def _keep(self, record: Record, error: BaseException, step: LastStep, backoff: BackoffSettings) -> Record:
        """Nothing takes the record: it stays in place, its key waits, and nothing is committed past it."""
        self._observer.count("lanes.records.kept", topic=record.topic)
        now = self._clock.monotonic()
        again = retried(record, backoff, now)
        again.due = max(again.due, now + _SHORTEST_STAY)
        if many := self._kept.due(now):
            rest = again.due - now
            log.warning(
                "%s failed (attempt %d) and stays in place: %s. Next retry in %.1f s; its key waits, and %s-%d is not "
                "committed past it. %d similar failures since the last warning. Configure an error topic or register a "
                "last step; `onFailure: drop` drops such records. %s",
                *(record, again.attempts, step.reason, rest, record.topic, record.partition, many, _described(error)),
            )
        return again

    async def _take_last_step(self, context: Context, record: Record, error: BaseException, step: LastStep) -> None:
        if self._last_step is None:
            self._observer.count("lanes.records.dropped", topic=record.topic)
            if many := self._dropped.due(self._clock.monotonic()):
                log.error(
                    "dropping %s: %s; no last_step is registered. Dropped since the last message: %d. %s",
                    *(record, step.reason, many, _described(error)),
                )
            return
        rest = _SHORTEST_REST
        while True:
            try:
                with self._watch.marked(record):
                    await self._last_step.call(context, record, error)
            except BaseException as failure:
                if is_cancelled(failure):
                    raise
                as_failure(failure)
                if many := self._unended.due(self._clock.monotonic()):
                    log.exception(
                        "the last step failed for %s, retrying. Such failures since the last message: %d",
                        *(record, many),
                    )
                await self._pause(rest)
                rest = min(_LONGEST_REST, 2 * rest)
            else:
                return

    async def _stop_at(self, record: Record) -> None:
        """The record may neither be dropped nor handled: its partition stops here until an operator acts."""
        while True:
            log.error(
                "partition stopped at %s, which probably crashes its process; no error topic is configured. "
                "Configure `error` or a last step, or set crashLimit: 0 to handle it again",
                record,
            )
            await self._pause(_REMIND_EVERY)

    async def _pause(self, seconds: float) -> None:
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {message_of(error)}"
