"""Decides whether the calls of a consumer fail because of an outage, as a state machine: when to pause, probe, resume.

Thread: none (pure); one owner, which reports failures and passes in the time.

    CLOSED     calls continue; a failed record goes to its retry or error topic
    SUSPECTED  most of the last calls failed alike, for several keys: further failures of that kind stay in place while
               calls continue for a moment, to see whether others succeed
    OPEN       an outage: no call begins, and records that fail now stay in place
    PROBING    the same, while one call checks whether the outage is over

Poison is the opposite: some records fail while others succeed, or all failures belong to a few keys. Failures are alike
if they have the same error class or the same raising line. Successes are not reported one by one: each failure report
carries the count of successes so far, so that a successful call costs nothing. Owns the last few failures.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Final

from multilane.outcome.backoff import BackoffSettings, RetryDelay, due

SUSPICION: Final = 1.0  # seconds from the first suspicion to the verdict
FEWEST_KEYS: Final = 3  # an outage has at least as many failing keys
SHORTEST_PROBE: Final = 0.05
LONGEST_PROBE: Final = 10.0  # caps the back-off: records must not wait long after an outage is over
_DEFAULT_BACKOFF: Final = RetryDelay("exponential", 1.0, 60.0, 2.0)


class OutageState(enum.Enum):
    CLOSED = "closed"
    SUSPECTED = "suspected"
    OPEN = "open"
    PROBING = "probing"


TRANSITIONS: Final[Mapping[OutageState, frozenset[OutageState]]] = {
    OutageState.CLOSED: frozenset({OutageState.SUSPECTED}),
    OutageState.SUSPECTED: frozenset({OutageState.CLOSED, OutageState.OPEN}),
    OutageState.OPEN: frozenset({OutageState.CLOSED, OutageState.PROBING}),
    OutageState.PROBING: frozenset({OutageState.CLOSED, OutageState.OPEN}),
}


@dataclass(frozen=True, slots=True)
class Failure:
    error: str  # its class
    line: str  # the line that raised it; empty if it is not known
    key: Hashable  # of the record; a record without a key has a unique one

    def is_like(self, other: Failure) -> bool:
        return self.error == other.error or (bool(self.line) and self.line == other.line)

    def __str__(self) -> str:
        return f"{self.error} at {self.line}" if self.line else self.error


@dataclass(frozen=True, slots=True)
class OutageRules:
    """An outage: more than `share` of the last `minimum` failures and the successes between them failed alike, within
    `window` seconds, or within any time if nothing succeeded meanwhile."""

    share: float = 0.5
    window: float = 60.0
    minimum: int = 5


@dataclass(slots=True)
class _Seen:
    failure: Failure
    succeeded: int  # successful calls until then
    at: float
    records: int = 1  # that failed like this: successes are counted in records, and a window has many


def rest_before(backoff: BackoffSettings | None, probes: int, seed: int) -> float:
    """Seconds until the next probe, after so many. Varies with the seed."""
    known = backoff if backoff is not None and backoff.delay > 0 else _DEFAULT_BACKOFF
    rest = due(known, 0, probes, seed) / 1_000
    return max(SHORTEST_PROBE, min(rest, max(LONGEST_PROBE, known.delay)))


class Outage:
    def __init__(self, rules: OutageRules, backoff: BackoffSettings | None = None, seed: int = 0) -> None:
        """`backoff` spaces the probes. `seed` varies their jitter, so that processes do not probe together."""
        self._rules = rules
        self._backoff = backoff
        self._seed = seed
        self._state = OutageState.CLOSED
        self._seen: deque[_Seen] = deque(maxlen=max(rules.minimum, FEWEST_KEYS))
        self._kind: Failure | None = None  # the failure that most calls share
        self._began = _Seen(Failure("", "", None), 0, 0.0)
        self._failed = 0  # since the state became SUSPECTED or OPEN
        self.probes = 0  # failed probes since the state became OPEN
        self.next_at = 0.0  # when the verdict or the next probe is due

    @property
    def state(self) -> OutageState:
        return self._state

    @property
    def is_open(self) -> bool:
        """Only a probe may begin."""
        return self._state in (OutageState.OPEN, OutageState.PROBING)

    @property
    def kind(self) -> Failure | None:
        return self._kind

    def lasted(self, now: float) -> float:
        """Seconds since the first failure of this outage."""
        return now - self._began.at

    def _go(self, state: OutageState) -> None:
        if state not in TRANSITIONS[self._state]:
            raise AssertionError(f"no outage transition from {self._state.value} to {state.value}")
        self._state = state

    # --- failures ----------------------------------------------------------------------------------------------------

    def failed(
        self, failure: Failure, succeeded: int, now: float, *, is_echo: bool = False, is_news: bool = True
    ) -> bool:
        """A record failed; `succeeded`: successful records so far. True if it stays in place. An echo is one more
        record of a call that was counted already: it counts for the share, but is no further witness. A record that is
        not news counts for neither."""
        self._failed += is_news
        if self._state is OutageState.CLOSED and is_news:
            if is_echo:
                self._weigh(failure)
            else:
                self._seen.append(_Seen(failure, succeeded, now))
                self._suspect(succeeded, now)
        return self.is_open or (self._state is OutageState.SUSPECTED and self._is_like_the_others(failure))

    def _weigh(self, echo: Failure) -> None:
        latest = next((one for one in reversed(self._seen) if one.failure.is_like(echo)), None)
        if latest is not None:
            latest.records += 1

    def _is_like_the_others(self, failure: Failure) -> bool:
        return self._kind is not None and failure.is_like(self._kind)

    def _suspect(self, succeeded: int, now: float) -> None:
        seen = self._seen
        if len(seen) < (seen.maxlen or 0):
            return
        others, failed = succeeded - seen[0].succeeded, sum(one.records for one in seen)
        if others > 0 and now - seen[0].at > self._rules.window:
            return  # without a success, failures prove as much however far apart they are: traffic may be low
        kind = self._most_common()
        alike = [one for one in seen if one.failure.is_like(kind)]
        is_for_many = len({one.failure.key for one in alike}) >= FEWEST_KEYS
        if is_for_many and sum(one.records for one in alike) > self._rules.share * (failed + others):
            self._kind, self._began, self._failed = kind, seen[0], failed
            self.next_at = now + SUSPICION
            self._go(OutageState.SUSPECTED)

    def _most_common(self) -> Failure:
        """By class or by line, whichever more failures share."""
        failures = [one.failure for one in self._seen]
        by_error = Counter(one.error for one in failures).most_common(1)[0]
        by_line = Counter(one.line for one in failures if one.line).most_common(1)
        if by_line and by_line[0][1] > by_error[1]:
            return next(one for one in reversed(failures) if one.line == by_line[0][0])
        return next(one for one in reversed(failures) if one.error == by_error[0])

    # --- the time ----------------------------------------------------------------------------------------------------

    def look(self, succeeded: int, now: float) -> None:
        """Decides on a suspicion once the verdict is due, and closes if calls in flight at the opening succeeded."""
        if self._state is OutageState.SUSPECTED and now >= self.next_at:
            others = succeeded - self._began.succeeded
            if self._failed > self._rules.share * (self._failed + others):
                self._go(OutageState.OPEN)
                self._began = _Seen(self._began.failure, succeeded, self._began.at)
                self.probes, self._failed = 0, 0
                self.next_at = now + self._rest()
            else:
                self._close()
        elif self._state is OutageState.OPEN and succeeded - self._began.succeeded > self._failed:
            self._close()

    def _rest(self) -> float:
        return rest_before(self._backoff, self.probes, self._seed + self.probes)

    def _close(self) -> None:
        self._go(OutageState.CLOSED)
        self._seen.clear()

    # --- probes ------------------------------------------------------------------------------------------------------

    def may_probe(self, now: float) -> bool:
        return self._state is OutageState.OPEN and now >= self.next_at

    def probe(self) -> None:
        """One call begins."""
        self._go(OutageState.PROBING)

    def probe_succeeded(self) -> None:
        if self._state is OutageState.PROBING:
            self._close()

    def probe_failed(self, now: float) -> float:
        """When the record may be handled again: after the next probe, so that another record is probed first."""
        if self._state is OutageState.PROBING:
            self._go(OutageState.OPEN)
            self.probes += 1
            self.next_at = now + self._rest()
        return self.next_at + 0.5 * (self.next_at - now)

    def probe_lost(self, now: float) -> None:
        """The probe is inconclusive: its lane has ended, or its record could not be decoded."""
        if self._state is OutageState.PROBING:
            self._go(OutageState.OPEN)
            self.next_at = now + SHORTEST_PROBE
