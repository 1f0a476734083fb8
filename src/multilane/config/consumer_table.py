"""The properties of a consumer: fetching, positions, groups.

Thread: none (a constant).

Defaults are Java's except for `auto.offset.reset` (none: a lost position is an error until the user chooses a policy),
`allow.auto.create.topics` (false: reading creates nothing), `max.poll.records` (as many as the application can handle)
and `max.partition.fetch.bytes` (4 MB: few large frames).
"""

from __future__ import annotations

from typing import Final

from multilane.config.properties import INT_MAX, Property, PropertyKind, UsedBy

DEFAULT_STRATEGY: Final = ("range", "cooperative-sticky")

CONSUMER_PROPERTIES: Final[tuple[Property, ...]] = (
    Property(
        name="fetch.min.bytes",
        kind=PropertyKind.BYTES,
        used_by=UsedBy.CONSUMER,
        default=1,
        minimum=0,
        maximum=INT_MAX,
        aliases=("fetch.min.size",),
        doc="The broker waits for this many bytes, or for fetch.max.wait.ms.",
    ),
    Property(
        name="fetch.max.bytes",
        kind=PropertyKind.BYTES,
        used_by=UsedBy.CONSUMER,
        default=52_428_800,
        minimum=0,
        maximum=INT_MAX,
        doc="The maximum size of a Fetch response (a larger first batch is still returned whole).",
    ),
    Property(
        name="fetch.max.wait.ms",
        kind=PropertyKind.MILLIS,
        used_by=UsedBy.CONSUMER,
        default=500,
        minimum=0,
        maximum=INT_MAX,
        aliases=("fetch.wait.max.ms", "fetch.max.wait"),
        doc="How long the broker may wait for fetch.min.bytes.",
    ),
    Property(
        name="fetch.pace.ms",
        kind=PropertyKind.MILLIS,
        used_by=UsedBy.CONSUMER,
        default=0,
        minimum=0,
        maximum=1_000,
        doc="A caught-up connection fetches once per interval, so that low-rate records are fetched in batches.",
    ),
    Property(
        name="max.partition.fetch.bytes",
        kind=PropertyKind.BYTES,
        used_by=UsedBy.CONSUMER,
        default=4_194_304,
        minimum=0,
        maximum=INT_MAX,
        aliases=("fetch.message.max.bytes",),
        doc="The maximum size of one partition in a Fetch response. Java's default is 1 MB.",
    ),
    Property(
        name="fetch.buffer.bytes",
        kind=PropertyKind.BYTES,
        used_by=UsedBy.CONSUMER,
        default=134_217_728,
        minimum=1,
        maximum=2**40,
        scaled_aliases=(("queued.max.messages.kbytes", 1024),),
        doc="Bytes that may wait between the network and poll(); fetching stops while the buffer is full.",
    ),
    Property(
        name="fetch.connections",
        kind=PropertyKind.INTEGER,
        used_by=UsedBy.CONSUMER,
        default=2,
        minimum=1,
        maximum=4,
        doc="Concurrent fetches per broker, each on its own connection.",
    ),
    Property(
        name="max.poll.records",
        kind=PropertyKind.INTEGER,
        used_by=UsedBy.CONSUMER,
        default=INT_MAX,
        minimum=1,
        maximum=INT_MAX,
        doc="The maximum number of records that one poll() returns. Java's default is 500. If not set, a group member "
        "gets 500 at first and up to 100000 while it polls again within seconds; without a group there is no limit.",
    ),
    Property(
        name="auto.offset.reset",
        kind=PropertyKind.TEXT,
        used_by=UsedBy.CONSUMER,
        default="none",
        aliases=("offset.initial",),
        doc="Where to start without a valid position: none (an error), earliest, latest, by_duration:PnDTnHnMnS.",
    ),
    Property(
        name="lost.position.reset",
        kind=PropertyKind.CHOICE,
        used_by=UsedBy.CONSUMER,
        default="policy",
        choices=("policy", "earliest"),
        doc="Where to continue if the log no longer has a position: policy (as auto.offset.reset says), or earliest, "
        "which skips nothing. With auto.offset.reset=none it is an error in any case. Apps use earliest.",
    ),
    Property(
        name="check.crcs",
        kind=PropertyKind.FLAG,
        used_by=UsedBy.CONSUMER,
        default=True,
        doc="Whether to verify the checksum of every batch.",
    ),
    Property(
        name="isolation.level",
        kind=PropertyKind.CHOICE,
        used_by=UsedBy.CONSUMER,
        default="read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        doc="Whether to return records of open and aborted transactions.",
    ),
    Property(
        name="max.decompressed.batch.bytes",
        kind=PropertyKind.BYTES,
        used_by=UsedBy.CONSUMER,
        default=67_108_864,
        minimum=1_024,
        maximum=INT_MAX,
        doc="The maximum decompressed size of a batch; a larger one is an error, and no memory is allocated for it.",
    ),
    Property(
        name="corrupt.batch.refetches",
        kind=PropertyKind.INTEGER,
        used_by=UsedBy.CONSUMER,
        default=2,
        minimum=0,
        maximum=1_000,
        doc="How often to fetch an unreadable batch again before the partition stops.",
    ),
    Property(
        name="allow.auto.create.topics",
        kind=PropertyKind.FLAG,
        used_by=UsedBy.CONSUMER,
        default=False,
        doc="Whether requesting a topic's metadata may create it. Java's default is true.",
    ),
    Property(
        name="exclude.internal.topics",
        kind=PropertyKind.FLAG,
        used_by=UsedBy.CONSUMER,
        default=True,
        doc="Whether a pattern subscription excludes Kafka's internal topics.",
    ),
    Property(
        name="group.id",
        kind=PropertyKind.TEXT,
        used_by=UsedBy.CONSUMER,
        doc="The consumer group. Without one, assign partitions manually; nothing is committed.",
    ),
    Property(
        name="group.protocol",
        kind=PropertyKind.CHOICE,
        used_by=UsedBy.CONSUMER,
        default="auto",
        choices=("auto", "classic", "consumer"),
        doc="How the group shares partitions: JoinGroup and SyncGroup (classic), KIP-848 (consumer, which converts a "
        "classic group), or auto: KIP-848 where the broker offers it, unless classic members are in the group or "
        "a property is set that only classic groups have. Java's default is classic.",
    ),
    Property(
        name="group.instance.id",
        kind=PropertyKind.TEXT,
        used_by=UsedBy.CONSUMER,
        doc="A stable name that makes the member static: a short absence moves no partition.",
    ),
    Property(
        name="group.remote.assignor",
        kind=PropertyKind.TEXT,
        used_by=UsedBy.CONSUMER,
        doc="The broker's assignor with group.protocol=consumer (uniform, range); if not set, the broker chooses.",
    ),
    Property(
        name="partition.assignment.strategy",
        kind=PropertyKind.OBJECTS,
        used_by=UsedBy.CONSUMER,
        default=DEFAULT_STRATEGY,
        doc="Assignors of the classic protocol, by short name or Java class: range, roundrobin, sticky, "
        "cooperative-sticky; or assignor objects.",
    ),
    Property(
        name="session.timeout.ms",
        kind=PropertyKind.MILLIS,
        used_by=UsedBy.CONSUMER,
        default=45_000,
        minimum=1,
        maximum=INT_MAX,
        aliases=("session.timeout",),
        doc="A member without heartbeats for this long is removed from a classic group.",
    ),
    Property(
        name="heartbeat.interval.ms",
        kind=PropertyKind.MILLIS,
        used_by=UsedBy.CONSUMER,
        default=3_000,
        minimum=1,
        maximum=INT_MAX,
        aliases=("heartbeat.interval",),
        doc="How often a member of a classic group sends a heartbeat.",
    ),
    Property(
        name="max.poll.interval.ms",
        kind=PropertyKind.MILLIS,
        used_by=UsedBy.CONSUMER,
        default=300_000,
        minimum=1,
        maximum=INT_MAX,
        aliases=("max.poll.interval",),
        doc="A member that does not poll for this long gives up its partitions.",
    ),
    Property(
        name="enable.auto.commit",
        kind=PropertyKind.FLAG,
        used_by=UsedBy.CONSUMER,
        default=True,
        doc="Whether positions are committed automatically; needs a group.",
    ),
    Property(
        name="auto.commit.interval.ms",
        kind=PropertyKind.MILLIS,
        used_by=UsedBy.CONSUMER,
        default=5_000,
        minimum=0,
        maximum=INT_MAX,
        aliases=("auto.commit.interval",),
        doc="The interval of automatic commits.",
    ),
)
