"""A cluster: its brokers, how we log in, its error consumer, and what producers do there unless told otherwise.

Thread: none (pure values).

The keys, defaults and words of the cluster file. Times are seconds, sizes bytes.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from multilane.config.app.kafka_names import Properties
from multilane.config.app.kinds import (
    INT_MAX,
    Acks,
    Brokers,
    Cron,
    Hidden,
    Offsets,
    Paths,
    Seconds,
    Text,
    Topic,
    Zone,
    choice,
    size,
    whole,
    words,
)  # fmt: skip
from multilane.config.app.shape import ENTRY_NAME, Frozen, setting

MEGABYTE = 1 << 20
GroupProtocol = Annotated[
    Literal["consumer", "classic"] | None,
    words({"consumer": "consumer", "classic": "classic", "auto": None}, ("consumer", "classic", "auto")),
]
FetchBytes = Annotated[int, size(1, INT_MAX)]
GROUP_PROTOCOL_DOC = (
    "How the group shares partitions: KIP-848 (consumer), JoinGroup (classic), or as the broker offers."
)
SESSION_DOC = "A member not heard of for this long leaves; of classic groups only, KIP-848 has it on the broker."
REBALANCE_DOC = "How long a member may take to give partitions up (max.poll.interval.ms)."
HEARTBEAT_DOC = "How often a member says that it lives; of classic groups only."
FETCH_DOC = "The most one partition gives in one fetch (max.partition.fetch.bytes)."
PROPERTIES_DOC = "Kafka's own property names and values."


class Auth(Frozen):
    """SASL_SSL with SCRAM-SHA-512. Anything else is said with `properties`."""

    username: Text = setting("The user name.")
    password: Hidden = setting("The password; write ${NAME} and keep it in the environment.")
    certificates: Paths = setting("PEM files of authorities to trust. None: those of the machine.", ())


class ProducerDefaults(Frozen):
    """For topics of the application. Retry and error topics are always written with acks=all and idempotence."""

    required_acks: Acks = setting("Who must have a record: NoResponse, WaitForLocal, WaitForAll (0, 1, all).", "1")
    timeout: Seconds = setting("How long a request may wait for its answer (request.timeout.ms).", 10.0)
    max_message_bytes: Annotated[int, size(1_000, 1_000_000_000)] = setting(
        "The largest record (max.request.size).", MEGABYTE
    )
    compression: Annotated[str, choice("none", "gzip", "snappy", "lz4", "zstd")] = setting(
        "How batches are compressed.", "none"
    )


class ErrorReading(Frozen):
    """What every scheduled consumer of error topics has."""

    spellings: ClassVar = {"group.protocol": "group_protocol"}

    cron: Cron = setting("When it starts: five cron fields, `@every 10m`, `@daily`; CRON_TZ= may stand in front.")
    time_zone: Zone | None = setting("The zone of `cron`; without it the machine's own.", None)
    max_processing_time: Seconds = setting("How long one record may take.", 30.0)
    offset_initial: Offsets = setting("Where a group without a position begins: newest or oldest.", "oldest")
    tracer: Text | None = setting("Accepted and without effect: error consumers make no spans.", None)
    fetch_max_bytes: FetchBytes = setting(FETCH_DOC, MEGABYTE)
    session_timeout: Seconds = setting(SESSION_DOC, 10.0)
    rebalance_timeout: Seconds = setting(REBALANCE_DOC, 60.0)
    heartbeat_interval: Seconds = setting(HEARTBEAT_DOC, 3.0)
    group_protocol: GroupProtocol = setting(GROUP_PROTOCOL_DOC, None)
    dead: Topic | None = setting(
        "Where records go that cannot be given back: beyond maxErrorCount when the app has no last step, or without a "
        "known target.",
        None,
    )
    properties: Properties = setting(PROPERTIES_DOC, derived=lambda _: {})


class ErrorConfig(ErrorReading):
    """The scheduled consumer of all error topics of a cluster."""

    group_id: Text = setting("The group that reads the error topics.")
    max_error_count: Annotated[int, whole(0)] = setting("How often a record may come back from the error topic.", 1)
    close_when_no_message: Seconds = setting(
        "Without a record for this long, a partition is done.", 300.0, key="closeConsumerWhenThereIsNoMessage"
    )
    close_when_message_is_new: Seconds = setting(
        "A record younger than this ends a partition's run: it failed only now.", 300.0,
        key="closeConsumerWhenMessageIsNew",
    )  # fmt: skip


class ClusterConfig(Frozen):
    """`brokers` have their ports; one written without has 9092."""

    name: str = setting("The name of the cluster.", key=ENTRY_NAME)
    client_id: Text = setting("The name brokers see in their logs and quotas (client.id).")
    brokers: Brokers = setting("host:port of some brokers, as a list or a text with commas; the port may be left out.")
    version: Text | None = setting("The brokers' version. Nothing depends on it; an old one is told.", None)
    auth: Auth | None = setting("User name and password: SASL_SSL with SCRAM-SHA-512.", None)
    error: ErrorConfig | None = setting(
        "The scheduled consumer of error topics; without it there is none.", None, key="errorConfig"
    )
    producer: ProducerDefaults = setting(
        "What producers do for the application's own topics.", derived=lambda _: ProducerDefaults(),
        key="producerConfig",
    )  # fmt: skip
    properties: Properties = setting(
        PROPERTIES_DOC + " For all clients of this cluster, or its consumers or producers as the property is theirs.",
        derived=lambda _: {},
    )
