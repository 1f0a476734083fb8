"""multilane: Kafka consumption with many ordered lanes per partition.

The names below are the public interface. They are loaded when first used: importing the package imports nothing heavy
and compiles nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multilane.client.admin.admin import Admin
    from multilane.client.async_consumer import AsyncConsumer
    from multilane.client.blocks import Blocks
    from multilane.client.consumer import Consumer
    from multilane.client.produce.producer import Producer
    from multilane.config.security import Token
    from multilane.errors import MultilaneError
    from multilane.secret import Secret
    from multilane.types import OffsetAndTimestamp, TopicPartition
    from multilane.wire.records.block import Block
    from multilane.wire.records.record import Record

__version__ = "0.1.0"

_HOMES = {
    "Admin": "multilane.client.admin.admin",
    "AsyncConsumer": "multilane.client.async_consumer",
    "Block": "multilane.wire.records.block",
    "Blocks": "multilane.client.blocks",
    "Consumer": "multilane.client.consumer",
    "MultilaneError": "multilane.errors",
    "OffsetAndTimestamp": "multilane.types",
    "Producer": "multilane.client.produce.producer",
    "Record": "multilane.wire.records.record",
    "Secret": "multilane.secret",
    "Token": "multilane.config.security",
    "TopicPartition": "multilane.types",
}

__all__ = [
    "Admin",
    "AsyncConsumer",
    "Block",
    "Blocks",
    "Consumer",
    "MultilaneError",
    "OffsetAndTimestamp",
    "Producer",
    "Record",
    "Secret",
    "Token",
    "TopicPartition",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'multilane' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return __all__
