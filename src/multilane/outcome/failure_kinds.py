"""Failures by kind: which there are, how often each was seen, for how many keys, and what that looks like.

Thread: none (pure); one owner.

Two failures are of one kind when they have the consumer, the class of the error and the raising line in common. Owns a
bounded table of kinds: what does not fit is counted together. A kind that was quiet for ten minutes is new again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

MOST_KINDS: Final = 100
MOST_KEYS: Final = 256  # of a kind, told apart between two looks
QUIET_SECONDS: Final = 600.0
OTHERS: Final = "(other kinds of error)"

_FEW_CALLS: Final = 5  # too few to tell an outage by
_FEW_KEYS: Final = 3  # of an outage there are at least as many, of a poison at most
_FEW: Final = 0.01  # or this share of what succeeded
_MOST: Final = 0.5  # the share that makes an outage


class FailureKind(NamedTuple):
    consumer: str
    error: str  # the class
    line: str  # `shop/orders.py:20`, the raising line; empty where there is none

    def __str__(self) -> str:
        return f"{self.error} at {self.line}" if self.line else self.error


@dataclass(frozen=True, slots=True)
class Sighting:
    """Failures of one kind since the last look. `keys` are checksums; `stack` comes with the first of its kind."""

    kind: FailureKind
    count: int
    keys: frozenset[int]
    message: str  # of the latest, as its place
    place: str
    stack: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": list(self.kind),
            "count": self.count,
            "keys": sorted(self.keys),
            "message": self.message,
            "place": self.place,
            "stack": self.stack,
        }


def sighting_from(told: Mapping[str, Any]) -> Sighting:
    """Raises KeyError, TypeError or ValueError for what is none."""
    consumer, error, line = map(str, told["kind"])
    keys = frozenset(int(key) for key in told["keys"][:MOST_KEYS])
    texts = (str(told["message"]), str(told["place"]), str(told["stack"]))
    return Sighting(FailureKind(consumer, error, line), int(told["count"]), keys, *texts)


@dataclass(slots=True)
class _Known:
    latest: Sighting
    at: float
    count: int = 0
    keys: set[int] = field(default_factory=set)


class FailureKinds:
    def __init__(self) -> None:
        self._known: dict[FailureKind, _Known] = {}
        self.totals: dict[FailureKind, int] = {}

    def add(self, seen: Sighting, now: float) -> bool:
        """True for the first of its kind, and for the first after it was quiet for long."""
        if seen.kind not in self._known and len(self._known) >= MOST_KINDS:
            self._forget_quiet(now)
        if seen.kind not in self._known and len(self._known) >= MOST_KINDS:
            seen = replace(seen, kind=FailureKind(seen.kind.consumer, OTHERS, ""), stack="")
        known = self._known.get(seen.kind)
        is_new = known is None or now - known.at >= QUIET_SECONDS
        if known is None:
            known = self._known[seen.kind] = _Known(seen, now)
        known.latest, known.at = seen, now
        known.count += seen.count
        known.keys.update(list(seen.keys)[: MOST_KEYS - len(known.keys)])
        self.totals[seen.kind] = self.totals.get(seen.kind, 0) + seen.count
        return is_new

    def take(self) -> list[Sighting]:
        """Those since the last time, the most frequent first."""
        taken = [
            replace(known.latest, count=known.count, keys=frozenset(known.keys), stack="")
            for known in self._known.values()
            if known.count
        ]
        for known in self._known.values():
            known.count = 0
            known.keys.clear()
        return sorted(taken, key=lambda seen: -seen.count)

    def listed(self) -> list[Sighting]:
        """All that are known, with how often each was seen in all; the most frequent first."""
        found = [replace(known.latest, count=self.totals[kind], stack="") for kind, known in self._known.items()]
        return sorted(found, key=lambda seen: -seen.count)

    def _forget_quiet(self, now: float) -> None:
        for kind in [
            kind for kind, known in self._known.items() if now - known.at >= QUIET_SECONDS and not known.count
        ]:
            del self._known[kind]
            self._total_others(kind)

    def _total_others(self, kind: FailureKind) -> None:
        """The table of totals stays as bounded as that of kinds."""
        others = FailureKind(kind.consumer, OTHERS, "")
        self.totals[others] = self.totals.get(others, 0) + self.totals.pop(kind, 0)


def looks_like(seen: Iterable[Sighting], succeeded: int) -> str:
    """An outage (most calls fail alike, for many keys), poison (few keys fail while others succeed), or neither: empty.
    In words, for a log line."""
    found = list(seen)
    failed = sum(one.count for one in found)
    if not failed:
        return ""
    keys = len(frozenset().union(*(one.keys for one in found)))
    share, alike = failed / (failed + succeeded), max(one.count for one in found) / failed
    told = f"{keys:,} keys" if keys < MOST_KEYS else f"{MOST_KEYS} keys or more"
    if failed >= _FEW_CALLS and keys >= _FEW_KEYS and share >= _MOST and alike >= _MOST:
        return f"looks like an outage: {share:.0%} of calls fail, {alike:.0%} of those alike, for {told}"
    if share < _MOST and keys <= max(_FEW_KEYS, _FEW * succeeded):
        named = "one key fails" if keys == 1 else f"{told} fail"
        return f"looks like poison: only {named} ({failed:,} failures) while {succeeded:,} records succeed"
    return ""
