"""A value that is worked out from the ledgers of intakes, and kept while these are at rest.

Thread: one changes the intakes; others may look.

An intake is at rest when all that came is settled. Its ledger then stays as it is until something comes, and intakes
count that. An idle app is asked for its commits and counts every second, for each trigger and partition, so a look has
to be cheap. Keeps no value while something is open: what lanes settle is not counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from multilane.lanes.intake import Intake

V = TypeVar("V")


class _Held(NamedTuple, Generic[V]):
    turn: int
    intakes: tuple[Intake, ...]
    changes: list[int]
    value: V


class AtRest(Generic[V]):
    def __init__(self, intakes: Callable[[], Iterable[Intake]], work_out: Callable[[], V]) -> None:
        """The value is of all `intakes`, and of nothing else that changes before `clear`."""
        self._intakes = intakes
        self._work_out = work_out
        self._turn = 0
        self._kept: _Held[V] | None = None

    @property
    def value(self) -> V:
        kept, turn = self._kept, self._turn
        if kept is not None and kept.turn == turn and [intake.changes for intake in kept.intakes] == kept.changes:
            return kept.value
        intakes = tuple(self._intakes())
        changes = [intake.changes for intake in intakes]  # before anything else is looked at: another thread may go on
        are_at_rest = all(intake.is_at_rest for intake in intakes)
        value = self._work_out()
        self._kept = _Held(turn, intakes, changes, value) if are_at_rest else None
        return value

    def clear(self) -> None:
        """The value is of other intakes now."""
        self._turn += 1
        self._kept = None
