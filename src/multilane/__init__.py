"""multilane: Kafka consumption with many ordered lanes per partition.

The names below are the public interface. They are loaded when first used: importing the package imports nothing heavy
and compiles nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from multilane.version import __version__

if TYPE_CHECKING:
    from multilane.app.app import App
    from multilane.client.admin.admin import Admin
    from multilane.client.async_consumer import AsyncConsumer
    from multilane.client.blocks import Blocks
    from multilane.client.consumer import Consumer
    from multilane.client.group.assignors import Assignor
    from multilane.client.group.wanted_topics import ServerPattern
    from multilane.client.produce.producer import Producer
    from multilane.client.rebalance import RebalanceListener
    from multilane.config.security import Token
    from multilane.errors import MultilaneError
    from multilane.lanes.partition_events import Partitions
    from multilane.listeners.acknowledgement import Acknowledgement
    from multilane.listeners.context import Context, current_context
    from multilane.listeners.window import Selection
    from multilane.runtime.produced_messages import CustomMessage, Message
    from multilane.runtime.registration import Interceptors
    from multilane.secret import Secret
    from multilane.spark.avro.payload import Avro
    from multilane.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
    from multilane.wire.records.block import Block
    from multilane.wire.records.record import Record

_HOMES = {
    "Acknowledgement": "multilane.listeners.acknowledgement",
    "Admin": "multilane.client.admin.admin",
    "App": "multilane.app.app",
    "Interceptors": "multilane.runtime.registration",
    "Partitions": "multilane.lanes.partition_events",
    "Assignor": "multilane.client.group.assignors",
    "AsyncConsumer": "multilane.client.async_consumer",
    "Avro": "multilane.spark.avro.payload",
    "Block": "multilane.wire.records.block",
    "Blocks": "multilane.client.blocks",
    "Consumer": "multilane.client.consumer",
    "Context": "multilane.listeners.context",
    "CustomMessage": "multilane.runtime.produced_messages",
    "Message": "multilane.runtime.produced_messages",
    "MultilaneError": "multilane.errors",
    "OffsetAndMetadata": "multilane.types",
    "OffsetAndTimestamp": "multilane.types",
    "Producer": "multilane.client.produce.producer",
    "RebalanceListener": "multilane.client.rebalance",
    "Record": "multilane.wire.records.record",
    "Secret": "multilane.secret",
    "Selection": "multilane.listeners.window",
    "ServerPattern": "multilane.client.group.wanted_topics",
    "Token": "multilane.config.security",
    "TopicPartition": "multilane.types",
    "current_context": "multilane.listeners.context",
}

__all__ = [
    "Acknowledgement",
    "Admin",
    "App",
    "Interceptors",
    "Assignor",
    "AsyncConsumer",
    "Avro",
    "Block",
    "Blocks",
    "Consumer",
    "Context",
    "CustomMessage",
    "Message",
    "MultilaneError",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "Partitions",
    "Producer",
    "RebalanceListener",
    "Record",
    "Secret",
    "Selection",
    "ServerPattern",
    "Token",
    "TopicPartition",
    "__version__",
    "current_context",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'multilane' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
