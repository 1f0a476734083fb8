"""Failures by kind: how often each kind was seen, for how many keys, and whether that looks like an outage or poison.

Thread: none (pure); one owner.

Two failures are of one kind if they have the same consumer, error class and raising line. Owns a bounded table of
kinds; failures that do not fit are counted together. A kind that was quiet for ten minutes is new again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

MOST_KINDS: Final = 100
MOST_KEYS: Final = 256  # of a kind, counted separately between two looks
QUIET_SECONDS: Final = 600.0
OTHERS: Final = "(other kinds of error)"

_FEW_CALLS: Final = 5  # an outage has at least as many failures
_FEW_KEYS: Final = 3  # an outage has at least as many keys, poison at most
_FEW: Final = 0.01  # or this share of the successes
_MOST: Final = 0.5  # an outage has at least this share of failures


class FailureKind(NamedTuple):
    consumer: str
    error: str  # the class
    line: str  # `shop/orders.py:20`, the raising line; empty if there is none

    def __str__(self) -> str:
        return f"{self.error} at {self.line}" if self.line else self.error


@dataclass(frozen=True, slots=True)
class Sighting:
    """Failures of one kind since the last look. `keys` are checksums; only the first of its kind has a `stack`."""

    kind: FailureKind
    count: int
    keys: frozenset[int]
    message: str  # of the latest failure, like `record`
    record: str  # `orders-3@1042, key #5d41402a`
    stack: str = ""

    def to_json(self) -> dict[str, Any]:
        return {
            "kind": list(self.kind),
            "count": self.count,
            "keys": sorted(self.keys),
            "message": self.message,
            "place": self.record,
            "stack": self.stack,
        }


def sighting_from(content: Mapping[str, Any]) -> Sighting:
    """Raises KeyError, TypeError or ValueError if `content` is not a sighting."""
    consumer, error, line = map(str, content["kind"])
    keys = frozenset(int(key) for key in content["keys"][:MOST_KEYS])
    texts = (str(content["message"]), str(content["place"]), str(content["stack"]))
    return Sighting(FailureKind(consumer, error, line), int(content["count"]), keys, *texts)


@dataclass(slots=True)
class _Known:
    latest: Sighting
    at: float
    count: int = 0
    keys: set[int] = field(default_factory=set)


class FailureKinds:
    def __init__(self) -> None:
        self._known: dict[FailureKind, _Known] = {}
        self.totals: dict[FailureKind, int] = {}  # the owner may clear it; the kinds stay known

    def add(self, seen: Sighting, now: float) -> bool:
        """True for the first of its kind, and for the first after a quiet time."""
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
        """The failures since the last call, the most frequent first."""
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
        """All known kinds with their total counts, the most frequent first."""
        found = [replace(known.latest, count=self.totals.get(kind, 0), stack="") for kind, known in self._known.items()]
        return sorted(found, key=lambda seen: -seen.count)

    def _forget_quiet(self, now: float) -> None:
        for kind in [
            kind for kind, known in self._known.items() if now - known.at >= QUIET_SECONDS and not known.count
        ]:
            del self._known[kind]
            self._total_others(kind)

    def _total_others(self, kind: FailureKind) -> None:
        """Keeps the table of totals as bounded as the table of kinds."""
        others = FailureKind(kind.consumer, OTHERS, "")
        self.totals[others] = self.totals.get(others, 0) + self.totals.pop(kind, 0)


def looks_like(seen: Iterable[Sighting], succeeded: int) -> str:
    """For a log line: an outage (most calls fail alike, for many keys) or poison (few keys fail while others succeed).
    Empty if it looks like neither."""
    found = list(seen)
    failed = sum(one.count for one in found)
    if not failed:
        return ""
    keys = len(frozenset().union(*(one.keys for one in found)))
    share, alike = failed / (failed + succeeded), max(one.count for one in found) / failed
    many_keys = f"{keys:,} keys" if keys < MOST_KEYS else f"{MOST_KEYS} keys or more"
    if failed >= _FEW_CALLS and keys >= _FEW_KEYS and share >= _MOST and alike >= _MOST:
        return f"looks like an outage: {share:.0%} of calls fail, {alike:.0%} of those alike, for {many_keys}"
    if share < _MOST and keys <= max(_FEW_KEYS, _FEW * succeeded):
        failing = "one key fails" if keys == 1 else f"{many_keys} fail"
        return f"looks like poison: only {failing} ({failed:,} failures) while {succeeded:,} records succeed"
    return ""
