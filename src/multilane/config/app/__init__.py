"""The configuration of an app: YAML files in, frozen objects out, every problem reported at its line."""

from __future__ import annotations

from multilane.config.app.clients import (
    admin_properties,
    consumer_properties,
    error_consumer_properties,
    producer_properties,
)
from multilane.config.app.cluster import Auth, ClusterConfig, ErrorConfig, ProducerDefaults
from multilane.config.app.consumer import ConsumerGroupConfig, ErrorBreaker, RetryBackoff
from multilane.config.app.loading import load_app
from multilane.config.app.model import AppConfig, ProducerTopicConfig, ShovelConfig
from multilane.config.app.schedule import Schedule

__all__ = [
    "AppConfig",
    "Auth",
    "ClusterConfig",
    "ConsumerGroupConfig",
    "ErrorBreaker",
    "ErrorConfig",
    "ProducerDefaults",
    "ProducerTopicConfig",
    "RetryBackoff",
    "Schedule",
    "ShovelConfig",
    "admin_properties",
    "consumer_properties",
    "error_consumer_properties",
    "load_app",
    "producer_properties",
]
