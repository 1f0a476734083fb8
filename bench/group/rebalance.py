"""A rebalance: one member reads, a second one joins and leaves, and every partition's longest gap is measured.

Thread: application.

Members only learn of each other when they heartbeat, so the pause of a moved partition depends on when within a
heartbeat interval the other member joins. Every round therefore has its phase, the same for all systems. Clients need
not keep the interval (ours is early), so phases are spread over several intervals: they cover shorter ones as evenly.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Final

from bench.group.member_child import Order
from bench.group.pauses import Pauses, Window, Windows, pauses
from bench.group.steering import Child, Event
from bench.group.systems import Seat, System
from bench.java import JavaProgram

PARTITIONS: Final = 6
TICK_SECONDS: Final = 0.02
# Defaults: the broker's under KIP-848, the clients' under the classic protocol.
HEARTBEAT_SECONDS: Final = {"consumer": 5.0, "classic": 3.0}
_SPREAD: Final = 3  # intervals
_AFTER_SECONDS: Final = 1.0
_STEADY_SHARE: Final = 0.8  # of a heartbeat interval; the first member has been reading for a full one


@dataclass(frozen=True, slots=True)
class Stage:
    """The brokers, topic and Java of all rounds."""

    bootstrap: str
    topic: str
    java: JavaProgram

    def member(self, system: System, seat: Seat, expects: int) -> Child:
        java = (str(self.java.program), self.java.classpath)
        order = Order(system.name, asdict(seat), time.time(), java, expects)
        return Child("bench.group.member_child", "steered", json.dumps(asdict(order)))


def phase_of(turn: int, rounds: int) -> float:
    """The middle of the round's share of the spread, in order, in heartbeat intervals."""
    return _SPREAD * (turn + 0.5) / rounds


def measure_rebalance(system: System, stage: Stage, phase: float) -> Pauses:
    """`phase`: after how many heartbeat intervals, plus one to settle, the second member joins, and later leaves."""
    seat = Seat(stage.bootstrap, f"bench-{uuid.uuid4().hex[:12]}", stage.topic, "latest", cooperative=True)
    interval = HEARTBEAT_SECONDS[system.protocol]
    with stage.member(system, seat, PARTITIONS) as first, stage.member(system, seat, PARTITIONS // 2) as second:
        for member in (first, second):
            member.wait_event("ready")
        first.tell("subscribe")
        _wait_until(first.wait_event("assigned")["at"] + interval * (1 + phase))
        joined = second.tell("subscribe")
        settled = second.wait_event("assigned")["at"]
        second.wait(Reading(PARTITIONS // 2), "the second member reads its half")
        join = Window(joined, time.time())
        steady = Window(joined - _STEADY_SHARE * interval, joined)
        _wait_until(settled + interval * (1 + phase))
        left = second.tell("close")
        gone = second.wait_event("end")
        first.wait(Reading(PARTITIONS, after=gone["closed"]), "the first member reads everything again")
        leave = Window(left, time.time())
        time.sleep(_AFTER_SECONDS)
        first.tell("close")
        stayed = first.wait_event("end")
    return pauses(stayed["arrivals"], gone["arrivals"], Windows(steady, join, leave))


class Reading:
    """Collects the partitions that a member reports reading from `after` on: earlier reports are stale."""

    def __init__(self, partitions: int, after: float = 0.0) -> None:
        self._wanted = partitions
        self._after = after
        self._seen: set[int] = set()

    def __call__(self, event: Event) -> bool:
        if event["event"] != "reads" or event["since"] < self._after:
            return False
        self._seen.update(event["partitions"])
        return len(self._seen) >= self._wanted


def _wait_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))
