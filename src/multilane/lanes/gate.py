"""The outage gate of a consumer: shut while an outage lasts, except for one lane at a time that probes.

Thread: loop.

An open gate costs nothing: lanes check it only where they check for their end anyway. Owns the outage's state and the
lanes that wait. Looks at records only to decide where those that failed stay.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from multilane.clock import Clock
from multilane.errors import UndecodablePayload
from multilane.lanes.acknowledging import Pending
from multilane.lanes.lane import Lane
from multilane.lanes.threads import NotBegun
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.outcome.headers import ERROR_COUNT, NOT_ATTEMPTED, RETRY_COUNT, last_value, retry_count
from multilane.outcome.in_place import Resting, Stay, attempts_in_place, resting, rests_until, stay_of
from multilane.outcome.outage import Failure, Outage, OutageState
from multilane.outcome.poison import SuspectedPoison
from multilane.rate_limit import RateLimit
from multilane.stacks import class_of, message_of, raised_at
from multilane.wire.records.record import Record

log = logger(__name__)

_LOOK: Final = 0.25  # seconds between checks while a probe is due and no lane has a record for it
_STALE: Final = 0.05  # seconds for which a count of successes may be reused
_UNDECIDED: Final = 1.0  # seconds that a probe waits for its acknowledgement, which may come only with others
_NOT_BEGUN: Final = 10.0  # seconds for a probe to begin: its lane may have to wait for a thread
_LOG_EVERY: Final = 60.0  # seconds between two lines about an outage that continues


# Whether a lane has a record to begin: one that has failed in place (True), one that has not (False), any (None).
HasWork = Callable[[bool | None], bool]


class Guarded(Protocol):
    """A lane pool."""

    def count_lanes(self) -> None:
        """The gate was shut or opened."""


class OutageGuard(Protocol):
    """The part of a gate that a lane pool uses."""

    @property
    def is_shut(self) -> bool: ...
    def join(self, pool: Guarded) -> None: ...
    def leave(self, pool: Guarded) -> None: ...
    def lost(self, lane: Lane) -> None: ...
    def hangs(self, lane: Lane) -> None: ...
    def note_echoes(self, records: Iterable[Record]) -> None: ...
    async def turn(self, pool: Guarded, lane: Lane, has_work: HasWork) -> None: ...


class _NoGate:
    """For consumers without outage detection: always open."""

    is_shut: Final = False

    def join(self, pool: Guarded) -> None:
        return

    leave = join

    def lost(self, lane: Lane) -> None:
        return

    hangs = lost

    def note_echoes(self, records: Iterable[Record]) -> None:
        return

    async def turn(self, pool: Guarded, lane: Lane, has_work: HasWork) -> None:
        return


NO_GATE: Final[OutageGuard] = _NoGate()


class Chained(Protocol):
    def bring_first(self, *, failed: bool) -> bool: ...


def brings_first(chains: Chained, refill: Callable[[Callable[[], bool]], object], *, failed: bool) -> bool:
    """Whether a lane would take such a record next. A record that has not failed may first have to be taken in."""
    if not failed and not chains.bring_first(failed=False):
        refill(lambda: not chains.bring_first(failed=False))
    return chains.bring_first(failed=failed)


class HasSettled(Protocol):
    @property
    def settled(self) -> int: ...


@dataclass(slots=True, eq=False)
class _Wait:
    pool: Guarded
    lane: Lane
    has_work: HasWork
    turn: asyncio.Future[None]


@dataclass(slots=True, eq=False)
class _Probe:
    lane: Lane
    calls: int  # of the lane, before the probe
    is_repeat: bool = False  # its record has failed before
    pending: Pending | None = None  # after the call has returned, until the record is acknowledged
    returned: float = 0.0  # when the call returned


class OutageGate:
    def __init__(self, name: str, outage: Outage, clock: Clock, observer: Observer = NO_OBSERVER) -> None:
        """`name`: the consumer's."""
        self._name = name
        self._outage = outage
        self._clock = clock
        self._observer = observer
        self._loop = asyncio.get_running_loop()
        self._pools: set[Guarded] = set()
        self._waiting: deque[_Wait] = deque()
        self._probe: _Probe | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._queues: set[HasSettled] = set()
        self._settled_before = 0  # in former queues
        self._uncalled = 0  # settled without a successful call
        self._succeeded = (0, float("-inf"))  # the last count, and when it was made
        self._echoes: set[Record] = set()
        self._reminder = RateLimit(_LOG_EVERY)
        self._was_shut = False  # as last logged
        self._innocent_until = float("-inf")  # records doubted until then failed because of an outage

    @property
    def is_shut(self) -> bool:
        return self._outage.is_open

    # --- pools -------------------------------------------------------------------------------------------------------

    def join(self, pool: Guarded) -> None:
        self._pools.add(pool)

    def leave(self, pool: Guarded) -> None:
        """The pool drains: its lanes begin no more records."""
        self._pools.discard(pool)
        for wait in [wait for wait in self._waiting if wait.pool is pool]:
            self._waiting.remove(wait)
            if not wait.turn.done():
                wait.turn.set_exception(NotBegun())

    def close(self) -> None:
        """No pool is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._was_shut:
            self._was_shut = False
            self._observer.count("lanes.outage", consumer=self._name, state="resumed")

    def count_in(self, queue: HasSettled) -> None:
        self._queues.add(queue)

    def count_out(self, queue: HasSettled) -> None:
        if queue in self._queues:
            self._queues.discard(queue)
            self._settled_before += queue.settled

    def note_uncalled(self, records: int) -> None:
        """About to settle this many records without a successful call."""
        self._uncalled += records

    def succeeded(self, now: float) -> int:
        """Successful calls so far, counted now."""
        self._succeeded = (0, float("-inf"))
        return self._count(now)

    def _count(self, now: float) -> int:
        """Successful calls so far."""
        if now - self._succeeded[1] > _STALE:
            settled = self._settled_before + sum(queue.settled for queue in self._queues)
            self._succeeded = settled - self._uncalled, now
        return self._succeeded[0]

    # --- lanes -------------------------------------------------------------------------------------------------------

    async def turn(self, pool: Guarded, lane: Lane, has_work: HasWork) -> None:
        """Returns when the lane may begin a record (the gate is open, or this lane probes) or has none to begin. Raises
        NotBegun if its pool drains."""
        self._ended(lane)
        while self.is_shut and has_work(None):
            if pool not in self._pools:  # it drains already
                raise NotBegun
            wait = _Wait(pool, lane, has_work, self._loop.create_future())
            self._waiting.append(wait)
            self._offer()
            await wait.turn
            if self._probe is not None and self._probe.lane is lane:
                return

    def _ended(self, lane: Lane) -> None:
        """If this lane probed, its call has returned. A failure would have ended the probe in `stays`."""
        probe = self._probe
        if probe is None or probe.lane is not lane:
            return
        if lane.calls == probe.calls:  # it found no record to begin
            self.lost(lane)
            return
        probe.pending, probe.returned = lane.pending, self._clock.monotonic()
        self._conclude(probe)

    def lost(self, lane: Lane) -> None:
        """A lane has ended during a call, or its call was cancelled and has not failed."""
        if self._probe is not None and self._probe.lane is lane:
            self._probe = None
            self._outage.probe_lost(self._clock.monotonic())
            self._set_timer()

    def hangs(self, lane: Lane) -> None:
        """The lane's call does not end. A probe that hangs has failed: other lanes must not wait for it."""
        if self._probe is not None and self._probe.lane is lane and self._probe.pending is None:
            self._outage.probe_failed(self._clock.monotonic())
            self._probe = None
            self._observer.count("lanes.outage.probes", consumer=self._name, result="failed")
            self._set_timer()

    def _conclude(self, probe: _Probe) -> None:
        if probe.pending is not None and not probe.pending.is_decided:
            if self._clock.monotonic() - probe.returned >= _UNDECIDED:
                self.lost(probe.lane)
            else:
                self._set_timer(_LOOK)
            return
        self._probe = None
        self._observer.count("lanes.outage.probes", consumer=self._name, result="ok")
        now = self._clock.monotonic()
        if probe.is_repeat:
            self._innocent_until = now
        lasted = self._outage.lasted(now)
        self._outage.probe_succeeded()
        self._moved(f"a probe succeeded after {lasted:.0f} s")

    def _offer(self) -> None:
        """Let one lane probe, if that is due."""
        now = self._clock.monotonic()
        if not self._outage.may_probe(now):
            self._set_timer()
            return
        self._waiting = deque(wait for wait in self._waiting if not wait.turn.done())
        chosen, is_repeat = self._chosen()
        if chosen is None:
            self._set_timer(_LOOK)
            return
        self._waiting.remove(chosen)
        self._outage.probe()
        self._probe = _Probe(chosen.lane, chosen.lane.calls, is_repeat)
        self._set_timer(_NOT_BEGUN)
        chosen.turn.set_result(None)

    def _chosen(self) -> tuple[_Wait | None, bool]:
        """The lane that probes, and whether with a record that failed before. Alternates between records that failed
        and records that did not. The former may succeed now; but if they are poison themselves, only another record can
        show it, and it must not wait behind all of them."""
        prefers_failed = self._outage.probes % 2 == 0
        for failed in (prefers_failed, not prefers_failed):
            for wait in self._waiting:
                if wait.has_work(failed):
                    return wait, failed
        return None, False

    # --- failures ----------------------------------------------------------------------------------------------------

    def stays(self, record: Record, error: BaseException) -> Resting | None:
        """A call failed. Returns the record in the form in which it is handled again, if it stays in place."""
        now = self._clock.monotonic()
        is_probe, is_echo = self._is_probed(record), record in self._echoes
        self._echoes.discard(record)
        if isinstance(error, UndecodablePayload | SuspectedPoison):  # the record's own fault, not a sign of an outage
            if is_probe:
                self._probe = None
                self._outage.probe_lost(now)
                self._set_timer()
            return None
        if is_probe:
            return self._probe_failed(record, error, now)
        if not self.is_shut and self._is_to_blame(record):
            return None  # it failed before while others succeeded: it proves nothing, and is retried as usual
        failure = Failure(class_of(error), raised_at(error), record.key or (record.partition, record.offset))
        before = self._outage.state
        is_news = not _failed_before(record)
        stays = self._outage.failed(failure, self._count(now), now, is_echo=is_echo, is_news=is_news)
        if self._outage.state is not before:
            self._set_timer()
        if not stays:
            return None
        if self.is_shut:
            return resting(record, attempts_in_place(record), now, Stay.OUTAGE)
        return resting(record, attempts_in_place(record), self._outage.next_at, Stay.DOUBTED)

    def _is_to_blame(self, record: Record) -> bool:
        """A doubted record (`Stay.DOUBTED`) is not, once a record that failed with it has succeeded: an outage was."""
        why = stay_of(record)
        return why is Stay.KEPT or (why is Stay.DOUBTED and rests_until(record) > self._innocent_until)

    def note_echoes(self, records: Iterable[Record]) -> None:
        """These are about to fail with the same error object as others of their call: one call, one failure."""
        self._echoes.update(records)

    def _is_probed(self, record: Record) -> bool:
        probe = self._probe
        return probe is not None and record in (probe.lane.records if probe.pending is None else probe.pending.records)

    def _probe_failed(self, record: Record, error: BaseException, now: float) -> Resting:
        again = self._outage.probe_failed(now)
        self._probe = None
        self._observer.count("lanes.outage.probes", consumer=self._name, result="failed")
        if self._reminder.due(now):
            log.warning(
                "consumer %s is still paused after %.0f s: probe %d failed: %s. Next probe in %.1f s",
                *(self._name, self._outage.lasted(now), self._outage.probes, _described(error)),
                self._outage.next_at - now,
            )
        self._set_timer()
        return resting(record, attempts_in_place(record), again, Stay.OUTAGE)

    # --- the time ----------------------------------------------------------------------------------------------------

    def _set_timer(self, seconds: float | None = None) -> None:
        """For the verdict or the next probe."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._outage.state in (OutageState.SUSPECTED, OutageState.OPEN) or seconds is not None:
            left = self._outage.next_at - self._clock.monotonic() if seconds is None else seconds
            self._timer = self._loop.call_later(max(0.0, left), self._tick)

    def _tick(self) -> None:
        self._timer = None
        if (probe := self._probe) is not None:
            if probe.pending is not None:
                self._conclude(probe)
            elif probe.lane.calls == probe.calls:
                self.lost(probe.lane)
            return
        before, now = self._outage.state, self._clock.monotonic()
        self._outage.look(self.succeeded(now), now)
        if self._outage.state is not before:
            self._moved("calls succeed again")
        if self._outage.state is OutageState.OPEN:
            self._offer()
        elif self._outage.state is OutageState.SUSPECTED:
            self._set_timer()

    def _moved(self, why: str) -> None:
        """Log that the gate was opened or shut. A suspicion that was not confirmed is not logged."""
        if self.is_shut == self._was_shut:
            return
        self._was_shut = self.is_shut
        for pool in list(self._pools):
            pool.count_lanes()
        if self.is_shut:
            self._observer.count("lanes.outage", consumer=self._name, state="paused")
            self._reminder.due(self._clock.monotonic())
            log.warning(
                "consumer %s pauses: most calls fail with the same error (%s), which looks like an outage. While it is "
                "paused, failed records stay in place and nothing goes to the retry or error topic. One record is "
                "retried after each back-off",
                *(self._name, self._outage.kind),
            )
            self._set_timer()
        else:
            self._observer.count("lanes.outage", consumer=self._name, state="resumed")
            log.warning("consumer %s resumes: %s", self._name, why)
            waiting, self._waiting = self._waiting, deque()
            for wait in waiting:
                if not wait.turn.done():
                    wait.turn.set_result(None)


def _failed_before(record: Record) -> bool:
    """Whether it is the copy of a record that failed before, usually while others succeeded. A topic may have only such
    records left, and their next failure says nothing about an outage."""
    headers = record.headers
    retried = last_value(headers, RETRY_COUNT) is not None and retry_count(headers) != NOT_ATTEMPTED
    return retried or last_value(headers, ERROR_COUNT) is not None


def _described(error: BaseException) -> str:
    return f"{class_of(error)}: {message_of(error)}"
