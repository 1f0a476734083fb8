"""The topics that a consumer subscribes to: names, a pattern matched by us, or a pattern matched by the broker.

Thread: none (pure values).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from multilane.errors import printable

_TOPIC: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)


@dataclass(frozen=True, slots=True)
class TopicNames:
    topics: frozenset[str]


NOTHING: Final = TopicNames(frozenset())


@dataclass(frozen=True, slots=True)
class ClientPattern:
    """A Python pattern. It must match the whole name of a topic."""

    pattern: re.Pattern[str]
    without_internal: bool

    def fitting(self, topics: Iterable[str]) -> frozenset[str]:
        return frozenset(t for t in topics if self.pattern.fullmatch(t))


@dataclass(frozen=True, slots=True)
class ServerPattern:
    """A pattern in the broker's language (RE2J), matched by the broker; only for groups under KIP-848."""

    regex: str

    def __post_init__(self) -> None:
        if not self.regex:
            raise ValueError("a ServerPattern needs a regular expression in RE2J's language, such as 'orders-.*'")


WantedTopics: TypeAlias = TopicNames | ClientPattern | ServerPattern


def wanted_from(wanted: Any, *, without_internal: bool) -> WantedTopics:
    """The checked argument of `subscribe`. An empty list gives empty `TopicNames`."""
    if isinstance(wanted, ServerPattern):
        return wanted
    if isinstance(wanted, re.Pattern):
        if not isinstance(wanted.pattern, str):
            raise TypeError("topic names are text: compile the pattern from a str, not from bytes")
        return ClientPattern(wanted, without_internal)
    if isinstance(wanted, (str, bytes)):
        raise TypeError(f"subscribe to a list of topics: [{printable(repr(wanted), 80)}]; or to a compiled pattern")
    try:
        names = frozenset(wanted)
    except TypeError:
        raise TypeError("subscribe to a list of topics, a compiled pattern or a ServerPattern") from None
    for name in names:
        checked_topic(name)
    return TopicNames(names)


def checked_topic(topic: Any) -> str:
    if isinstance(topic, str) and _TOPIC.fullmatch(topic) and topic not in (".", ".."):
        return topic
    shown = printable(repr(topic), 80)
    raise ValueError(f"{shown} is not a topic name: 1 to 249 letters, digits, dots, hyphens or underscores")
