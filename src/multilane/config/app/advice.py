"""Advice on settings that work but surprise, each with its rule, the setting found and the remedy.

Thread: none (pure).

Refuses nothing: `rules` reports what cannot work. The rules about heartbeats and sessions are the client's own
(`config.tuning`), applied before anything connects. Owns the list of traps.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from multilane.config.app.clients import consumer_properties
from multilane.config.app.cluster import ClusterConfig, ErrorConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.files.source_location import joined
from multilane.config.app.kafka_names import canonical
from multilane.config.app.model import AppConfig, ShovelConfig
from multilane.config.app.shape import key_of
from multilane.config.app.sharing import shares, with_clusters
from multilane.config.app.units import format_duration
from multilane.config.consumer import parse_consumer
from multilane.config.properties import UsedBy
from multilane.config.tuning import Advice, SessionLimits, of_session, of_settings
from multilane.errors import ConfigError

OLDEST_BROKER: Final = (2, 7)
BROKER_SESSIONS: Final = SessionLimits(6.0, 1800.0)  # the default limits of brokers
BYTESUM_LANES: Final = 20  # the byte sums of numeric ids reach at most this many lanes at a time
_SHARED: Final = {
    "retry": "each group also handles what failed in the others",
    "error": "none of them can be paused, replayed or counted alone",
}
_CONSUMER: Final = frozenset({UsedBy.CONSUMER})
_HOUR_STEP: Final = re.compile(r"\d+ \*/(\d+) \* \* \*")


def advice(config: AppConfig) -> tuple[Advice, ...]:
    """All advice about a configuration, clusters first."""
    found: list[Advice] = []
    for cluster in config.clusters.values():
        found += _of_cluster(config, cluster)
    for consumer in config.consumers.values():
        for rule in _CONSUMER_RULES:
            found += rule(consumer)
        found += _of_idle_keys(config, consumer)
        found += _of_error_topic(config, consumer)
        found += _of_group(config, consumer)
    for shovel in config.shovels.values():
        found += _of_cron(joined("errorConsumers", shovel.name, "cron"), shovel)
    for path, reader in _error_readers(config):
        found += _of_idle_error_keys(path, reader)
    return (*found, *_of_shared_topics(config), *_of_shared_groups(config), *_of_two_readers(config))


def _of_cluster(config: AppConfig, cluster: ClusterConfig) -> Iterator[Advice]:
    path = joined("clusters", cluster.name)
    numbers = re.match(r"(\d{1,4})\.(\d{1,4})", cluster.version or "")
    if numbers is not None and (int(numbers[1]), int(numbers[2])) < OLDEST_BROKER:
        yield Advice(
            "brokers run Kafka 2.7 or newer; the client asks the broker for its version and ignores this key",
            f"{path}.version is {cluster.version}",
            "If that is still true, upgrade the brokers; otherwise remove the key: nothing depends on it",
        )
    if cluster.error is not None:
        yield from _of_cron(f"{path}.errorConfig.cron", cluster.error)
    writes = any(producer.cluster.casefold() == cluster.name.casefold() for producer in config.producers.values())
    if writes and cluster.producer.required_acks != "all":
        yield Advice(
            "a record that only the leader has is lost when the leader fails",
            f"{path}.producerConfig.requiredAcks is {cluster.producer.required_acks} for the application's own topics "
            "(retry and error topics always use all)",
            "Set requiredAcks to WaitForAll, unless losing some records is acceptable",
        )


def _of_cron(path: str, config: ErrorConfig | ShovelConfig) -> Iterator[Advice]:
    step = _HOUR_STEP.fullmatch(" ".join(config.cron.split()[-5:]))
    if step is not None:
        yield Advice(
            "the second field of cron is hours",
            f"{path} `{config.cron}` starts every {step[1]} hours, not minutes",
            f"Write `*/{step[1]} * * * *` or `@every {step[1]}m` if minutes are meant",
        )


def _of_retry_count(consumer: ConsumerGroupConfig) -> Iterator[Advice]:
    if consumer.retry is not None and "retry_count" not in consumer.model_fields_set:
        yield Advice(
            "with a retry topic, a record is retried at least once: retryCount 0 means 1",
            f"{joined('consumers', consumer.name)} has a retry topic, but retryCount is 0 or not set",
            "Set retryCount; to send failed records straight to the error topic, remove `retry`",
        )


def _of_idle_keys(config: AppConfig, consumer: ConsumerGroupConfig) -> Iterator[Advice]:
    """Keys that are set and change nothing."""
    shared = canonical(config.cluster(consumer.cluster).properties, _CONSUMER)
    protocol = {**shared, **canonical(consumer.properties, _CONSUMER)}.get("group.protocol")
    classic = "classic" in (consumer.group_protocol, str(protocol).lower())
    idle = {
        "retry_backoff": (
            consumer.retry is None and (consumer.error is not None or consumer.on_failure == "drop"),
            "there is no retry topic",
        ),
        "on_failure": (consumer.error is not None, "failed records go to the error topic"),
        "retry_order": (consumer.retry is None, "there is no retry topic"),
        "batch_latency": (consumer.batch_size < 2, "there are no batches"),
        "waiting_per_lane": (not consumer.lanes, "there are no lanes"),
        "lane_hash": (not consumer.lanes, "there are no lanes"),
        "session_timeout": (not classic, "groupProtocol is not classic; for KIP-848 groups the broker sets it"),
        "heartbeat_interval": (not classic, "groupProtocol is not classic; for KIP-848 groups the broker sets it"),
        "batch_size": (consumer.batch_size == 1, "a batch of 1 is a single record"),
    }
    yield from _idle(joined("consumers", consumer.name), consumer, idle)


def _idle(
    path: str, written: ConsumerGroupConfig | ErrorConfig | ShovelConfig, idle: Mapping[str, tuple[bool, str]]
) -> Iterator[Advice]:
    """`idle` has, for each field, whether it has no effect here, and why."""
    for field, (without_effect, why) in idle.items():
        if without_effect and field in written.model_fields_set:
            key = key_of(field, type(written).model_fields[field])
            yield Advice(
                "a key without effect is misleading",
                f"{path}.{key} has no effect: {why}",
                "Remove it, or set what it needs",
            )


def _of_nowhere_to_go(consumer: ConsumerGroupConfig) -> Iterator[Advice]:
    if consumer.error is not None:
        return
    path = joined("consumers", consumer.name)
    fix = "Configure an `error` topic, or register a last step in the app"
    if consumer.on_failure == "drop":
        yield Advice(
            "a failed record needs a destination",
            f"{path} has no error topic and onFailure is drop: without a last step in the app, a record that fails "
            f"{_times(consumer)} is logged and dropped",
            fix,
        )
        return
    yield Advice(
        "a failed record needs a destination",
        f"{path} has no error topic: without a last step in the app, a record that fails {_times(consumer)} is "
        "retried in place until it succeeds; its key waits, and its partition is not committed past it",
        f"{fix}; set onFailure: drop to drop such records",
    )


def _times(consumer: ConsumerGroupConfig) -> str:
    return "once" if consumer.retry is None else f"{1 + max(1, consumer.retry_count)} times"


def _of_bytesum(consumer: ConsumerGroupConfig) -> Iterator[Advice]:
    if consumer.lane_hash == "bytesum" and consumer.lanes > BYTESUM_LANES:
        yield Advice(
            "the byte sums of numeric ids are close together",
            f"{joined('consumers', consumer.name)} has {consumer.lanes} lanes with laneHash bytesum; with numeric ids "
            f"only about {BYTESUM_LANES} of them are busy at a time",
            "Remove laneHash, or set it to murmur2; keep bytesum only if the lane of a key must not change",
        )


def _of_times(consumer: ConsumerGroupConfig) -> Iterator[Advice]:
    path = joined("consumers", consumer.name)
    if consumer.max_processing_time >= consumer.rebalance_timeout:
        yield Advice(
            "records in flight finish before partitions must be revoked",
            f"{path}.maxProcessingTime is {format_duration(consumer.max_processing_time)}, rebalanceTimeout "
            f"{format_duration(consumer.rebalance_timeout)}",
            "Raise rebalanceTimeout above maxProcessingTime; otherwise a rebalance abandons calls that are running",
        )
    calls = consumer.waiting_per_lane / max(1, consumer.batch_size)
    worst = consumer.max_processing_time * calls
    given = {"waiting_per_lane", "max_processing_time"} & consumer.model_fields_set
    if consumer.lanes and given and worst > 2 * consumer.rebalance_timeout:
        yield Advice(
            "the waiting records of one key hold back commits, and are redelivered after a crash",
            f"{path}: {consumer.waiting_per_lane} waiting records at up to "
            f"{format_duration(consumer.max_processing_time)} each are {format_duration(round(worst, 3))} for one key",
            "Lower virtualPartitionChanCount or maxProcessingTime, unless calls finish far sooner",
        )


def _of_error_topic(config: AppConfig, consumer: ConsumerGroupConfig) -> Iterator[Advice]:
    cluster = config.cluster(consumer.cluster)
    shoveled = any(
        consumer.error in shovel.topics and shovel.cluster.casefold() == consumer.cluster.casefold()
        for shovel in config.shovels.values()
    )
    if consumer.error is None or shoveled or (cluster.error is not None and not consumer.error_consumer_disabled):
        return
    why = "disableErrorConsumer is true" if cluster.error is not None else "its cluster has no errorConfig"
    yield Advice(
        "an error topic needs a reader",
        f"{joined('consumers', consumer.name)}: no consumer reads {consumer.error}, because {why}",
        "Add errorConfig to the cluster or an entry to errorConsumers, or handle the topic by hand",
    )


def _of_group(config: AppConfig, consumer: ConsumerGroupConfig) -> Iterator[Advice]:
    """The advice that the client would give at run time, given now."""
    cluster = config.cluster(consumer.cluster)
    try:
        group = parse_consumer(consumer_properties(consumer, cluster)).group
    except ConfigError:  # certificates that are not on this machine, or a token function that only code can pass
        return
    if group.group_protocol != "classic":
        return
    path = joined("consumers", consumer.name)
    for hint in (*of_settings(group), *of_session(group, BROKER_SESSIONS)):
        yield Advice(hint.rule, f"{path}: {hint.found}", hint.fix)
    if group.group_instance_id is None:
        yield Advice(
            "a static member restarts without a rebalance",
            f"{path} is in a classic group without group.instance.id",
            "Set it under `properties` to a name unique to each process, such as ${HOSTNAME}-${MULTILANE_MEMBER}; "
            "or use groupProtocol: consumer",
        )


def _of_shared_topics(config: AppConfig) -> Iterator[Advice]:
    users: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for consumer in config.consumers.values():
        for kind, topic in (("retry", consumer.retry), ("error", consumer.error)):
            if topic is not None:
                users[consumer.cluster.casefold(), kind, topic].append(consumer.name)
    for (_, kind, topic), names in users.items():
        if len(names) > 1:
            yield Advice(
                f"each consumer needs its own {kind} topic",
                f"{', '.join(names)} share the {kind} topic {topic}: {_SHARED[kind]}",
                f"Give each its own {kind} topic",
            )


def _of_shared_groups(config: AppConfig) -> Iterator[Advice]:
    users: dict[tuple[str, str], list[str]] = defaultdict(list)
    sharing: set[tuple[str, str]] = set()  # groups with consumers that share: those count as one
    for consumer, cluster in with_clusters(config.consumers.values(), config.clusters):
        key = consumer.cluster.casefold(), consumer.group_id
        if shares(consumer, cluster):
            if key in sharing:
                continue
            sharing.add(key)
        users[consumer.cluster.casefold(), consumer.group_id].append(joined("consumers", consumer.name))
    for shovel in config.shovels.values():
        users[shovel.cluster.casefold(), shovel.group_id].append(joined("errorConsumers", shovel.name))
    for cluster in config.clusters.values():
        if cluster.error is not None:
            users[cluster.name.casefold(), cluster.error.group_id].append(
                joined("clusters", cluster.name, "errorConfig")
            )
    for (_, group), names in users.items():
        if len(names) > 1:
            yield Advice(
                "all members of a group subscribe to the same topics",
                f"{', '.join(names)} share the group {group}: each of them triggers rebalances for all",
                "Give each its own groupId",
            )


# --- readers of error topics -----------------------------------------------------------------------------------------


def _error_readers(config: AppConfig) -> Iterator[tuple[str, ErrorConfig | ShovelConfig]]:
    for cluster in config.clusters.values():
        if cluster.error is not None:
            yield joined("clusters", cluster.name, "errorConfig"), cluster.error
    for shovel in config.shovels.values():
        yield joined("errorConsumers", shovel.name), shovel


def _of_idle_error_keys(path: str, reader: ErrorConfig | ShovelConfig) -> Iterator[Advice]:
    on_broker = "for KIP-848 groups the broker sets it"
    classic = str(canonical(reader.properties, _CONSUMER).get("group.protocol", "")).lower() == "classic"
    idle = {
        "session_timeout": (not classic, on_broker),
        "heartbeat_interval": (not classic, on_broker),
        "tracer": (True, "error consumers create no spans"),
    }
    yield from _idle(path, reader, idle)


def _of_two_readers(config: AppConfig) -> Iterator[Advice]:
    """Two readers of one error topic: each replays every record."""
    readers: dict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for consumer in config.consumers.values():
        cluster = config.cluster(consumer.cluster)
        if consumer.error is not None and cluster.error is not None and not consumer.error_consumer_disabled:
            readers[cluster.name.casefold(), consumer.error][joined("clusters", cluster.name, "errorConfig")] = None
    for shovel in config.shovels.values():
        for topic in shovel.topics:
            readers[shovel.cluster.casefold(), topic][joined("errorConsumers", shovel.name)] = None
    for (_, topic), names in readers.items():
        if len(names) > 1:
            yield Advice(
                "an error topic needs exactly one reader",
                f"{' and '.join(names)} both read {topic}: each replays every record, so records are handled twice",
                "Set disableErrorConsumer on the consumer, or remove the topic from one of them",
            )


_CONSUMER_RULES: Final[tuple[Callable[[ConsumerGroupConfig], Iterator[Advice]], ...]] = (
    _of_retry_count,
    _of_nowhere_to_go,
    _of_bytesum,
    _of_times,
)
