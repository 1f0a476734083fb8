"""The options of `format("multilane")`, under the names of Spark's own Kafka source.

Thread: none (pure).

Options that start with `kafka.` are properties of the consumer or producer. An unknown option is an error; Spark's own
source ignores it. Options are case-insensitive, as everywhere in Spark.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from multilane.config.app.units import NotAUnit, parse_duration
from multilane.config.consumer import parse_consumer
from multilane.config.producer import parse_producer
from multilane.config.spelling import fold
from multilane.errors import ConfigError
from multilane.logs import logger
from multilane.secret import Secret
from multilane.spark.offset_spec import (
    EARLIEST,
    GROUP,
    LATEST,
    Named,
    OffsetSpec,
    parse_offsets,
    parse_time,
    parse_times,
)
from multilane.types import TopicPartition

log = logger(__name__)

_SOURCE: Final = (
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxTasks",
    "failOnDataLoss",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "commitGroup",
)
# Options of Spark's own source without a use here: reading needs no group, and requests to brokers have Kafka's own
# timeouts. They are accepted, so that existing code only changes the format's name.
_NEEDLESS: Final = ("groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
_SINK: Final = ("topic", "includeHeaders")  # a headers column is always written, as in Spark's own sink
_ENDS: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
# The pacing of a stream. A batch read ignores these options, as in Spark's own source.
_PACING: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
# Options that Spark itself adds to those of a stream.
_SPARKS_OWN: Final = frozenset({"checkpointlocation", "path", "queryname", "retries", "outputmode"})
# The source decides these itself: the consumer must neither commit nor reset positions.
_OURS: Final = ("enable.auto.commit", "auto.offset.reset")
# Spark shows a stream's options in its plans; it masks only names that look secret to it, and not these.
_SHOWN_SECRETS: Final = frozenset({"ssl.keystore.key", "ssl.key.pem", "ssl.key.store.key"})
_POLL_SECONDS: Final = 120.0
_TRIGGER_DELAY: Final = "15m"


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """Exactly one of three selections: topic names, a pattern, or partitions."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    def __str__(self) -> str:
        if self.pattern is not None:
            return f"topics like {self.pattern!r}"
        return ", ".join(map(str, self.assigned or self.names))

    def has(self, partition: TopicPartition) -> bool:
        """Whether the partition is selected, provided that it exists."""
        if self.assigned:
            return partition in self.assigned
        if self.pattern is not None:
            return re.fullmatch(self.pattern, partition.topic) is not None
        return partition.topic in self.names


@dataclass(frozen=True, slots=True)
class SourceOptions:
    topics: TopicSelection
    properties: Mapping[str, str] = field(repr=False)  # of the consumers; may contain secrets
    starting: OffsetSpec
    ending: OffsetSpec
    max_offsets: int | None = None
    min_offsets: int | None = None
    trigger_delay: float = 0.0  # seconds after which fewer than min_offsets suffice
    min_partitions: int | None = None
    max_records: int | None = None  # of one partition, per task
    max_tasks: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    poll_seconds: float = _POLL_SECONDS
    commit_group: str | None = None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    properties: Mapping[str, str] = field(repr=False)
    topic: str | None = None


def source_options(options: Mapping[str, str], *, is_stream: bool) -> SourceOptions:
    refuse_shown_secrets(options)
    given, properties = _separated(options, (*_SOURCE, *_NEEDLESS))
    _check_kind(given, is_stream=is_stream)
    for name in _OURS:
        if name in properties:
            raise ConfigError(f"kafka.{name}: the source sets this itself; see startingOffsets and commitGroup")
    starting = _start(given, Named(LATEST if is_stream else EARLIEST))
    if starting == Named(GROUP) and "group.id" not in properties:
        raise ConfigError("startingOffsets=group: name the group with kafka.group.id")
    parse_consumer(properties)  # raises here rather than in a worker
    return SourceOptions(
        _topics(given),
        properties,
        starting,
        _end(given),
        max_offsets=_count(given, "maxOffsetsPerTrigger"),
        min_offsets=_count(given, "minOffsetsPerTrigger"),
        trigger_delay=_seconds(given, "maxTriggerDelay", _TRIGGER_DELAY),
        min_partitions=_count(given, "minPartitions"),
        max_records=_count(given, "maxRecordsPerPartition"),
        max_tasks=_count(given, "maxTasks"),
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        include_headers=_flag(given, "includeHeaders", default=False),
        poll_seconds=(_count(given, "kafkaConsumer.pollTimeoutMs") or _POLL_SECONDS * 1000) / 1000,
        commit_group=given.get("commitGroup"),
    )


def _check_kind(given: dict[str, str], *, is_stream: bool) -> None:
    """Streams have no end; only streams have pacing and a position to commit."""
    for name in _ENDS if is_stream else ("commitGroup",):
        if name in given:
            raise ConfigError(f"{name} is for {'batch reads; a stream has no end' if is_stream else 'streams'}")
    for name in () if is_stream else _PACING:
        if given.pop(name, None) is not None:
            log.warning("%s is ignored: it applies to streams, and this is a batch read", name)


def sink_options(options: Mapping[str, str]) -> SinkOptions:
    refuse_shown_secrets(options)
    given, properties = _separated(options, _SINK)
    parse_producer(properties)
    return SinkOptions(properties, given.get("topic"))


def refuse_shown_secrets(options: Mapping[str, str]) -> None:
    for key in options:
        if fold(key) in _SHOWN_SECRETS:  # in any spelling that the client accepts
            raise ConfigError(
                f"{key}: Spark would show the private key in its plans; put it into a file, and name that in "
                "kafka.ssl.keystore.location"
            )


def includes_headers(options: Mapping[str, str]) -> bool:
    """The only option that the source's schema depends on."""
    return _flag(_separated(options, (*_SOURCE, *_NEEDLESS, *_SINK))[0], "includeHeaders", default=False)


def _separated(options: Mapping[str, str], known: tuple[str, ...]) -> tuple[dict[str, str], dict[str, str]]:
    """(our options by name, Kafka's properties)."""
    by_lower = {name.lower(): name for name in known}
    given: dict[str, str] = {}
    properties: dict[str, str] = {}
    for key, value in options.items():
        lower = key.lower()
        if lower.startswith("kafka."):
            _add(properties, key, value)
        elif lower in by_lower:
            given[by_lower[lower]] = value
        elif lower not in _SPARKS_OWN:
            near = difflib.get_close_matches(lower, [*by_lower, f"kafka.{lower}"], n=1)
            hint = f"; did you mean {by_lower.get(near[0], near[0])}?" if near else ""
            raise ConfigError(f"unknown option {key!r}{hint}")
    if not options:
        raise ConfigError(
            "no options: Spark did not pass the table's options to this data source. To read the table, create it "
            "without a column list; to write, use multilane.spark.write(df, ...)"
        )
    if "bootstrap.servers" not in properties:
        raise ConfigError("kafka.bootstrap.servers is missing: give the brokers' addresses, as in localhost:9092")
    return given, properties


def _add(properties: dict[str, str], key: str, value: str) -> None:
    """Adds a property by Kafka's own spelling, which the checks look for; the client takes every spelling."""
    name = fold(key)
    if properties.setdefault(name, value) != value:
        raise ConfigError(f"{key}: kafka.{name} is given twice, with different values; give one")


def as_option(name: str, value: object) -> str:
    """A client property as text, the form in which Spark takes options."""
    if callable(value):
        raise ConfigError(f"{name}: a function cannot be sent to Spark's workers; use another way to authenticate")
    if isinstance(value, Secret):
        return value.reveal()
    if isinstance(value, (list, tuple)):
        return ",".join(as_option(name, item) for item in value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _topics(given: Mapping[str, str]) -> TopicSelection:
    ways = [name for name in ("subscribe", "subscribePattern", "assign") if name in given]
    if len(ways) != 1:
        given_ways = " and ".join(ways) or "none"
        raise ConfigError(f"set exactly one of subscribe, subscribePattern and assign; given: {given_ways}")
    text = given[ways[0]]
    if ways[0] == "subscribe":
        names = tuple(name.strip() for name in text.split(",") if name.strip())
        if not names:
            raise ConfigError(f"subscribe={text!r}: give topic names, separated by commas")
        return TopicSelection(names=names)
    if ways[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(f"subscribePattern={text!r} is not a regular expression: {error}") from None
        return TopicSelection(pattern=text)
    return TopicSelection(assigned=_assigned(text))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    try:
        tree: dict[str, Any] = json.loads(text)
        found = tuple(TopicPartition(topic, int(n)) for topic, numbers in tree.items() for n in numbers)
    except (ValueError, TypeError, AttributeError):
        found = ()
    if not found or any(partition.partition < 0 for partition in found):
        raise ConfigError(f'assign={text!r}: give JSON such as {{"orders": [0, 1]}}')
    return found


def _start(given: Mapping[str, str], default: OffsetSpec) -> OffsetSpec:
    """The most specific option wins, in Spark's order: a time, times for each partition, offsets."""
    strategy = given.get("startingOffsetsByTimestampStrategy", "error").lower()
    if strategy not in {"error", "latest"}:
        raise ConfigError(f"startingOffsetsByTimestampStrategy={strategy!r}: give error or latest")
    is_strict = strategy == "error"
    if "startingTimestamp" in given:
        return parse_time("startingTimestamp", given["startingTimestamp"], is_strict=is_strict)
    if "startingOffsetsByTimestamp" in given:
        return parse_times("startingOffsetsByTimestamp", given["startingOffsetsByTimestamp"], is_strict=is_strict)
    if "startingOffsets" in given:
        return parse_offsets("startingOffsets", given["startingOffsets"], (EARLIEST, LATEST, GROUP))
    return default


def _end(given: Mapping[str, str]) -> OffsetSpec:
    if "endingTimestamp" in given:
        return parse_time("endingTimestamp", given["endingTimestamp"], is_strict=False)
    if "endingOffsetsByTimestamp" in given:
        return parse_times("endingOffsetsByTimestamp", given["endingOffsetsByTimestamp"], is_strict=False)
    if "endingOffsets" in given:
        return parse_offsets("endingOffsets", given["endingOffsets"], (LATEST,))
    return Named(LATEST)


def _count(given: Mapping[str, str], name: str) -> int | None:
    if name not in given:
        return None
    try:
        count = int(given[name])
    except ValueError:
        count = 0
    if count < 1:
        raise ConfigError(f"{name}={given[name]!r}: give a whole number above 0")
    return count


def _seconds(given: Mapping[str, str], name: str, default: str) -> float:
    try:
        return parse_duration(given.get(name, default).strip())
    except NotAUnit as error:
        raise ConfigError(f"{name}={given[name]!r}: {error}") from None


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = given.get(name, str(default)).strip().lower()
    if text not in {"true", "false"}:
        raise ConfigError(f"{name}={given[name]!r}: give true or false")
    return text == "true"
