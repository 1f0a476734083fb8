"""A child's order and its reports: one line of JSON for each tick, and one when a log is drained.

Thread: none (pure).

    {"at": 12.5, "handled": 4096}      so many records were handled by then (a clock of the child's own)
    {"drained": 20.4}                  seconds from the first call of the handler until all of the log was handled
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Final

from bench.lane.logs import Log, key_name
from bench.lane.scenarios import LATENCY, Scenario

TICK_SECONDS: Final = 0.25
HUNG_KEY: Final = key_name(0).decode()


@dataclass(frozen=True, slots=True)
class Order:
    """`drain`: end after so many records (0: never). `hung_key`: its first record never ends (empty: none)."""

    bootstrap: str
    topic: str
    group: str
    partitions: int
    lanes: int
    batch: int
    shape: str
    work: str
    unique: bool
    port: int
    hung_key: str = ""
    drain: int = 0
    latency: float = LATENCY
    tick: float = TICK_SECONDS

    @property
    def lanes_in_all(self) -> int:
        return self.partitions * max(self.lanes, 1)

    def text(self) -> str:
        return json.dumps(asdict(self))

    def settings(self) -> list[str]:
        """For a program that does not read JSON."""
        return [f"{name}={_plain(value)}" for name, value in asdict(self).items()]


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def order_of(scenario: Scenario, log: Log, bootstrap: str, port: int) -> Order:
    """A new group reads the log from its beginning."""
    return Order(
        bootstrap=bootstrap,
        topic=log.topic,
        group=f"bench-{uuid.uuid4().hex[:12]}",
        partitions=scenario.partitions,
        lanes=scenario.lanes,
        batch=scenario.batch,
        shape=scenario.shape,
        work=scenario.work,
        unique=scenario.unique,
        port=port,
        hung_key=HUNG_KEY if scenario.hangs else "",
        drain=log.records if scenario.drains else 0,
    )


@dataclass(frozen=True, slots=True)
class Tick:
    at: float
    handled: int


@dataclass(frozen=True, slots=True)
class Drained:
    seconds: float


def told(lines: Iterator[str]) -> Iterator[Tick | Drained]:
    """The reports of a child; other lines (a library's) are skipped."""
    for line in lines:
        if not line.startswith("{"):
            continue
        facts = json.loads(line)
        if "drained" in facts:
            yield Drained(facts["drained"])
        elif "handled" in facts:
            yield Tick(facts["at"], facts["handled"])
