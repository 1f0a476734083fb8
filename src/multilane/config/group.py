"""The configuration of group membership.

Thread: none (pure values). All times are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from multilane.config.values import Values
from multilane.errors import ConfigError, printable


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """`group_id` None means no group: the rest then has no meaning."""

    group_id: str | None
    group_protocol: str
    group_instance_id: str | None
    group_remote_assignor: str | None
    partition_assignment_strategy: tuple[str, ...]
    session_timeout: float
    heartbeat_interval: float
    max_poll_interval: float
    enable_auto_commit: bool
    auto_commit_interval: float


_ASSIGNORS: Final = {
    "range": "range",
    "roundrobin": "roundrobin",
    "sticky": "sticky",
    "cooperative-sticky": "cooperative-sticky",
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.StickyAssignor": "sticky",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
# What the other protocol leaves to the broker, or has no place for.
_CLASSIC_ONLY: Final = ("session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy")
_CONSUMER_ONLY: Final = ("group.remote.assignor",)


def parse_group(values: Values) -> GroupConfig:
    """The group's part of the properties."""
    protocol = values.text("group.protocol")
    wrong = _CLASSIC_ONLY if protocol == "consumer" else _CONSUMER_ONLY
    for name in wrong:
        if name in values.given:
            raise ConfigError(f"{values.spelled(name)} cannot be set with group.protocol={protocol}")
    group = GroupConfig(
        group_id=values.optional("group.id"),
        group_protocol=protocol,
        group_instance_id=values.optional("group.instance.id"),
        group_remote_assignor=values.optional("group.remote.assignor"),
        partition_assignment_strategy=_assignors(values),
        session_timeout=values.seconds("session.timeout.ms"),
        heartbeat_interval=values.seconds("heartbeat.interval.ms"),
        max_poll_interval=values.seconds("max.poll.interval.ms"),
        enable_auto_commit=values.flag("enable.auto.commit"),
        auto_commit_interval=values.seconds("auto.commit.interval.ms"),
    )
    if protocol == "classic" and group.heartbeat_interval >= group.session_timeout:
        raise ConfigError(
            f"{values.spelled('heartbeat.interval.ms')} must be below {values.spelled('session.timeout.ms')}"
        )
    if group.group_instance_id is not None and group.group_id is None:
        raise ConfigError(f"{values.spelled('group.instance.id')} is given without group.id")
    return group


def _assignors(values: Values) -> tuple[str, ...]:
    key = values.spelled("partition.assignment.strategy")
    found: list[str] = []
    for name in values.items("partition.assignment.strategy"):
        short = _ASSIGNORS.get(name)
        if short is None:
            raise ConfigError(
                f"{key}: {printable(name, 80)!r} is unknown; write range, roundrobin, sticky or cooperative-sticky"
            )
        if short in found:
            raise ConfigError(f"{key}: {short} is given twice")
        found.append(short)
    if not found:
        raise ConfigError(f"{key} is empty; write range, roundrobin, sticky or cooperative-sticky")
    return tuple(found)
