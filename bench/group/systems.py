"""The clients that are compared in groups, and their properties.

Thread: none (pure).

A system is a client and a protocol. Timers of the group are every client's defaults; under KIP-848 the broker's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

CONSUMER: Final = "consumer"
CLASSIC: Final = "classic"


@dataclass(frozen=True, slots=True)
class System:
    client: str
    protocol: str

    @property
    def name(self) -> str:
        return f"{self.client}-{self.protocol}"


OURS: Final = System("ours", CONSUMER)
OURS_CLASSIC: Final = System("ours", CLASSIC)
JAVA: Final = System("java", CONSUMER)
JAVA_CLASSIC: Final = System("java", CLASSIC)
CONFLUENT: Final = System("confluent", CONSUMER)
CONFLUENT_CLASSIC: Final = System("confluent", CLASSIC)
AIOKAFKA: Final = System("aiokafka", CLASSIC)
SYSTEMS: Final = {
    system.name: system for system in (OURS, JAVA, OURS_CLASSIC, JAVA_CLASSIC, CONFLUENT, CONFLUENT_CLASSIC, AIOKAFKA)
}

# The clients that ours is compared with, per protocol.
PAIRS: Final = ((OURS, JAVA), (OURS_CLASSIC, JAVA_CLASSIC))


@dataclass(frozen=True, slots=True)
class Seat:
    """One member of one group: its brokers, its topics, and where it starts."""

    bootstrap: str
    group: str
    topic: str
    reset: str = "earliest"
    cooperative: bool = False  # under the classic protocol; else each client's own default assignor


def properties(system: System, seat: Seat) -> dict[str, str]:
    """Under Kafka's names, for ours and for Java."""
    made = {
        "bootstrap.servers": seat.bootstrap,
        "group.id": seat.group,
        "group.protocol": system.protocol,
        "auto.offset.reset": seat.reset,
    }
    if seat.cooperative and system.protocol == CLASSIC:
        made["partition.assignment.strategy"] = _COOPERATIVE[system.client]
    return made


_COOPERATIVE: Final = {
    "ours": "cooperative-sticky",
    "java": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
    "confluent": "cooperative-sticky",
}
