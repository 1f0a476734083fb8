"""The properties of a consumer: fetching, positions, groups.

Thread: none (a constant).

Defaults are Java's but for `auto.offset.reset` (none: a lost position is an error until someone chooses),
`allow.auto.create.topics` (false: reading creates nothing), `max.poll.records` (as many as the application keeps up
with) and `max.partition.fetch.bytes` (4 MB: few, large frames).
"""

from __future__ import annotations

from typing import Final

from multilane.config.properties import INT_MAX, Property, PropertyKind, Scope

DEFAULT_STRATEGY: Final = ("range", "cooperative-sticky")

CONSUMER_PROPERTIES: Final[tuple[Property, ...]] = (
    Property(
        name="fetch.min.bytes",
        kind=PropertyKind.BYTES,
        scope=Scope.CONSUMER,
        default=1,
        minimum=0,
        maximum=INT_MAX,
        aliases=("fetch.min.size",),
        doc="The broker waits until it has this much, or until fetch.max.wait.ms.",
    ),
    Property(
        name="fetch.max.bytes",
        kind=PropertyKind.BYTES,
        scope=Scope.CONSUMER,
        default=52_428_800,
        minimum=0,
        maximum=INT_MAX,
        doc="The most one Fetch response should hold (a first batch that is larger still comes whole).",
    ),
    Property(
        name="fetch.max.wait.ms",
        kind=PropertyKind.MILLIS,
        scope=Scope.CONSUMER,
        default=500,
        minimum=0,
        maximum=INT_MAX,
        aliases=("fetch.wait.max.ms", "fetch.max.wait"),
        doc="How long the broker may wait for fetch.min.bytes.",
    ),
    Property(
        name="fetch.pace.ms",
        kind=PropertyKind.MILLIS,
        scope=Scope.CONSUMER,
        default=0,
        minimum=0,
        maximum=1_000,
        doc="A connection with nothing to catch up on fetches once in this time: records that trickle come together.",
    ),
    Property(
        name="max.partition.fetch.bytes",
        kind=PropertyKind.BYTES,
        scope=Scope.CONSUMER,
        default=4_194_304,
        minimum=0,
        maximum=INT_MAX,
        aliases=("fetch.message.max.bytes",),
        doc="The most one partition should give in one Fetch response. Java's default is 1 MB.",
    ),
    Property(
        name="fetch.buffer.bytes",
        kind=PropertyKind.BYTES,
        scope=Scope.CONSUMER,
        default=134_217_728,
        minimum=1,
        maximum=2**40,
        scaled_aliases=(("queued.max.messages.kbytes", 1024),),
        doc="Bytes that may wait between the network and poll(); no fetch is sent while they are used up.",
    ),
    Property(
        name="fetch.connections",
        kind=PropertyKind.INTEGER,
        scope=Scope.CONSUMER,
        default=2,
        minimum=1,
        maximum=4,
        doc="Fetches to one broker that may be under way, each on a connection of its own.",
    ),
    Property(
        name="max.poll.records",
        kind=PropertyKind.INTEGER,
        scope=Scope.CONSUMER,
        default=INT_MAX,
        minimum=1,
        maximum=INT_MAX,
        doc="The most records one poll() hands out. Java's default is 500. Here, if not set, a member of a group gets "
        "500 at first and up to 100000 while it polls again within seconds; without a group there is no limit.",
    ),
    Property(
        name="auto.offset.reset",
        kind=PropertyKind.TEXT,
        scope=Scope.CONSUMER,
        default="none",
        aliases=("offset.initial",),
        doc="Where to go without a valid position: none (an error), earliest, latest, by_duration:PnDTnHnMnS.",
    ),
    Property(
        name="check.crcs",
        kind=PropertyKind.FLAG,
        scope=Scope.CONSUMER,
        default=True,
        doc="Whether the checksum of every batch is verified.",
    ),
    Property(
        name="isolation.level",
        kind=PropertyKind.CHOICE,
        scope=Scope.CONSUMER,
        default="read_uncommitted",
        choices=("read_uncommitted", "read_committed"),
        doc="Whether records of open and aborted transactions are seen.",
    ),
    Property(
        name="max.decompressed.batch.bytes",
        kind=PropertyKind.BYTES,
        scope=Scope.CONSUMER,
        default=67_108_864,
        minimum=1_024,
        maximum=INT_MAX,
        doc="A batch that decompresses to more is an error; nothing larger is allocated.",
    ),
    Property(
        name="corrupt.batch.refetches",
        kind=PropertyKind.INTEGER,
        scope=Scope.CONSUMER,
        default=2,
        minimum=0,
        maximum=1_000,
        doc="How often a batch that cannot be read is fetched again before the partition stops.",
    ),
    Property(
        name="allow.auto.create.topics",
        kind=PropertyKind.FLAG,
        scope=Scope.CONSUMER,
        default=False,
        doc="Whether asking for a topic may create it. Java's default is true.",
    ),
    Property(
        name="exclude.internal.topics",
        kind=PropertyKind.FLAG,
        scope=Scope.CONSUMER,
        default=True,
        doc="Whether a pattern subscription leaves out Kafka's own topics.",
    ),
    Property(
        name="group.id",
        kind=PropertyKind.TEXT,
        scope=Scope.CONSUMER,
        doc="The consumer group. Without one, partitions are assigned by hand and nothing is committed.",
    ),
    Property(
        name="group.protocol",
        kind=PropertyKind.CHOICE,
        scope=Scope.CONSUMER,
        default="auto",
        choices=("auto", "classic", "consumer"),
        doc="How the group shares partitions: JoinGroup and SyncGroup (classic), KIP-848 (consumer, which converts a "
        "classic group), or auto: KIP-848 where the broker offers it, unless classic members are in the group or "
        "something is set that only classic groups have. Java's default is classic.",
    ),
    Property(
        name="group.instance.id",
        kind=PropertyKind.TEXT,
        scope=Scope.CONSUMER,
        doc="A stable name that makes the member static: a short absence moves no partition.",
    ),
    Property(
        name="group.remote.assignor",
        kind=PropertyKind.TEXT,
        scope=Scope.CONSUMER,
        doc="The broker's assignor under group.protocol=consumer (uniform, range); the broker's choice if not set.",
    ),
    Property(
        name="partition.assignment.strategy",
        kind=PropertyKind.THINGS,
        scope=Scope.CONSUMER,
        default=DEFAULT_STRATEGY,
        doc="Assignors of the classic protocol, by short name or Java class: range, roundrobin, sticky, "
        "cooperative-sticky; or objects that are assignors.",
    ),
    Property(
        name="session.timeout.ms",
        kind=PropertyKind.MILLIS,
        scope=Scope.CONSUMER,
        default=45_000,
        minimum=1,
        maximum=INT_MAX,
        aliases=("session.timeout",),
        doc="A member not heard of for this long leaves the classic group.",
    ),
    Property(
        name="heartbeat.interval.ms",
        kind=PropertyKind.MILLIS,
        scope=Scope.CONSUMER,
        default=3_000,
        minimum=1,
        maximum=INT_MAX,
        aliases=("heartbeat.interval",),
        doc="How often a member of a classic group says that it lives.",
    ),
    Property(
        name="max.poll.interval.ms",
        kind=PropertyKind.MILLIS,
        scope=Scope.CONSUMER,
        default=300_000,
        minimum=1,
        maximum=INT_MAX,
        aliases=("max.poll.interval",),
        doc="A member that does not poll for this long gives its partitions up.",
    ),
    Property(
        name="enable.auto.commit",
        kind=PropertyKind.FLAG,
        scope=Scope.CONSUMER,
        default=True,
        doc="Whether positions are committed by themselves; matters only with a group.",
    ),
    Property(
        name="auto.commit.interval.ms",
        kind=PropertyKind.MILLIS,
        scope=Scope.CONSUMER,
        default=5_000,
        minimum=0,
        maximum=INT_MAX,
        aliases=("auto.commit.interval",),
        doc="How often that happens.",
    ),
)
