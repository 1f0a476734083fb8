"""A real Apache Kafka for development and tests without Docker: jars from a cache, brokers as child processes.

Thread: any; one thread at a time drives a cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multilane.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from multilane.dev.kafka import KafkaCluster
    from multilane.dev.settings import KafkaListener

_HOMES = {
    "KafkaCluster": "multilane.dev.kafka",
    "KafkaListener": "multilane.dev.settings",
}

__all__ = ["KafkaCluster", "KafkaListener"]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
