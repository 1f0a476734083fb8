"""Everything that a network thread needs to connect to a cluster.

Thread: none (pure values).

Owns `ConnectionConfig` and the key under which network threads are shared. All times are seconds.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from multilane.config.addresses import Address, parse_addresses
from multilane.config.properties import UsedBy
from multilane.config.security import SecurityConfig, parse_security
from multilane.config.values import Values, read
from multilane.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionConfig:
    """The repr shows no secret. `warnings` lists accepted settings that are weak or have no effect."""

    bootstrap_servers: tuple[Address, ...]
    security: SecurityConfig
    client_id: str
    client_rack: str
    request_timeout: float
    default_api_timeout: float
    connect_timeout: float
    connect_timeout_max: float
    reconnect_backoff: float
    reconnect_backoff_max: float
    retry_backoff: float
    retry_backoff_max: float
    metadata_max_age: float
    rebootstrap: bool
    rebootstrap_trigger: float
    connections_max_idle: float | None
    receive_max_bytes: int
    receive_buffer_bytes: int | None
    send_buffer_bytes: int | None
    warnings: tuple[str, ...] = field(default=(), compare=False)


def parse_connection(properties: Mapping[str, object]) -> ConnectionConfig:
    """A connection from connection properties only (an admin client's, for example)."""
    return connection_from(read(properties, frozenset({UsedBy.EVERY_CLIENT})))


def connection_from(values: Values) -> ConnectionConfig:
    """The connection's part of parsed values."""
    if "bootstrap.servers" not in values.given:
        raise ConfigError("bootstrap.servers is not set; write host:port, or several separated by commas")
    security, warnings = parse_security(values)
    idle = values.integer("connections.max.idle.ms")
    return ConnectionConfig(
        bootstrap_servers=parse_addresses(values.spelled("bootstrap.servers"), values.items("bootstrap.servers")),
        security=security,
        client_id=_client_id(values),
        client_rack=values.text("client.rack"),
        request_timeout=values.seconds("request.timeout.ms"),
        default_api_timeout=values.seconds("default.api.timeout.ms"),
        connect_timeout=values.seconds("socket.connection.setup.timeout.ms"),
        connect_timeout_max=_limit(
            values, "socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"
        ),
        reconnect_backoff=values.seconds("reconnect.backoff.ms"),
        reconnect_backoff_max=_limit(values, "reconnect.backoff.ms", "reconnect.backoff.max.ms"),
        retry_backoff=values.seconds("retry.backoff.ms"),
        retry_backoff_max=_limit(values, "retry.backoff.ms", "retry.backoff.max.ms"),
        metadata_max_age=values.seconds("metadata.max.age.ms"),
        rebootstrap=values.text("metadata.recovery.strategy") == "rebootstrap",
        rebootstrap_trigger=values.seconds("metadata.recovery.rebootstrap.trigger.ms"),
        connections_max_idle=None if idle < 0 else idle / 1_000,
        receive_max_bytes=values.integer("receive.message.max.bytes"),
        receive_buffer_bytes=_buffer(values, "receive.buffer.bytes"),
        send_buffer_bytes=_buffer(values, "send.buffer.bytes"),
        warnings=values.warnings + warnings,
    )


def connection_key(config: ConnectionConfig) -> Hashable:
    """Equal for two configurations that may share a network thread: same brokers (in any order), protocol,
    credentials, TLS and client settings. Settings of single requests, calls or fetches are left out."""
    return replace(
        config,
        bootstrap_servers=tuple(sorted(set(config.bootstrap_servers))),
        client_id="",
        client_rack="",
        default_api_timeout=0.0,
        warnings=(),
    )


def _client_id(values: Values) -> str:
    text = values.text("client.id")
    if len(text.encode()) > 249 or not text.isprintable():
        raise ConfigError(f"{values.spelled('client.id')}: write at most 249 printable characters")
    return text


def _buffer(values: Values, name: str) -> int | None:
    size = values.integer(name)
    return None if size < 0 else size


def _limit(values: Values, first: str, limit: str) -> float:
    """The limit of a growing value. If it is not set, a first value above the default raises it."""
    start, end = values.seconds(first), values.seconds(limit)
    if start > end and limit in values.given:
        raise ConfigError(f"{values.spelled(first)} is above {values.spelled(limit)}")
    return max(start, end)
