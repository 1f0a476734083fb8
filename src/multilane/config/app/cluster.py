"""A cluster: its brokers, login, error consumer, and producer defaults.

Thread: none (pure values).

Owns the keys, defaults and words of the cluster file. Times are seconds, sizes bytes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from multilane.config.app.kafka_names import Properties
from multilane.config.app.kinds import (
    Acks,
    Brokers,
    Cron,
    Hidden,
    Paths,
    Seconds,
    StartOffset,
    Text,
    TopicName,
    Zone,
    choice,
    size,
    whole,
    words,
)  # fmt: skip
from multilane.config.app.registry import SchemaRegistryConfig
from multilane.config.app.shape import ENTRY_NAME, Frozen, setting
from multilane.config.properties import INT_MAX

MEGABYTE = 1 << 20
GroupProtocol = Annotated[
    Literal["consumer", "classic"] | None,
    words({"consumer": "consumer", "classic": "classic", "auto": None}, ("consumer", "classic", "auto")),
]
FetchBytes = Annotated[int, size(1, INT_MAX)]
GROUP_PROTOCOL_DOC = (
    "How the group shares partitions: KIP-848 (consumer), JoinGroup (classic), or what the broker offers."
)
SESSION_DOC = "A member without heartbeats for this long leaves a classic group; for KIP-848 groups the broker sets it."
REBALANCE_DOC = "How long a member may take to give up partitions (max.poll.interval.ms)."
HEARTBEAT_DOC = "How often a member of a classic group sends a heartbeat."
Sharing = Annotated[Literal["off", "same-topic", "cross-topic"], choice("off", "same-topic", "cross-topic")]
FETCH_DOC = "The most bytes of one partition in one fetch (max.partition.fetch.bytes)."
PROPERTIES_DOC = "Kafka's own property names and values."


class Auth(Frozen):
    """SASL_SSL with SCRAM-SHA-512. Set anything else with `properties`."""

    username: Text = setting("The user name.")
    password: Hidden = setting("The password; write ${NAME} and keep it in the environment.")
    certificates: Paths = setting("PEM files of authorities to trust; without any, the machine's.", ())


class ProducerDefaults(Frozen):
    """For topics of the application. Retry and error topics always use acks=all and idempotence."""

    required_acks: Acks = setting(
        "Which replicas must have a record: NoResponse, WaitForLocal, WaitForAll (0, 1, all).", "1"
    )
    timeout: Seconds = setting("How long a request may wait for its response (request.timeout.ms).", 10.0)
    max_message_bytes: Annotated[int, size(1_000, 1_000_000_000)] = setting(
        "The largest record (max.request.size).", MEGABYTE
    )
    compression: Annotated[str, choice("none", "gzip", "snappy", "lz4", "zstd")] = setting(
        "The compression of batches.", "none"
    )


class ErrorReading(Frozen):
    """The settings that all scheduled consumers of error topics share."""

    spellings: ClassVar = {"group.protocol": "group_protocol"}

    cron: Cron = setting("When it starts: five cron fields, `@every 10m` or `@daily`, optionally after CRON_TZ=.")
    time_zone: Zone | None = setting("The time zone of `cron`; without it, the machine's.", None)
    max_processing_time: Seconds = setting("How long one record may take.", 30.0)
    offset_initial: StartOffset = setting("Where a group without committed offsets starts: newest or oldest.", "oldest")
    tracer: Text | None = setting("Accepted without effect: error consumers create no spans.", None)
    fetch_max_bytes: FetchBytes = setting(FETCH_DOC, MEGABYTE)
    session_timeout: Seconds = setting(SESSION_DOC, 10.0)
    rebalance_timeout: Seconds = setting(REBALANCE_DOC, 60.0)
    heartbeat_interval: Seconds = setting(HEARTBEAT_DOC, 3.0)
    group_protocol: GroupProtocol = setting(GROUP_PROTOCOL_DOC, None)
    dead: TopicName | None = setting(
        "The topic for records that cannot be replayed: those beyond maxErrorCount if the app has no last step, and "
        "those without a known target.",
        None,
    )
    properties: Properties = setting(PROPERTIES_DOC, derived=lambda _: {})


class ErrorConfig(ErrorReading):
    """The scheduled consumer of all error topics of a cluster."""

    group_id: Text = setting("The group that reads the error topics.")
    max_error_count: Annotated[int, whole(0)] = setting("How often a record may come back from the error topic.", 1)
    close_when_no_message: Seconds = setting(
        "A partition is done after this long without a record.", 300.0, key="closeConsumerWhenThereIsNoMessage"
    )
    close_when_message_is_new: Seconds = setting(
        "A record younger than this ends the run of its partition: it failed only recently.", 300.0,
        key="closeConsumerWhenMessageIsNew",
    )  # fmt: skip


class ClusterConfig(Frozen):
    """`brokers` always have ports; the default is 9092."""

    name: str = setting("The name of the cluster.", key=ENTRY_NAME)
    client_id: Text = setting("The name that brokers use in their logs and quotas (client.id).")
    brokers: Brokers = setting(
        "host:port of one or more brokers, as a list or separated by commas; the default port is 9092."
    )
    version: Text | None = setting("The brokers' version. Only used for advice when it is old.", None)
    auth: Auth | None = setting("User name and password: SASL_SSL with SCRAM-SHA-512.", None)
    error: ErrorConfig | None = setting(
        "The scheduled consumer of error topics; without it, there is none.", None, key="errorConfig"
    )
    producer: ProducerDefaults = setting(
        "Producer settings for the application's own topics.", derived=lambda _: ProducerDefaults(),
        key="producerConfig",
    )  # fmt: skip
    schema_registry: SchemaRegistryConfig | None = setting(
        "The schema registry that payloads of this cluster's topics were written with.", None
    )
    sharing: Sharing | None = setting(
        "The default of `sharing` for this cluster's consumers.",
        None,
    )
    properties: Properties = setting(
        PROPERTIES_DOC + " For all clients of this cluster that the property applies to.",
        derived=lambda _: {},
    )
