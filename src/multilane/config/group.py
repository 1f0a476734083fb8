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
    """`group_id` None means no group; the other fields then have no meaning."""

    group_id: str | None
    group_protocol: str  # auto: KIP-848 where the broker offers it and no classic members are in the group
    group_instance_id: str | None
    group_remote_assignor: str | None
    partition_assignment_strategy: tuple[str, ...]
    session_timeout: float
    heartbeat_interval: float
    max_poll_interval: float
    enable_auto_commit: bool
    auto_commit_interval: float
    own_assignors: tuple[object, ...] = ()  # the application's, in the order of the strategy


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
STRATEGIES: Final = frozenset(_ASSIGNORS.values())
# Properties that the other protocol leaves to the broker, or does not have.
_ASSIGNORS_KEY: Final = "partition.assignment.strategy"
_CLASSIC_ONLY: Final = ("session.timeout.ms", "heartbeat.interval.ms", _ASSIGNORS_KEY)
_CONSUMER_ONLY: Final = ("group.remote.assignor",)


def parse_group(values: Values) -> GroupConfig:
    """The group's part of the properties."""
    protocol = _protocol(values)
    strategy, own = _assignors(values)
    group = GroupConfig(
        group_id=values.optional("group.id"),
        group_protocol=protocol,
        group_instance_id=values.optional("group.instance.id"),
        group_remote_assignor=values.optional("group.remote.assignor"),
        partition_assignment_strategy=strategy,
        own_assignors=own,
        session_timeout=values.seconds("session.timeout.ms"),
        heartbeat_interval=values.seconds("heartbeat.interval.ms"),
        max_poll_interval=values.seconds("max.poll.interval.ms"),
        enable_auto_commit=values.flag("enable.auto.commit"),
        auto_commit_interval=values.seconds("auto.commit.interval.ms"),
    )
    if group.heartbeat_interval >= group.session_timeout:
        raise ConfigError(
            f"{values.spelled('heartbeat.interval.ms')} must be below {values.spelled('session.timeout.ms')}"
        )
    if group.group_instance_id is not None and group.group_id is None:
        raise ConfigError(f"{values.spelled('group.instance.id')} is given without group.id")
    return group


def _protocol(values: Values) -> str:
    """The requested protocol; with `auto`, the protocol that the other properties belong to."""
    protocol = values.text("group.protocol")
    classic = [name for name in _CLASSIC_ONLY if name in values.given]
    consumer = [name for name in _CONSUMER_ONLY if name in values.given]
    if protocol == "auto":
        if classic == [_ASSIGNORS_KEY] and consumer:
            return "auto"  # there is an assignor for each protocol
        if classic and consumer:
            raise ConfigError(
                f"{values.spelled(classic[0])} belongs to group.protocol=classic and "
                f"{values.spelled(consumer[0])} to group.protocol=consumer; remove one"
            )
        return "classic" if classic else "consumer" if consumer else "auto"
    for name in classic if protocol == "consumer" else consumer:
        raise ConfigError(f"{values.spelled(name)} cannot be set with group.protocol={protocol}")
    return protocol


def _assignors(values: Values) -> tuple[tuple[str, ...], tuple[object, ...]]:
    """Names in the order given, and the assignor objects of the application."""
    key = values.spelled("partition.assignment.strategy")
    found: list[str] = []
    own: list[object] = []
    for item in values.objects("partition.assignment.strategy"):
        name = item if isinstance(item, str) else getattr(item, "name", None)
        short = _ASSIGNORS.get(item) if isinstance(item, str) else name
        if not isinstance(short, str) or not short:
            what = printable(item, 80) if isinstance(item, str) else f"an object of type {type(item).__name__}"
            raise ConfigError(
                f"{key}: {what!r} is unknown; write range, roundrobin, sticky or cooperative-sticky, "
                "or pass your own assignor"
            )
        if short in found:
            raise ConfigError(f"{key}: {short} is given twice")
        found.append(short)
        if not isinstance(item, str):
            own.append(item)
    if not found:
        raise ConfigError(f"{key} is empty; write range, roundrobin, sticky or cooperative-sticky")
    return tuple(found), tuple(own)
