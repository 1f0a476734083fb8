"""Which records may have killed their process, judged by the records in flight at each crash.

Thread: none (pure).

Many records are in flight when a process dies, and most of them are innocent. A record that was in flight at all but
one of the allowed crashes is suspect: from then on it is handled alone, with no other call in its process. If the
process dies again, the begun table names one record, and that record is not handled again. So no record is rejected
only because it was in flight beside the one that crashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from multilane.commit.runs import Run
from multilane.lanes.begun import Name


class OpenCall(NamedTuple):
    """A call that had not ended when its process died. For a batch only the range of its offsets is known."""

    name: Name
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Crash:
    """A process that died, with its calls in flight that are not settled since."""

    calls: tuple[OpenCall, ...]
    many: int = 1  # calls that were in flight, settled since or not

    @property
    def alone(self) -> OpenCall | None:
        """The only call in flight, if there was one call with one record."""
        only = self.calls[0] if self.many == len(self.calls) == 1 else None
        return only if only is not None and only.first == only.last else None


@dataclass(frozen=True, slots=True)
class Suspicion:
    """The suspicion in one partition. `suspects` are handled alone, `convicted` not at all."""

    suspects: tuple[Run, ...] = ()
    convicted: dict[int, int] = field(default_factory=dict)  # by offset: the number of crashes it was in flight at


def suspicion(crashes: Iterable[Crash], name: Name, limit: int) -> Suspicion:
    """A record that was in flight at `limit` crashes, alone at one of them, is not handled again. 0: no limit. Calls of
    an unknown log raise suspicion only: if the topic was recreated, another record has their offset now."""
    if limit <= 0:
        return Suspicion()
    known = list(crashes)
    ranges = [(call.first, call.last) for crash in known for call in crash.calls if name.may_be(call.name)]
    lonely = {call.first for crash in known if (call := crash.alone) is not None and call.name == name}
    times = {offset: sum(first <= offset <= last for first, last in ranges) for offset in lonely}
    convicted = {offset: many for offset, many in times.items() if many >= limit}
    suspects = _without(_covered(ranges, max(1, limit - 1)), sorted(convicted))
    return Suspicion(tuple(suspects), convicted)


def _covered(ranges: Sequence[Run], times: int) -> list[Run]:
    """The offsets that are within at least `times` of these ranges."""
    edges = sorted([(first, 1) for first, _ in ranges] + [(last + 1, -1) for _, last in ranges])
    found: list[Run] = []
    depth, begin = 0, 0
    for edge, step in edges:
        before, depth = depth, depth + step
        if before < times <= depth:
            begin = edge
        elif depth < times <= before and edge > begin:
            found.append((begin, edge - 1))
    return _merged(found)


def _merged(runs: Iterable[Run]) -> list[Run]:
    merged: list[Run] = []
    for first, last in runs:
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return merged


def _without(runs: Iterable[Run], offsets: Sequence[int]) -> list[Run]:
    left: list[Run] = []
    for first, last in runs:
        begin = first
        for one in offsets:
            if begin <= one <= last:
                if begin < one:
                    left.append((begin, one - 1))
                begin = one + 1
        if begin <= last:
            left.append((begin, last))
    return left
