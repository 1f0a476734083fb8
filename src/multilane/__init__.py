"""multilane: Kafka consumption with many ordered lanes per partition.

The names below are the public interface, with those of `multilane.dev`, `multilane.spark` and `multilane.testing`. They
load on first use: importing the package imports nothing heavy and compiles nothing. Every other module is private.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multilane.lazy_exports import lazy_exports
from multilane.version import __version__

if TYPE_CHECKING:
    from multilane.app.app import App
    from multilane.app.consumer_pool import ConsumerLease, ConsumerPool, SharedConsumer
    from multilane.client.admin.admin import Admin
    from multilane.client.async_consumer import AsyncConsumer
    from multilane.client.blocks import Blocks
    from multilane.client.consumer import Consumer
    from multilane.client.group.assignors import Assignor
    from multilane.client.group.wanted_topics import ServerPattern
    from multilane.client.produce.producer import Producer
    from multilane.client.rebalance import RebalanceListener
    from multilane.clock import Clock, SystemClock
    from multilane.config.app.loading import load_app
    from multilane.config.security import Token
    from multilane.errors import MultilaneError
    from multilane.lanes.partition_events import Partitions
    from multilane.listeners.acknowledgement import Acknowledgement
    from multilane.listeners.context import Context, current_context
    from multilane.listeners.opentelemetry import OpenTelemetryTracer
    from multilane.listeners.window import Selection
    from multilane.metrics.observer import Gauge, Observer
    from multilane.metrics.opentelemetry import OpenTelemetryMetrics
    from multilane.metrics.prometheus import PrometheusObserver
    from multilane.registry.formats import Avro, JsonSchema, Protobuf
    from multilane.runtime.produced_messages import CustomMessage, Message
    from multilane.runtime.registration import Interceptors
    from multilane.runtime.results import Result
    from multilane.secret import Secret
    from multilane.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
    from multilane.wire.records.block import Block
    from multilane.wire.records.record import Record

_HOMES = {
    "Acknowledgement": "multilane.listeners.acknowledgement",
    "Admin": "multilane.client.admin.admin",
    "App": "multilane.app.app",
    "Assignor": "multilane.client.group.assignors",
    "AsyncConsumer": "multilane.client.async_consumer",
    "Avro": "multilane.registry.formats",
    "Block": "multilane.wire.records.block",
    "Blocks": "multilane.client.blocks",
    "Clock": "multilane.clock",
    "Consumer": "multilane.client.consumer",
    "ConsumerLease": "multilane.app.consumer_pool",
    "ConsumerPool": "multilane.app.consumer_pool",
    "Context": "multilane.listeners.context",
    "CustomMessage": "multilane.runtime.produced_messages",
    "Gauge": "multilane.metrics.observer",
    "Interceptors": "multilane.runtime.registration",
    "JsonSchema": "multilane.registry.formats",
    "Message": "multilane.runtime.produced_messages",
    "MultilaneError": "multilane.errors",
    "Observer": "multilane.metrics.observer",
    "OffsetAndMetadata": "multilane.types",
    "OffsetAndTimestamp": "multilane.types",
    "OpenTelemetryMetrics": "multilane.metrics.opentelemetry",
    "OpenTelemetryTracer": "multilane.listeners.opentelemetry",
    "Partitions": "multilane.lanes.partition_events",
    "Protobuf": "multilane.registry.formats",
    "PrometheusObserver": "multilane.metrics.prometheus",
    "Producer": "multilane.client.produce.producer",
    "RebalanceListener": "multilane.client.rebalance",
    "Record": "multilane.wire.records.record",
    "Result": "multilane.runtime.results",
    "Secret": "multilane.secret",
    "Selection": "multilane.listeners.window",
    "ServerPattern": "multilane.client.group.wanted_topics",
    "SharedConsumer": "multilane.app.consumer_pool",
    "SystemClock": "multilane.clock",
    "Token": "multilane.config.security",
    "TopicPartition": "multilane.types",
    "current_context": "multilane.listeners.context",
    "load_app": "multilane.config.app.loading",
}

__all__ = [
    "Acknowledgement",
    "Admin",
    "App",
    "Assignor",
    "AsyncConsumer",
    "Avro",
    "Block",
    "Blocks",
    "Clock",
    "Consumer",
    "ConsumerLease",
    "ConsumerPool",
    "Context",
    "CustomMessage",
    "Gauge",
    "Interceptors",
    "JsonSchema",
    "Message",
    "MultilaneError",
    "Observer",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OpenTelemetryMetrics",
    "OpenTelemetryTracer",
    "Partitions",
    "Producer",
    "PrometheusObserver",
    "Protobuf",
    "RebalanceListener",
    "Record",
    "Result",
    "Secret",
    "Selection",
    "ServerPattern",
    "SharedConsumer",
    "SystemClock",
    "Token",
    "TopicPartition",
    "__version__",
    "current_context",
    "load_app",
]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
