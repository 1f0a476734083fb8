"""The messages between the parent of `multilane run --members` and its member processes.

Thread: none (pure).

They are pickled over a pipe between processes of one installation, and are never stored. A stop is no message but
SIGTERM: it reaches a member that does not read yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.metrics.observer import Count, Duration, Gauge


@dataclass(frozen=True, slots=True)
class OverridesChange:
    """To a member: overrides of a consumer."""

    consumer: str
    overrides: ConsumerOverrides


@dataclass(frozen=True, slots=True)
class MemberReport:
    """From a member, each second, and once more when it has ended."""

    counts: list[Count | Duration]  # since the last report
    failures: list[dict[str, Any]]  # since the last report
    gauges: list[Gauge] | None  # now; None if the loop did not read them

    @property
    def news(self) -> dict[str, Any]:
        """In the form in which workers on Spark report."""
        return {"counts": self.counts, "failures": self.failures, "gauges": self.gauges}


@dataclass(frozen=True, slots=True)
class MemberExit:
    """From a member, last: it ends by itself and has logged why, whatever its exit code."""


FromMemberProcess = MemberReport | MemberExit
ToMemberProcess = OverridesChange
