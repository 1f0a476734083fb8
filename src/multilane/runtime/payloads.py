"""The payloads of one consumer's functions, bound to the schema registry of its cluster.

Thread: loop.

Owns the registry's client, if a function needs one: all partitions share its schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from multilane.clock import Clock
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.errors import ConfigError
from multilane.listeners.registered import RegisteredPayloads, format_of
from multilane.listeners.signature import Signature, location_of, read_signature
from multilane.registry.schema_registry import SchemaRegistry


class Payloads:
    def __init__(
        self,
        config: ConsumerGroupConfig,
        cluster: ClusterConfig,
        clock: Clock,
        functions: Iterable[Callable[..., Any] | None],
    ) -> None:
        """Connects to nobody."""
        formats = [format_of(read_signature(function).payload) for function in functions if function is not None]
        self.need_registry = any(found is not None and found[1].needs_registry for found in formats)
        self._registry: SchemaRegistry | None = None
        if self.need_registry and cluster.schema_registry is not None:
            # A call must not be over its time because the registry is slow: that would be the record's failure.
            timeout = min(cluster.schema_registry.timeout, config.max_processing_time / 2)
            self._registry = SchemaRegistry(cluster.schema_registry.model_copy(update={"timeout": timeout}), clock)
        self._bound: list[tuple[Any, RegisteredPayloads]] = []  # annotations may hold schemas: they have no hash

    def bound(self, signature: Signature) -> Signature:
        """The signature with its decoder as the payload, if its payload has a format."""
        found = format_of(signature.payload)
        if found is None:
            return signature
        known = next((decoder for annotation, decoder in self._bound if annotation == signature.payload), None)
        if known is None:
            known = RegisteredPayloads(*found, self._registry)
            self._bound.append((signature.payload, known))
        return replace(signature, payload=known)


def check_payload(cluster: ClusterConfig, function: Callable[..., Any], signature: Signature) -> None:
    """Raises ConfigError if the function's payload does not fit the cluster's configuration."""
    found = format_of(signature.payload)
    if found is not None and found[1].needs_registry and cluster.schema_registry is None:
        raise ConfigError(
            f"{location_of(function)}: {type(found[1]).__name__} needs a schema registry: add schemaRegistry to the "
            f"cluster {cluster.name!r}"
        )
