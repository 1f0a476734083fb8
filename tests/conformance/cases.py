"""What is put under the guarantees: a listener kind, a retry mode and a group protocol, with topics of its own.

A record says in its value what its handler shall do, so that every engine's handlers do the same and a failure does not
depend on chance: how long it takes, how many attempts fail, and which file has to be there before it ends.
"""

from __future__ import annotations

import json
import random
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

KINDS = ("single", "sync", "batch", "columns", "unique")
WITHOUT_BREAKER = {"errorBreaker": {"action": "off"}}  # for records that fail on purpose: they are no outage
MODES = ("none", "retry", "key")  # no retry topic; a retry topic; one with retryOrder key
PROTOCOLS = ("consumer", "classic")
ALWAYS = 1_000  # attempts


SHARING = {"sharing": "same-topic"}  # a case with these keys has another trigger beside it
CROSSING = {"sharing": "cross-topic"}  # and one of another topic


@dataclass(frozen=True, slots=True)
class Case:
    """One consumer of the configuration: its group and topics have the case's name."""

    name: str
    kind: str
    mode: str
    protocol: str
    partitions: int = 3
    keys: dict[str, Any] = field(default_factory=dict)  # of the configuration, beside those that all have

    @property
    def group(self) -> str:
        return f"{self.name}.group"

    @property
    def retry(self) -> str | None:
        return None if self.mode == "none" else f"{self.name}.retry"

    @property
    def error(self) -> str:
        return f"{self.name}.error"

    @property
    def topics(self) -> dict[str, int]:
        """All of them, with their numbers of partitions."""
        made = {self.name: self.partitions, self.error: 1}
        return made if self.retry is None else made | {self.retry: self.partitions}

    @property
    def keeps_order_across(self) -> bool:
        return self.mode == "key"

    def configuration(self) -> dict[str, Any]:
        """This consumer as the configuration file says it."""
        made: dict[str, Any] = {
            "groupId": self.group,
            "name": self.name,
            "error": self.error,
            "cluster": "main",
            "virtualPartitionCount": 4,
            "offsetInitial": "oldest",
            "maxProcessingTime": "20s",
            "sessionTimeout": "3s",
            "heartbeatInterval": "300ms",
            "rebalanceTimeout": "20s",
            "commitInterval": "200ms",
            "group.protocol": self.protocol,
        }
        if self.retry is not None:
            made |= {"retry": self.retry, "retryCount": 2, "retryBackoff": {"delay": "0s"}}
            made |= {} if self.kind == "unique" else {"retryOrder": "key" if self.mode == "key" else "none"}
        if self.kind in ("batch", "columns", "unique"):
            made |= {"batchSize": 8, "consumeBatchListenerLatency": "50ms", "uniqueListener": self.kind == "unique"}
        if "cross-topic" in self.keys.values() and self.protocol == "consumer":
            made["properties"] = {
                "group.remote.assignor": "range"
            }  # else one may have partitions of the other topic alone
        return made | self.keys


def name_beside(case: str) -> str:
    return f"{case}-beside"


def topic_across(case: Case) -> str | None:
    """The other topic that its group reads."""
    return f"{case.name}.across" if case.keys.get("sharing") == "cross-topic" else None


def beside(case: Case) -> dict[str, dict[str, Any]]:
    """The triggers that share the group of a case, if there are any: they have no retry topic, and their lanes are few.
    The first reads the same topic."""
    if "sharing" not in case.keys:
        return {}
    others = ("retry", "retryCount", "retryBackoff", "retryOrder", "error", "batchSize", "uniqueListener")
    keys = {name: value for name, value in case.configuration().items() if name not in others}
    keys |= {"virtualPartitionCount": 2}
    across = topic_across(case)
    return {name_beside(case.name): keys} | ({} if across is None else {across: keys | {"name": across}})


def matrix(prefix: str, protocol: str) -> list[Case]:
    """Every kind and mode. A unique listener with a retry topic always keeps the order: the other is refused."""
    return [
        Case(f"{prefix}-{kind}-{mode}", kind, mode, protocol)
        for kind in KINDS
        for mode in MODES
        if (kind, mode) != ("unique", "retry")
    ]


def new_cases(*shapes: tuple[str, str, str], **more: Any) -> list[Case]:
    """A case for each (kind, mode, protocol), with names that nobody had before."""
    mark = uuid.uuid4().hex[:8]
    return [Case(f"{mark}-{kind}-{mode}-{protocol}", kind, mode, protocol, **more) for kind, mode, protocol in shapes]


@dataclass(frozen=True, slots=True)
class Order:
    """What a record tells its handler to do."""

    number: int
    wait: float = 0.0
    fails: int = 0  # this many attempts
    hold: str = ""  # until this file is there

    def value(self) -> bytes:
        told = {"number": self.number, "wait": round(self.wait, 4), "fails": self.fails, "hold": self.hold}
        return json.dumps(told).encode()

    @classmethod
    def of(cls, value: bytes | None) -> Order:
        return cls(**json.loads(value or b"{}"))


@dataclass(frozen=True, slots=True)
class Item:
    """A record to be produced."""

    key: str | None
    partition: int
    order: Order


def orders(case: Case, count: int, *, longest_wait: float, first: int = 0) -> Iterator[Item]:
    """A fifth of them of one hot key. Every 50th fails once, every 250th twice, every 500th always."""
    chance = random.Random(f"{case.kind}-{case.mode}-{first}")  # noqa: S311 - the same in every run
    for number in range(first, first + count):
        key = "hot" if chance.random() < 0.2 else f"key-{chance.randrange(100)}"
        fails = ALWAYS if number % 500 == 499 else 2 if number % 250 == 249 else 1 if number % 50 == 49 else 0
        yield Item(key, partition_of(key, case), Order(number, chance.random() * longest_wait, fails))


def partition_of(key: str, case: Case) -> int:
    return zlib.crc32(key.encode()) % case.partitions
