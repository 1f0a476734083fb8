"""Failed records that are tried again where they are, without a retry topic: how often, when, and which were given up.

Thread: none (pure); one owner.

For work that must leave a group's topics alone. A key waits for its failed record, so that its order is kept; other
keys do not. Attempts are counted here and not in the record, which is the same at each of them. Owns these counts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from multilane.outcome.backoff import RetryBackoff, due, seed_of
from multilane.outcome.flow import Flow
from multilane.outcome.headers import described
from multilane.wire.records.record import Record


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A record that no attempt has helped. Nothing of its content: whoever may see the topic can look it up."""

    partition: int
    offset: int
    attempts: int
    error: str  # its type
    text: str


class InPlace:
    def __init__(self, flow: Flow, again: int, backoff: RetryBackoff | None, now: Callable[[], float]) -> None:
        """`flow`: the topics of the group, for copies of what is given up. `again`: how often after the first attempt.
        `now` is the clock that `due_at` is on."""
        self.flow = flow
        self.again = again
        self._backoff = backoff
        self._now = now
        self._failed: dict[tuple[int, int], tuple[int, float]] = {}  # by place: attempts, and when the next is due
        self._given_up: list[GivenUp] = []

    @property
    def waits(self) -> bool:
        """Whether a failed record has to wait for its next attempt."""
        return self._backoff is not None and self.again > 0

    def tries_again(self, record: Record) -> bool:
        """It has failed once more."""
        place = record.partition, record.offset
        attempts = self._failed.get(place, (0, 0.0))[0] + 1
        self._failed[place] = attempts, self._now() + self._delay(record, attempts)
        return attempts <= self.again

    def _delay(self, record: Record, attempts: int) -> float:
        if self._backoff is None:
            return 0.0
        return due(self._backoff, 0, attempts - 1, seed_of(record.topic, record.partition, record.offset)) / 1_000

    def due_at(self, record: Record) -> float:
        """When it may be handled."""
        known = self._failed.get((record.partition, record.offset)) if self._failed else None
        return 0.0 if known is None else known[1]

    def give_up(self, record: Record, error: BaseException) -> None:
        """It is wherever such records end; before it is settled."""
        attempts, _ = self._failed.pop((record.partition, record.offset), (1, 0.0))
        kind = type(error).__qualname__
        text = described(error).decode(errors="replace").removeprefix(f"{kind}: ")
        self._given_up.append(GivenUp(record.partition, record.offset, attempts, kind, text))

    def take_given_up(self) -> tuple[GivenUp, ...]:
        """Those since the last time."""
        taken, self._given_up = tuple(self._given_up), []
        return taken

    def forget(self, partition: int, below: int) -> None:
        """What is below this offset is settled."""
        for place in [place for place in self._failed if place[0] == partition and place[1] < below]:
            del self._failed[place]
