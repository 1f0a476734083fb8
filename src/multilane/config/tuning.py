"""Advice about a group's settings: rules with their reason and remedy, each applied once its facts are known.

Thread: none (pure).

Refuses nothing, because a setting may be intentional. `config` refuses what cannot work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from multilane.config.group import GroupConfig

_HEARTBEATS_IN_A_SESSION: Final = 3
_SHARE_OF_THE_POLL_INTERVAL: Final = 0.5


@dataclass(frozen=True, slots=True)
class Advice:
    rule: str
    found: str
    fix: str

    def __str__(self) -> str:
        return f"{self.found}. Rule: {self.rule}. {self.fix}"


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """The broker's limits, in seconds."""

    smallest: float
    largest: float


def of_settings(config: GroupConfig) -> tuple[Advice, ...]:
    """Advice that needs no broker. For KIP-848 groups the broker sets heartbeats and sessions."""
    if config.group_protocol != "classic":
        return ()
    if config.heartbeat_interval * _HEARTBEATS_IN_A_SESSION <= config.session_timeout + 1e-9:
        return ()
    third = int(config.session_timeout * 1000 / _HEARTBEATS_IN_A_SESSION)
    return (
        Advice(
            "heartbeat.interval.ms is at most a third of session.timeout.ms, so that two heartbeats may be lost",
            f"heartbeat.interval.ms is {_ms(config.heartbeat_interval)}, "
            f"session.timeout.ms {_ms(config.session_timeout)}",
            f"Set heartbeat.interval.ms to {third} or less, or raise session.timeout.ms",
        ),
    )


def of_session(config: GroupConfig, limits: SessionLimits) -> tuple[Advice, ...]:
    if limits.smallest <= config.session_timeout <= limits.largest:
        return ()
    return (
        Advice(
            "session.timeout.ms is between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms",
            f"session.timeout.ms is {_ms(config.session_timeout)}, the broker allows {_ms(limits.smallest)} to "
            f"{_ms(limits.largest)}",
            "Set session.timeout.ms within these limits, or change them; until then the broker refuses this member",
        ),
    )


def of_handling(config: GroupConfig, seconds: float) -> tuple[Advice, ...]:
    """`seconds` is the time between two polls."""
    if seconds <= config.max_poll_interval * _SHARE_OF_THE_POLL_INTERVAL:
        return ()
    return (
        Advice(
            "the records of one poll are handled within half of max.poll.interval.ms, to leave room for slow days",
            f"the application took {seconds:.1f} s between two polls, max.poll.interval.ms is "
            f"{_ms(config.max_poll_interval)}",
            "Lower max.poll.records, pause() and do the work elsewhere, or raise max.poll.interval.ms",
        ),
    )


def of_assignment(assigned: int, partitions: int) -> tuple[Advice, ...]:
    """`partitions` counts the known partitions of all subscribed topics; 0 if none is known."""
    if assigned or not partitions:
        return ()
    return (
        Advice(
            "a group has no more members than partitions",
            f"this member was assigned none of {partitions} partitions: other members have them all",
            "Run fewer members, or add partitions to the topics; this member stays as a spare",
        ),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
