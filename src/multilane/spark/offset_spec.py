"""Where reading starts and ends, as Spark's options spell it.

Thread: none (pure).

An offset spec is a word (`earliest`, `latest`, `group`), an offset for each partition, or a time. In JSON -2 means
earliest and -1 latest, with partitions nested under topics: `{"orders": {"0": 23, "1": -2}}`. Checkpoints and a query's
progress use the same form, with the topic's id beside its partitions; checkpoints also have leader epochs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from multilane.errors import ConfigError
from multilane.types import Offset, TopicPartition

EARLIEST: Final = "earliest"
LATEST: Final = "latest"
GROUP: Final = "group"
_WORDS: Final[Mapping[int, str]] = {-2: EARLIEST, -1: LATEST}
_ID: Final = "id"
_EPOCHS: Final = "epochs"

TopicOffsets = dict[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Named:
    """The same word for every partition."""

    word: str


@dataclass(frozen=True, slots=True)
class Exact:
    """An offset or a word for each partition."""

    offsets: Mapping[TopicPartition, int | str]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The first record at or after a time (ms since 1970): one for all, or one for each partition."""

    times: int | Mapping[TopicPartition, int]
    is_strict: bool = True  # without such a record: an error, else the end of the log


OffsetSpec = Named | Exact | AtTime


def parse_offsets(option: str, text: str, words: tuple[str, ...]) -> OffsetSpec:
    """`startingOffsets` or `endingOffsets`."""
    word = text.strip().lower()
    if word in words:
        return Named(word)
    if not word.startswith("{"):
        raise ConfigError(f'{option}={text!r}: give {", ".join(words)}, or JSON such as {{"orders": {{"0": 23}}}}')
    offsets = {p: _WORDS.get(offset, offset) for p, offset in _of_partitions(option, text).items()}
    for partition, offset in offsets.items():
        if isinstance(offset, int) and offset < 0:
            raise ConfigError(f"{option}: {offset} is not an offset of {partition}; -2 is earliest, -1 latest")
        if isinstance(offset, str) and offset not in words:
            raise ConfigError(f"{option}: {partition} cannot be {offset}; that is for the other end")
    return Exact(offsets)


def parse_times(option: str, text: str, *, is_strict: bool) -> AtTime:
    """`...OffsetsByTimestamp`."""
    times = _of_partitions(option, text)
    for partition, time in times.items():
        _check_time(option, time, str(partition))
    return AtTime(times, is_strict)


def parse_time(option: str, text: str, *, is_strict: bool) -> AtTime:
    """`startingTimestamp` or `endingTimestamp`."""
    try:
        time = int(text)
    except ValueError:
        raise ConfigError(f"{option}={text!r}: give milliseconds since 1970") from None
    _check_time(option, time, "it")
    return AtTime(time, is_strict)


def _check_time(option: str, time: int, subject: str) -> None:
    if time < 0:
        raise ConfigError(f"{option}: the time of {subject} is {time}; give milliseconds since 1970")


def _of_partitions(option: str, text: str) -> dict[TopicPartition, int]:
    try:
        return {p: _whole(number) for p, number in _pairs(json.loads(text))}
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(
            f'{option}={text!r}: give JSON with a whole number for each partition, as in {{"orders": {{"0": 23}}}}'
        ) from None


def _pairs(tree: Any) -> list[tuple[TopicPartition, Any]]:
    return [(TopicPartition(topic, int(n)), value) for topic, below in tree.items() for n, value in below.items()]


def _whole(number: Any) -> int:
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(number)
    return number


# --- offsets as Spark keeps them -------------------------------------------------------------------------------------


Tree = Mapping[str, Mapping[str, Any]]


def to_json(
    offsets: Mapping[TopicPartition, int],
    ids: Mapping[str, str] = MappingProxyType({}),
    epochs: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """Offsets as a JSON tree. Known topic ids are included because a recreated topic has the same name, leader epochs
    because a truncated log may reach the same offsets again."""
    tree: dict[str, dict[str, Any]] = {}
    for partition, offset in sorted(offsets.items()):
        tree.setdefault(partition.topic, {})[str(partition.partition)] = int(offset)
    for topic in tree.keys() & ids.keys():
        tree[topic][_ID] = ids[topic]
    for partition, epoch in sorted(epochs.items()):
        tree[partition.topic].setdefault(_EPOCHS, {})[str(partition.partition)] = epoch
    return tree


def from_json(tree: Tree) -> dict[TopicPartition, Offset]:
    try:
        extra = {_ID, _EPOCHS}
        bare = {topic: {n: offset for n, offset in below.items() if n not in extra} for topic, below in tree.items()}
        return {partition: Offset(_whole(offset)) for partition, offset in _pairs(bare)}
    except (ValueError, TypeError, AttributeError):
        raise ConfigError(f"the checkpoint has {tree!r} for offsets: it is not one of this source") from None


def ids_in(tree: Tree) -> dict[str, str]:
    return {topic: str(below[_ID]) for topic, below in tree.items() if _ID in below}


def epochs_in(tree: Tree) -> dict[TopicPartition, int]:
    """Empty for checkpoints of older versions, which recorded no epochs."""
    return {TopicPartition(t, int(n)): int(e) for t, below in tree.items() for n, e in below.get(_EPOCHS, {}).items()}
