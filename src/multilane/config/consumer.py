"""The configuration of a consumer: a connection, how it fetches, and its group.

Thread: none (pure values).

`parse_consumer` is the only code that combines the parts, so checks that need two properties are here. All times are
seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from multilane.config.connection import ConnectionConfig, connection_from
from multilane.config.group import GroupConfig, parse_group
from multilane.config.properties import UsedBy
from multilane.config.reset import OffsetReset, parse_reset, reset_of_lost
from multilane.config.values import Values, read
from multilane.errors import ConfigError

# Bytes around the records in a Fetch response; librdkafka reserves the same.
_RESPONSE_OVERHEAD: Final = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig:
    """The repr shows no secret."""

    connection: ConnectionConfig
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait: float
    fetch_pace: float
    max_partition_fetch_bytes: int
    fetch_buffer_bytes: int
    fetch_connections: int
    max_poll_records: int | None  # None: not set
    auto_offset_reset: OffsetReset
    lost_position_reset: OffsetReset
    check_crcs: bool
    read_committed: bool
    max_decompressed_bytes: int
    corrupt_refetches: int
    allow_auto_create_topics: bool
    exclude_internal_topics: bool
    group: GroupConfig

    @property
    def group_id(self) -> str | None:
        return self.group.group_id

    @property
    def warnings(self) -> tuple[str, ...]:
        return self.connection.warnings


def parse_consumer(properties: Mapping[str, object]) -> ConsumerConfig:
    """A consumer's configuration from properties in any accepted spelling, or a ConfigError."""
    values = read(properties, frozenset({UsedBy.EVERY_CLIENT, UsedBy.CONSUMER}))
    reset = parse_reset(values.spelled("auto.offset.reset"), values.text("auto.offset.reset"))
    config = ConsumerConfig(
        connection=connection_from(values),
        fetch_min_bytes=values.integer("fetch.min.bytes"),
        fetch_max_bytes=values.integer("fetch.max.bytes"),
        fetch_max_wait=values.seconds("fetch.max.wait.ms"),
        fetch_pace=values.seconds("fetch.pace.ms"),
        max_partition_fetch_bytes=values.integer("max.partition.fetch.bytes"),
        fetch_buffer_bytes=values.integer("fetch.buffer.bytes"),
        fetch_connections=values.integer("fetch.connections"),
        max_poll_records=values.integer("max.poll.records") if "max.poll.records" in values.given else None,
        auto_offset_reset=reset,
        lost_position_reset=reset_of_lost(reset, values.text("lost.position.reset")),
        check_crcs=values.flag("check.crcs"),
        read_committed=values.text("isolation.level") == "read_committed",
        max_decompressed_bytes=values.integer("max.decompressed.batch.bytes"),
        corrupt_refetches=values.integer("corrupt.batch.refetches"),
        allow_auto_create_topics=values.flag("allow.auto.create.topics"),
        exclude_internal_topics=values.flag("exclude.internal.topics"),
        group=parse_group(values),
    )
    _check(values, config)
    return config


def _check(values: Values, config: ConsumerConfig) -> None:
    """A wait longer than the request timeout would turn every quiet fetch into a lost connection; a frame limit below
    the fetch size would reject the requested response."""
    if config.fetch_max_wait >= config.connection.request_timeout:
        raise ConfigError(f"{values.spelled('fetch.max.wait.ms')} must be below {values.spelled('request.timeout.ms')}")
    if config.connection.receive_max_bytes < config.fetch_max_bytes + _RESPONSE_OVERHEAD:
        raise ConfigError(
            f"{values.spelled('receive.message.max.bytes')} must be at least {values.spelled('fetch.max.bytes')} + "
            f"{_RESPONSE_OVERHEAD}, so that a full response is accepted"
        )
