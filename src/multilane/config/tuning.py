"""Advice about a group's settings: rules with their reason and what to do, each told when its facts are known.

Thread: none (pure).

Nothing is refused here: a setting may be meant. What cannot work is refused by `config`.
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
        return f"{self.found}. The rule: {self.rule}. {self.fix}"


@dataclass(frozen=True, slots=True)
class SessionLimits:
    """What the broker allows, in seconds."""

    smallest: float
    largest: float


def of_settings(config: GroupConfig) -> tuple[Advice, ...]:
    """What can be said before anyone is asked. Heartbeats and sessions of KIP-848 groups are the broker's."""
    if config.group_protocol != "classic":
        return ()
    if config.heartbeat_interval * _HEARTBEATS_IN_A_SESSION <= config.session_timeout + 1e-9:
        return ()
    third = int(config.session_timeout * 1000 / _HEARTBEATS_IN_A_SESSION)
    return (
        Advice(
            "heartbeat.interval.ms is at most a third of session.timeout.ms, so that two may be lost",
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
            "session.timeout.ms lies within the broker's group.min.session.timeout.ms and group.max.session.timeout.ms",
            f"session.timeout.ms is {_ms(config.session_timeout)}, the broker allows {_ms(limits.smallest)} to "
            f"{_ms(limits.largest)}",
            "Set session.timeout.ms to what the broker allows, or change its limits; until then it refuses this member",
        ),
    )


def of_handling(config: GroupConfig, seconds: float) -> tuple[Advice, ...]:
    """`seconds` is how long the application was away between two polls."""
    if seconds <= config.max_poll_interval * _SHARE_OF_THE_POLL_INTERVAL:
        return ()
    return (
        Advice(
            "what one poll hands out is done with in half of max.poll.interval.ms, so that a slow day is survived",
            f"the application took {seconds:.1f} s between two polls, max.poll.interval.ms is "
            f"{_ms(config.max_poll_interval)}",
            "Lower max.poll.records, do the work elsewhere and pause() meanwhile, or raise max.poll.interval.ms",
        ),
    )


def of_assignment(assigned: int, partitions: int) -> tuple[Advice, ...]:
    """`partitions` are those of all topics subscribed to, as far as known; 0 when nothing is known of them."""
    if assigned or not partitions:
        return ()
    return (
        Advice(
            "a group has no more members than partitions",
            f"this member was assigned nothing of {partitions} partitions: others have them all",
            "Run fewer members, or give the topics more partitions; this one stays as a spare",
        ),
    )


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
